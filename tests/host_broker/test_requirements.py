"""Every requirement of FMQP is named by a vector or a test, and no test names another."""

import ast
import re
from pathlib import Path

from tests.host_broker.golden import vectors

_FOLDER = Path(__file__).parent
_ALL = {f"R{number}" for number in range(1, 53)}
_NAMED = re.compile(r"\bR(\d+)(?:\s+to\s+R(\d+))?\b")


def _in_text(text: str) -> set[str]:
    """``R14, R16 to R18`` names four."""
    found = set()
    for first, last in _NAMED.findall(text):
        found |= {f"R{number}" for number in range(int(first), int(last or first) + 1)}
    return found


def _in_tests() -> dict[str, set[str]]:
    """By requirement, the FMQP tests whose docstrings name it.

    Files about LightMQ, which has numbers of its own, do not count.
    """
    named: dict[str, set[str]] = {}
    for path in sorted(_FOLDER.rglob("test_*.py")):
        if "lightmq" in path.name or path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for requirement in _in_text(ast.get_docstring(node) or ""):
                    named.setdefault(requirement, set()).add(f"{path.name}::{node.name}")
    return named


def _in_vectors() -> set[str]:
    return {requirement for vector in vectors("fmqp") for requirement in vector["requirements"]}


def test_ranges_are_counted() -> None:
    assert _in_text("R14, R16 to R18, A3: not R") == {"R14", "R16", "R17", "R18"}


def test_none_is_missing_and_none_is_unknown() -> None:
    named = _in_vectors() | set(_in_tests())
    assert sorted(_ALL - named) == []
    assert sorted(named - _ALL) == []


def test_what_a_codec_alone_cannot_show_is_shown_by_the_broker() -> None:
    """A vector shows that bytes are understood; from R14 on the broker must act."""
    tested = set(_in_tests())
    assert sorted({f"R{number}" for number in range(14, 53)} - tested) == []
