"""The names of firmware/board_names.py are MicroPython's own, and none hides another one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from firmware.board_names import ARGUMENTS, BOARD_NAMES, FUNCTIONS, MEMBERS
from firmware.board_sources import files_for_boards, for_boards
from firmware.cache import cache_dir
from firmware.node_files import client_sources
from tests.client_upy.interpreters import DEVICE

_SOURCES = client_sources()


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names of attributes of ``self``, and what a class defines."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            if each.value.id == "self":
                yield each.attr
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each.name
        elif isinstance(each, ast.ClassDef):
            for statement in each.body:
                if isinstance(statement, ast.Assign):
                    for target in statement.targets:
                        yield from (name.id for name in ast.walk(target) if _is_name(name))


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)


def _classes() -> dict[str, set[str]]:
    """Return the names in each class of the client, with those of its bases."""
    own: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for path in _SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                own[node.name] = set(_names(node))
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
    for name in own:
        for base in bases[name]:
            own[name] |= own.get(base, set())
    return own


# Attributes that are looked up for each message.
_OFTEN = [
    "_all",
    "_buf",
    "_call",
    "_end",
    "_first",
    "_fit",
    "_fmt",
    "_has",
    "_last",
    "_like",
    "_now",
    "_out",
    "_own",
    "_owed",
    "_pong",
    "_said",
    "_size",
    "_span",
    "_start",
    "_tail",
    "_told",
    "_view",
    "_fill",
    "_flush",
    "_push",
    "_step",
    "_take",
    "_wait",
]


@pytest.fixture(scope="module")
def words(unix_port: Path) -> list[str]:
    """Return the list that a .mpy file refers to by number; the interpreter's build has it."""
    (source, *_) = cache_dir().glob("micropython-source/*/micropython/py/makeqstrdata.py")
    listed = re.search(r"^static_qstr_list = (\[.*?^\])", source.read_text(), re.M | re.S)
    assert listed
    found = ast.literal_eval(listed[1])
    assert isinstance(found, list)
    return found


def test_every_word_is_micropythons(words: list[str]) -> None:
    assert set(BOARD_NAMES.values()) <= set(words)


def test_what_is_looked_up_often_has_places_of_its_own(words: list[str]) -> None:
    """In MicroPython's cache of lookups, which has a place for every 64th name."""
    places = [words.index(BOARD_NAMES[name]) % 64 for name in _OFTEN]
    assert len(set(places)) == len(places)


def test_no_two_names_are_one() -> None:
    words = [*MEMBERS.values(), *FUNCTIONS.values()]
    assert len(set(words)) == len(words)
    assert {**MEMBERS, **FUNCTIONS, **ARGUMENTS} == BOARD_NAMES


def _variables(tree: ast.AST) -> set[str]:
    """Return the names of variables, arguments and functions in ``tree``, but not attributes."""
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    found |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    if isinstance(tree, ast.Module):
        found |= {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    return found


@pytest.mark.parametrize("path", _SOURCES, ids=[path.stem for path in _SOURCES])
def test_no_variable_becomes_another_one(path: Path) -> None:
    """Also not a function of the module, or of MicroPython, that the same file uses."""
    module = ast.parse(path.read_text())
    shared = _variables(module) - ARGUMENTS.keys()
    assert len({BOARD_NAMES.get(name, name) for name in shared}) == len(shared)
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = _variables(node) | shared & FUNCTIONS.keys()
            assert len({BOARD_NAMES.get(name, name) for name in names}) == len(names), node.name


@pytest.mark.parametrize(("name", "names"), _classes().items(), ids=list(_classes()))
def test_no_class_has_the_word_already(name: str, names: set[str]) -> None:
    assert not {BOARD_NAMES[each] for each in names & BOARD_NAMES.keys()} & names


def test_every_name_is_used_and_none_is_left() -> None:
    sources = " ".join(path.read_text() for path in _SOURCES)
    boards = " ".join(for_boards(modules) for modules in files_for_boards(_SOURCES).values())
    for name in BOARD_NAMES:
        assert re.search(rf"\b{name}\b", sources), name
        assert not re.search(rf"\b{name}\b(?! as )", boards), name


def test_the_checks_know_them() -> None:
    text = (DEVICE / "inside.py").read_text()
    table = re.search(r"^ON_BOARDS = (\{.*?^\})", text, re.M | re.S)
    assert table
    assert ast.literal_eval(table[1]).items() <= BOARD_NAMES.items()
