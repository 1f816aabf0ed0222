"""Every requirement of FMQP and LightMQ is named by a vector or a test, and no test names another.

Files about LightMQ name its requirements ``R5``, and FMQP's ``FMQP R5``; all others name FMQP's.
"""

import ast
import re
from pathlib import Path

import pytest

from tests.host_broker.golden import vectors

_FOLDER = Path(__file__).parent
_NAMED = re.compile(r"\b([RA])(\d+)(?:\s+to\s+\1(\d+))?\b")
_OF_THE_OTHER = re.compile(r"FMQP\s[RA]\d+(?:(?:,|,?\sand|\sto)\s[RA]\d+)*")


def _numbers(letter: str, first: int, last: int) -> set[str]:
    return {f"{letter}{number}" for number in range(first, last + 1)}


_ALL = {"fmqp": _numbers("R", 1, 52), "lightmq": _numbers("R", 1, 21)}
# A vector shows that bytes are understood; in these the broker, or the client (R20), must act.
_ACTED = {
    "fmqp": _numbers("R", 14, 52),
    "lightmq": _ALL["lightmq"] - {"R1", "R3", "R7"},
}
_AMBIGUITIES = _numbers("A", 1, 17)  # of LightMQ


def _in_text(text: str) -> set[str]:
    """``R14, R16 to R18, A3`` names five."""
    found = set()
    for letter, first, last in _NAMED.findall(text):
        found |= _numbers(letter, int(first), int(last or first))
    return found


def _in_tests(protocol: str) -> set[str]:
    """What the docstrings of the protocol's tests name."""
    named: set[str] = set()
    for path in sorted(_FOLDER.rglob("test_*.py")):
        if ("lightmq" in path.name) != (protocol == "lightmq") or path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                text = ast.get_docstring(node) or ""
                named |= _in_text(_OF_THE_OTHER.sub("", text) if protocol == "lightmq" else text)
    return named


def _in_vectors(protocol: str) -> set[str]:
    return {each for vector in vectors(protocol) for each in vector["requirements"]}


def _requirements(named: set[str]) -> set[str]:
    return {each for each in named if each.startswith("R")}


def test_ranges_are_counted_and_the_other_protocol_is_not() -> None:
    assert _in_text("R14, R16 to R18, A3: not R") == {"R14", "R16", "R17", "R18", "A3"}
    others = "R1, FMQP R40, R45, and R46: FMQP R25 to R28 and A1, also R2; FMQP\nR3"
    assert _OF_THE_OTHER.sub("", others) == "R1, : , also R2; "


@pytest.mark.parametrize("protocol", ["fmqp", "lightmq"])
def test_none_is_missing_and_none_is_unknown(protocol: str) -> None:
    named = _in_vectors(protocol) | _requirements(_in_tests(protocol))
    assert sorted(_ALL[protocol] - named) == []
    assert sorted(named - _ALL[protocol]) == []


@pytest.mark.parametrize("protocol", ["fmqp", "lightmq"])
def test_what_a_codec_alone_cannot_show_is_shown_in_action(protocol: str) -> None:
    assert sorted(_ACTED[protocol] - _in_tests(protocol)) == []


def test_every_ambiguity_of_lightmq_has_an_answer_that_is_tested() -> None:
    named = {each for each in _in_tests("lightmq") if each.startswith("A")}
    assert sorted(_AMBIGUITIES - named) == []
    assert sorted(named - _AMBIGUITIES) == []
    notes = _FOLDER.parents[1] / "host_broker/protocols/lightmq/NOTES.md"
    assert sorted(_AMBIGUITIES - _in_text(notes.read_text())) == []
