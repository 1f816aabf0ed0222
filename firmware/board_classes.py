"""Classes as boards get them: with smaller dictionaries.

MicroPython keeps a class's dictionary as the class body left it: with two entries that nothing on a
board looks at, and as many slots, of eight bytes, as the next of a few sizes has.
"""

import ast

# Slots of MicroPython's dictionaries (py/map.c), as far as a class here may need them.
_SIZES = (0, 1, 2, 4, 6, 8, 10, 12, 17, 23, 29, 37, 47, 59, 73)
_UNUSED = ("__module__", "__qualname__")


def shrunk(node: ast.ClassDef) -> ast.stmt:
    """Return the statement that makes the class ``node``, without docstrings, on a board."""
    if all(isinstance(each, ast.Pass) for each in node.body):
        bases = ", ".join(map(ast.unparse, node.bases))
        (made,) = ast.parse(f"{node.name} = type({node.name!r}, ({bases},), {{}})").body
        return made
    names = {name for each in node.body for name in _defined(each)}
    if _slots(len(names)) < _slots(len(names) + len(_UNUSED)):
        node.body[:0] = ast.parse(f"del {', '.join(_UNUSED)}").body
    return node


def _slots(entries: int) -> int:
    return next(size for size in _SIZES if size >= entries)


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return [statement.name]
    return [
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
