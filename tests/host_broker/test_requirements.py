"""Every requirement of every protocol is named by a vector or a test, and no test names another.

A protocol is a folder of ``host_broker/protocols`` with a ``NOTES.md``: its ambiguities (A1 …) are
the first column of the table, its requirements (R1 …) are listed after "Requirements:", and those
that only bytes can show after "Vectors alone show". Its vectors are ``tests/vectors/NAME.json``.

Files with a protocol's name in theirs name its requirements ``R5``, and those of another one, by
its title, ``FMQP R5``; files without any name FMQP's.
"""

import ast
import json
import re
from pathlib import Path

import pytest

from host_broker.registry import STORED_FORM
from tests.host_broker.golden import vectors

_FOLDER = Path(__file__).parent
_ROOT = _FOLDER.parents[1]
_NOTES = {
    path.parent.name: path.read_text()
    for path in sorted((_ROOT / "host_broker" / "protocols").glob("*/NOTES.md"))
}
_TITLES = {name: text.split(":")[0].removeprefix("# ") for name, text in _NOTES.items()}
_NAMED = re.compile(r"\b([RA])(\d+)(?:\s+to\s+\1(\d+))?\b")
# Texts do not lose requirements or ambiguities that have been counted.
_LEAST = {
    "fmqp": (52, 22),
    "lightmq": (21, 17),
    "micromsg2": (40, 30),
    "fq": (51, 26),
    "umq": (35, 26),
}

each_protocol = pytest.mark.parametrize("protocol", sorted(_NOTES))


def _numbers(letter: str, first: int, last: int) -> set[str]:
    return {f"{letter}{number}" for number in range(first, last + 1)}


def _in_text(text: str) -> set[str]:
    """``R14, R16 to R18, A3`` names five."""
    found = set()
    for letter, first, last in _NAMED.findall(text):
        found |= _numbers(letter, int(first), int(last or first))
    return found


def _of_others(protocol: str) -> re.Pattern[str]:
    titles = "|".join(re.escape(title) for name, title in _TITLES.items() if name != protocol)
    return re.compile(rf"(?:{titles})\s[RA]\d+(?:(?:,|,?\sand|\sto)\s[RA]\d+)*")


def _owner(path: Path) -> str:
    """The protocol that a file of tests is about."""
    words = path.stem.split("_")
    return next((name for name in _NOTES if name in words), STORED_FORM)


def _in_tests(protocol: str) -> set[str]:
    """What the docstrings of the protocol's tests name."""
    named: set[str] = set()
    others = _of_others(protocol)
    for path in sorted(_FOLDER.rglob("test_*.py")):
        if _owner(path) != protocol or path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                named |= _in_text(others.sub("", ast.get_docstring(node) or ""))
    return named


def _in_vectors(protocol: str) -> set[str]:
    return {each for vector in vectors(protocol) for each in vector["requirements"]}


def _with(letter: str, named: set[str]) -> set[str]:
    return {each for each in named if each.startswith(letter)}


def _requirements(protocol: str) -> set[str]:
    _, found, listed = _NOTES[protocol].partition("\nRequirements:\n")
    assert found, f"{protocol}/NOTES.md lists no requirements"
    return _with("R", _in_text(listed))


def _ambiguities(protocol: str) -> set[str]:
    columns = re.findall(r"^\| (A\d[^|]*) \|", _NOTES[protocol], re.MULTILINE)
    return _with("A", _in_text("; ".join(columns)))


def _shown_by_bytes(protocol: str) -> set[str]:
    sentences = re.findall(r"^Vectors alone show ([^.]*)\.", _NOTES[protocol], re.MULTILINE)
    return _in_text(" ".join(sentences))


def test_ranges_are_counted_and_other_protocols_are_not() -> None:
    assert _in_text("R14, R16 to R18, A3: not R") == {"R14", "R16", "R17", "R18", "A3"}
    others = "R1, FMQP R40, R45, and R46: FMQP R25 to R28 and A1, also R2; FMQP\nR3"
    assert _of_others("lightmq").sub("", others) == "R1, : , also R2; "
    assert _of_others("fmqp").sub("", others) == others


def test_files_belong_to_the_protocol_in_their_name() -> None:
    owners = {name: _owner(Path(f"test_{name}_and_more.py")) for name in _NOTES}
    assert owners == {name: name for name in _NOTES}
    assert _owner(Path("test_limits.py")) == "fmqp"


def test_every_protocol_has_vectors_and_every_protocols_vectors_have_a_folder() -> None:
    files = {
        path.stem: json.loads(path.read_text()).get("protocol")
        for path in (_ROOT / "tests" / "vectors").glob("*.json")
    }
    named = {name: protocol for name, protocol in files.items() if protocol is not None}
    assert named == {name: name for name in _NOTES}
    folders = (_ROOT / "host_broker" / "protocols").glob("*/__init__.py")
    assert sorted(path.parent.name for path in folders) == sorted(_NOTES)


@each_protocol
def test_the_notes_list_them_without_gaps(protocol: str) -> None:
    requirements, ambiguities = _requirements(protocol), _ambiguities(protocol)
    least = _LEAST.get(protocol, (1, 1))
    assert len(requirements) >= least[0]
    assert len(ambiguities) >= least[1]
    assert requirements == _numbers("R", 1, len(requirements))
    assert ambiguities == _numbers("A", 1, len(ambiguities))
    assert _shown_by_bytes(protocol) < requirements


@each_protocol
def test_none_is_missing_and_none_is_unknown(protocol: str) -> None:
    named = _in_vectors(protocol) | _with("R", _in_tests(protocol))
    assert sorted(_requirements(protocol) - named) == []
    assert sorted(named - _requirements(protocol)) == []


@each_protocol
def test_what_a_codec_alone_cannot_show_is_shown_in_action(protocol: str) -> None:
    """A vector shows that bytes are understood; for the others the broker, or a client, acts."""
    acted = _requirements(protocol) - _shown_by_bytes(protocol)
    assert sorted(acted - _in_tests(protocol)) == []


@each_protocol
def test_every_ambiguity_has_an_answer_that_is_tested(protocol: str) -> None:
    named = _with("A", _in_tests(protocol))
    assert sorted(_ambiguities(protocol) - named) == []
    assert sorted(named - _ambiguities(protocol)) == []
