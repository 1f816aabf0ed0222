"""Private names, which compiled files call otherwise."""

# Of firmware/board_names.py, what checks look at.
ON_BOARDS = {
    "_ask": "callable",
    "_drop": "clear",
    "_due": "any",
    "_flush": "write",
    "_id": "id",
    "_last": "upper",
    "_own": "key",
    "_ping": "hash",
    "_pong": "set",
    "_sent": "tuple",
    "_step": "step",
    "_wait": "round",
    "_waiting": "dict",
    "is_like": "issubclass",
}


def inner(thing, name):
    """Return a private attribute, or a module's function, by its name in the sources."""
    return getattr(thing, name if hasattr(thing, name) else ON_BOARDS[name])


def set_inner(thing, name, value):
    """Set it."""
    setattr(thing, name if hasattr(thing, name) else ON_BOARDS[name], value)
