"""What boards call the client's private names: words that a .mpy file has for nothing.

Some 150 words (``static_qstr_list`` of MicroPython's sources) are numbers in a .mpy file and stand
in the firmware's ROM; any other name is spelled out in each file that uses it, and kept on the
heap. So a method is called by the nearest of those words, as a traceback shows it; an attribute by
any that is free.
"""

import ast

BOARD_NAMES = {
    # Methods of clients and of what drives them.
    "_ask": "callable",
    "_await": "next",
    "_drop": "clear",
    "_fail": "throw",
    "_fill": "readinto",
    "_flush": "write",
    "_greet": "repr",
    "_next_id": "index",
    "_normalised": "strip",
    "_pack": "append",
    "_post": "replace",
    "_push": "join",
    "_put": "extend",
    "_rewatch": "update",
    "_rise": "open",
    "_skip": "rstrip",
    "_step": "step",
    "_take": "readline",
    "_tell": "isinstance",
    "_wait": "round",
    # Functions of modules.
    "_readable": "rfind",
    "is_like": "issubclass",
    "normalised": "lower",
    # Attributes of clients and drivers.
    "_all": "all",
    "_buf": "bytes",
    "_call": "eval",
    "_due": "any",
    "_end": "end",
    "_failed": "bool",
    "_fd": "type",
    "_first": "insert",
    "_fit": "to_bytes",
    "_fmt": "format",
    "_go": "isupper",
    "_has": "startswith",
    "_id": "id",
    "_last": "upper",
    "_like": "iter",
    "_link": "bytecode",
    "_news": "map",
    "_newest": "rsplit",
    "_now": "copy",
    "_out": "bytearray",
    "_owed": "dir",
    "_own": "key",
    "_owner": "lstrip",
    "_pause": "pow",
    "_ping": "hash",
    "_poll": "list",
    "_pong": "set",
    "_queue": "remove",
    "_reader": "read",
    "_reads": "range",
    "_request": "ord",
    "_said": "setattr",
    "_size": "sum",
    "_span": "value",
    "_start": "start",
    "_tail": "hasattr",
    "_then": "abs",
    "_told": "count",
    "_turn": "divmod",
    "_view": "object",
    "_waiting": "dict",
    "_watcher": "zip",
    # Arguments that are always given by their place.
    "buffer": "locals",
    "flags": "sort",
    "kept": "globals",
    "method": "exec",
    "new": "isdigit",
    "number": "reverse",
    "operation": "popitem",
    "options": "setdefault",
    "request": "sorted",
    "what": "islower",
    # Of transports.
    "_alarm": "staticmethod",
    "_baud": "from_bytes",
    "_is_quiet": "isspace",
    "_left": "items",
    "_quiet": "classmethod",
    "_quiet_ms": "split",
    "_room": "find",
    "_sent": "tuple",
    "_when": "values",
}


class AsOnBoards(ast.NodeTransformer):
    """Renames attributes, arguments, what classes define, and functions of modules."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        node.attr = BOARD_NAMES.get(node.attr, node.attr)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = BOARD_NAMES.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = BOARD_NAMES.get(node.arg, node.arg)
        return node

    def visit_alias(self, node: ast.alias) -> ast.AST:
        node.name = BOARD_NAMES.get(node.name, node.name)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._defined(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._defined(node)

    def _defined(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.name = BOARD_NAMES.get(node.name, node.name)
        return node
