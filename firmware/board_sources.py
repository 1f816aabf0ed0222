"""The client's sources as boards get them: without what is for PCs, and several modules as one.

A module that stands alone repeats names that others have too, and a board pays for each. So what
is used together is one file, the package itself (``umotemq/__init__``); the names by which
programs import its parts lead there.
"""

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from firmware.board_classes import shrunk
from firmware.board_names import AsOnBoards

_Block = TypeVar("_Block", ast.FunctionDef, ast.ClassDef)
_PACKAGE = "umotemq"
_IS_PC = ast.dump(ast.parse('sys.implementation.name != "micropython"', mode="eval").body)
# In the order of their imports, and only one of the protocols: who has both pays for the second
# when it is imported.
_TOGETHER = {"fmqp": ("link", "tcp", "fmqp"), "lightmq": ("link", "tcp", "lightmq")}
# So whoever imports one of these will find it in the package itself: a shorter name to look for.
_INSIDE = {f"{_PACKAGE}.{name}" for name in _TOGETHER["fmqp"]}


def files_for_boards(sources: Iterable[Path]) -> dict[str, list[Path]]:
    """Return what boards get for some modules of the client: file's stem → the modules in it."""
    by_name = {path.stem: path for path in sources}
    protocol = next((name for name in _TOGETHER if name in by_name), "")
    together = [by_name.pop(name) for name in _TOGETHER.get(protocol, ())]
    files = {"__init__": [by_name.pop("__init__"), *together]}
    return files | {name: [path] for name, path in by_name.items()}


class _ForBoards(ast.NodeTransformer):
    """Leaves out what runs on PCs only, docstrings, and imports that the compiler sees to.

    The modules ``inside`` need not be imported either.
    """

    def __init__(self, inside: frozenset[str]) -> None:
        self._inside = inside

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.AST]:
        self.generic_visit(node)
        if ast.dump(node.test) != _IS_PC:
            return node
        return list(node.orelse)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant):
            return None
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        if node.module == "micropython":
            node.names = [alias for alias in node.names if alias.name != "const"]
        if node.module in self._inside or not node.names:
            return None
        package, _, name = (node.module or "").partition(".")
        if package == _PACKAGE:
            # As part of the same package: a shorter name, or one that the file has anyway.
            node.level = 1
            node.module = name if node.module not in _INSIDE else None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._whole(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return shrunk(self._whole(node))

    def _whole(self, node: _Block) -> _Block:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node


def for_boards(sources: Sequence[Path]) -> str:
    """Return Python source for boards: of one module, or of ``__init__`` and those after it.

    Each module comes after those that it imports.
    """
    names = [path.stem for path in sources[1:]]
    transformer = _ForBoards(frozenset(f"{_PACKAGE}.{name}" for name in names))
    imports: dict[str, ast.Import | ast.ImportFrom] = {}  # those from one module are one
    body: list[ast.stmt] = []
    for path in sources:
        for statement in transformer.visit(ast.parse(path.read_text())).body:
            if isinstance(statement, ast.ImportFrom):
                first = imports.setdefault(f"from {statement.module}", statement)
                known = [ast.dump(alias) for alias in first.names]
                first.names += [each for each in statement.names if ast.dump(each) not in known]
            elif isinstance(statement, ast.Import):
                imports.setdefault(ast.unparse(statement), statement)
            else:
                body.append(statement)
    if names:
        aliases = "".join(f"sys.modules['{_PACKAGE}.{name}'] = " for name in names)
        aliases += f"sys.modules['{_PACKAGE}']"
        imports.setdefault("import sys", ast.Import([ast.alias("sys")]))
        body += ast.parse(aliases).body
    whole = AsOnBoards().visit(
        ast.Module(body=[*_used(imports.values(), body), *body], type_ignores=[])
    )
    return ast.unparse(ast.fix_missing_locations(whole)) + "\n"


def _used(
    imports: Iterable[ast.Import | ast.ImportFrom], body: Sequence[ast.stmt]
) -> list[ast.Import | ast.ImportFrom]:
    # ruff has seen to it that all were used, so what is not belonged to what is for PCs.
    names = {node.id for each in body for node in ast.walk(each) if isinstance(node, ast.Name)}
    kept = []
    for each in imports:
        each.names = [
            alias for alias in each.names if (alias.asname or alias.name.partition(".")[0]) in names
        ]
        if each.names:
            kept.append(each)
    return kept
