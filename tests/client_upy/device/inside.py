"""Private names, which compiled files call otherwise."""

# Of firmware/board_names.py, what checks look at.
ON_BOARDS = {
    "_ask": "callable",
    "_drop": "clear",
    "_due": "len",
    "_flush": "write",
    "_id": "SyntaxError",
    "_last": "ValueError",
    "_own": "AttributeError",
    "_ping": "pop",
    "_pong": "AssertionError",
    "_sent": "little",
    "_step": "step",
    "_wait": "round",
    "_waiting": "ImportError",
    "is_like": "issubclass",
    "ticks_ms": "popitem",
}


def inner(thing, name):
    """Return a private attribute, or a module's function, by its name in the sources."""
    return getattr(thing, name if hasattr(thing, name) else ON_BOARDS[name])


def set_inner(thing, name, value):
    """Set it."""
    setattr(thing, name if hasattr(thing, name) else ON_BOARDS[name], value)
