"""The line protocol's codec: its vectors, any cuts, bounded lines, garbage."""

import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_broker.bus.publication import MAX_PROPERTIES, topic_fault
from host_broker.wire.budget import Budget
from host_broker.wire.violation import Violation
from motemq_line import codec as line_codec
from motemq_line.codec import VERBS, Codec, Event, Ping, Pub, spell_job, spell_message

_FILE = Path(__file__).parents[1] / "line_protocol" / "vectors.json"
_VECTORS: dict[str, Any] = json.loads(_FILE.read_text())


def _codec(max_line: int = 1000, max_errors: int = 100, budget: Budget | None = None) -> Codec:
    return Codec(max_line, max_errors, budget)


def _as_text(value: object) -> object:
    """Bytes as text, whatever they are in."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {name: _as_text(each) for name, each in value.items()}
    return value


@pytest.mark.parametrize("vector", _VECTORS["reads"], ids=lambda vector: str(vector["line"]))
def test_a_line_is_understood(vector: dict[str, Any]) -> None:
    events = _codec().receive_data(vector["line"].encode() + b"\n")
    if "violation" in vector:
        (event,) = events
        assert isinstance(event, Violation)
        assert (event.rule, event.fatal) == ("syntax", False)
        assert event.reason.startswith(vector["violation"])
    elif vector["event"] is None:
        assert events == []
    else:
        (event,) = events
        assert type(event) is getattr(line_codec, vector["event"])
        assert _as_text(asdict(event)) == vector["fields"]


@pytest.mark.parametrize("vector", _VECTORS["spells"], ids=lambda vector: str(vector["line"]))
def test_what_the_broker_says(vector: dict[str, Any]) -> None:
    properties = {name: value.encode() for name, value in vector["properties"].items()}
    body = vector["body"].encode()
    if vector["say"] == "message":
        line = spell_message(vector["subscriptions"], vector["topic"].encode(), properties, body)
    else:
        line = spell_job(
            vector["queue"].encode(), vector["number"], vector["redelivered"], properties, body
        )
    assert line.decode() == vector["line"] + "\n"


def test_every_verb_has_a_vector() -> None:
    said = {vector["line"].split(" ")[0] for vector in _VECTORS["reads"] if vector.get("event")}
    assert said == {verb.decode() for verb in VERBS}


_TOPIC = st.text(min_size=1, max_size=20).filter(
    lambda text: not topic_fault(text.encode("utf-8", "surrogatepass"))
)
_PROPERTIES = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
    st.binary(max_size=10),
    max_size=3,
)


@given(_TOPIC, _PROPERTIES, st.binary(max_size=50))
def test_what_is_spelled_can_be_said_again(
    topic: str, properties: dict[str, bytes], body: bytes
) -> None:
    line = spell_message([1], topic.encode(), properties, body)
    assert line.count(b"\n") == 1
    said = b"pub " + line.removeprefix(b"msg 1 ")
    assert _codec().receive_data(said) == [Pub(b"pub", topic.encode(), properties, body)]


_LINES = st.one_of(
    st.sampled_from([vector["line"].encode() for vector in _VECTORS["reads"]]),
    st.binary(max_size=40),
    st.sampled_from([b"pub a : " + b"x" * 60, b"y" * 80, b"\r" * 70]),
)


@given(st.lists(_LINES, max_size=12), st.lists(st.integers(0, 600), max_size=12), st.integers(1, 9))
def test_any_cuts_give_the_same_events(
    lines: list[bytes], places: list[int], max_errors: int
) -> None:
    stream = b"".join(line + b"\n" for line in lines)[:-1]
    whole = _codec(64, max_errors).receive_data(stream)
    codec = _codec(64, max_errors)
    events: list[Event] = []
    edges = sorted({0, len(stream), *(place for place in places if place < len(stream))})
    for start, end in pairwise(edges):
        events += codec.receive_data(stream[start:end])
    assert events == whole
    fatal = [isinstance(event, Violation) and event.fatal for event in whole]
    assert sum(isinstance(event, Violation) for event in whole) <= max_errors
    assert True not in fatal[:-1]


def test_offsets_are_those_of_lines() -> None:
    stream = b"ping\n\nno\n" + b"z" * 65 + b"\nping\nno\n"
    events = _codec(64).receive_data(stream)
    assert [each.offset for each in events if isinstance(each, Violation)] == [6, 9, 80]
    assert events.count(Ping()) == 2


def test_a_line_without_an_end_is_not_kept() -> None:
    codec = _codec(64)
    (violation,) = codec.receive_data(b"x" * 65)
    assert isinstance(violation, Violation)
    assert (violation.rule, violation.fatal) == ("line.max_line", False)
    for _ in range(1000):
        assert codec.receive_data(b"x" * 1000) == []
    assert codec.receive_data(b"x\nping\n") == [Ping()]


def test_a_line_may_be_as_long_as_the_limit() -> None:
    line = b"pub a : " + b"x" * 56
    assert len(line) == 64
    assert isinstance(_codec(64).receive_data(line + b"\n")[0], Pub)
    assert isinstance(_codec(64).receive_data(b"x" + line + b"\n")[0], Violation)


def test_unfinished_lines_share_the_brokers_memory() -> None:
    budget = Budget(10_000)
    codec, other = _codec(9000, budget=budget), _codec(9000, budget=budget)
    assert codec.receive_data(b"pub a : " + b"x" * 6000) == []
    (violation,) = other.receive_data(b"pub a : " + b"x" * 6000)
    assert isinstance(violation, Violation)
    assert violation.rule == "bus.max_held_bytes"
    assert len(codec.receive_data(b"\n")) == 1
    assert budget.left == 10_000
    assert other.receive_data(b"\nping\n") == [Ping()]
    assert other.receive_data(b"pub a : " + b"x" * 6000) == []
    other.close()
    assert budget.left == 10_000
    assert other.receive_data(b"ping\nping\n") == []


def test_properties_have_the_limits_of_the_bus() -> None:
    words = " ".join(f"p{number}=1" for number in range(MAX_PROPERTIES + 1))
    (violation,) = _codec().receive_data(f"pub a {words} : x\n".encode())
    assert isinstance(violation, Violation)
    assert "at most 64 are allowed" in violation.reason


@pytest.mark.parametrize(
    ("condition", "body", "wanted"),
    [
        ("body contains fire", b"a fire!", True),
        ("body contains fire", b"a Fire!", False),
        ("body = on", b"on", True),
        ("body = on", b"on ", False),
        ("body > 20", b"20.5", True),
        ("body > 20", b"20", False),
        ("body < 20", b"-1e3", True),
        ("body < 20", b"cold", False),
        ("body < 20", b"1" * 1_000_000, False),
        ("unit = K", b"", True),
        ("unit > 1", b"", False),
        ("place contains x", b"x", False),
    ],
)
def test_conditions(condition: str, body: bytes, wanted: bool) -> None:
    (event,) = _codec().receive_data(f"sub a where {condition}\n".encode())
    assert isinstance(event, line_codec.Sub)
    assert event.condition is not None
    assert event.condition(b"a", {"unit": b"K"}, body) is wanted
