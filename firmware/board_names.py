"""What boards call the client's private names: words that a .mpy file has for nothing.

Some 150 words (``static_qstr_list`` of MicroPython's sources) are numbers in a .mpy file and stand
in the firmware's ROM; any other name is spelled out in each file that uses it, and kept on the
heap. So a method is called by the nearest of those words, as a traceback shows it. Nobody sees what
attributes and arguments are called: theirs are cheap words. The first 63 of the list (up to
``builtins``, so the names of exceptions) take one byte in each file, the others two, and one that
the file uses anyway takes none. Words of attributes that are looked up for each message are no
multiple of 64 apart in the list: they would share a place in MicroPython's cache of lookups.
"""

import ast

# Methods, and attributes of clients, drivers and transports.
MEMBERS = {
    "_ask": "callable",
    "_await": "next",
    "_drop": "clear",
    "_fail": "throw",
    "_fill": "readinto",
    "_flush": "write",
    "_greet": "repr",
    "_is_quiet": "isspace",
    "_next_id": "index",
    "_normalised": "strip",
    "_pack": "append",
    "_post": "replace",
    "_push": "join",
    "_put": "extend",
    "_rewatch": "update",
    "_rise": "open",
    "_room": "find",
    "_skip": "rstrip",
    "_step": "step",
    "_take": "readline",
    "_tell": "isinstance",
    "_wait": "round",
    # attributes
    "_alarm": "id",
    "_all": "IndentationError",
    "_baud": "read",
    "_buf": "bytes",
    "_call": "setattr",
    "_due": "len",
    "_end": "OSError",
    "_failed": "StopIteration",
    "_fd": "ArithmeticError",
    "_first": "bytearray",
    "_fit": "SystemExit",
    "_fmt": "NameError",
    "_go": "BaseException",
    "_has": "str",
    "_id": "SyntaxError",
    "_last": "ValueError",
    "_left": "end",
    "_like": "EOFError",
    "_link": "abs",
    "_newest": "LookupError",
    "_news": "all",
    "_now": "Ellipsis",
    "_out": "TypeError",
    "_owed": "start",
    "_own": "AttributeError",
    "_owner": "KeyError",
    "_pause": "split",
    "_ping": "pop",
    "_poll": "bool",
    "_pong": "AssertionError",
    "_queue": "ZeroDivisionError",
    "_quiet": "NotImplementedError",
    "_quiet_ms": "builtins",
    "_reader": "int",
    "_request": "NoneType",
    "_said": "args",
    "_sent": "little",
    "_size": "KeyboardInterrupt",
    "_span": "startswith",
    "_start": "MemoryError",
    "_tail": "type",
    "_then": "getattr",
    "_told": "OverflowError",
    "_turn": "set",
    "_view": "GeneratorExit",
    "_waiting": "ImportError",
    "_watcher": "Exception",
    "_when": "IndexError",
}
# Functions of modules; those of MicroPython are imported by that name, one with which the package's
# dictionary soon tells that ``len`` is not in it: publishing asks twice.
FUNCTIONS = {
    "_readable": "rfind",
    "is_like": "issubclass",
    "normalised": "lower",
    "ticks_add": "sorted",
    "ticks_diff": "staticmethod",
    "ticks_ms": "popitem",
    "ticks_us": "main",
}
# Arguments that are always given by their place.
ARGUMENTS = {
    "buffer": "find",
    "flags": "AssertionError",
    "kept": "BaseException",
    "method": "ArithmeticError",
    "new": "GeneratorExit",
    "number": "KeyboardInterrupt",
    "operation": "MemoryError",
    "options": "AttributeError",
    "request": "IndexError",
    "what": "NotImplementedError",
}
BOARD_NAMES = MEMBERS | FUNCTIONS | ARGUMENTS


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

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        for alias in node.names:
            if alias.name in BOARD_NAMES:
                word = BOARD_NAMES[alias.name]
                if node.level:
                    alias.name = word
                else:
                    alias.asname = word  # MicroPython's own name, which our other files find here
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._defined(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._defined(node)

    def _defined(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.name = BOARD_NAMES.get(node.name, node.name)
        return node
