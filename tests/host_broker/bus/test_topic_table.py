"""The compiled table and its Python twin give the same answers, to anything."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.bus import topic_table
from host_broker.bus.publication import pack
from host_broker.bus.topic_table import PythonTopicTable, TopicTable, deal, python_deal

_TOPICS = [b"a", b"b", b"a/b", b"home/kitchen", b"", b"\xff" * 255, b"12345678", b"123456789"]
_PACKET = st.builds(
    pack,
    st.sampled_from([0, 0, 0, 0, 4, 0x80]),
    st.sampled_from([*_TOPICS, b"unknown", b"home/kitchem"]),
    st.binary(max_size=12),
)
_WHOLE = st.lists(_PACKET, max_size=12).map(b"".join)


def test_the_compiled_table_is_tested() -> None:
    """Where it is compiled it is of today's source; the tests below would else compare the twin
    with itself. MOTEMQ_PURE_PYTHON=1 leaves it out."""
    if not topic_table.COMPILED:
        pytest.fail("the compiled table is missing: run make setup on a machine with a compiler")
    from host_broker.bus import _topic_table

    source = Path(topic_table.__file__).with_name("_topic_table.pyx").read_bytes()
    assert hashlib.sha256(source).hexdigest() == _topic_table.SOURCE


def _tables(values: list[Any]) -> tuple[Any, Any]:
    compiled: Any = TopicTable()
    python: Any = PythonTopicTable()
    for number, topic in enumerate(_TOPICS):
        compiled.put(topic, values[number % len(values)])
        python.put(topic, values[number % len(values)])
        compiled.mark(topic)
        python.mark(topic)
    return compiled, python


@settings(max_examples=500)
@given(_WHOLE, st.binary(max_size=20), st.integers(0, 40), st.integers(1, 12))
def test_scan(whole: bytes, rest: bytes, position: int, max_body: int) -> None:
    compiled, python = _tables([True])
    data = whole + rest
    for at in (0, min(position, len(data))):
        assert compiled.scan(data, at, max_body) == python.scan(data, at, max_body)


@settings(max_examples=500)
@given(_WHOLE, st.integers(1, 4), st.integers(1, 60))
def test_split_and_deal(whole: bytes, different: int, most: int) -> None:
    values = [f"value {number}" for number in range(different)]
    compiled, python = _tables(values)
    answer = compiled.split(whole, 0, len(whole))
    assert answer == python.split(whole, 0, len(whole))
    stretches = answer[1]
    groups = {value: tuple(range(number + 1)) for number, value in enumerate(values)}
    for limit in (most, 1 << 30):
        dealt = deal(whole, 0, stretches, groups, different, limit)
        assert dealt == python_deal(whole, 0, stretches, groups, different, limit)
    assert dealt is not None
    if stretches:
        assert dealt[0] == whole[: stretches[-1][1]]


@settings(max_examples=500)
@given(
    st.lists(_WHOLE, min_size=1, max_size=3),
    st.lists(
        st.tuples(
            st.sampled_from(["scan", "split", "put", "discard", "clear", "more"]),
            st.integers(0, 60),
            st.sampled_from(_TOPICS),
        ),
        max_size=30,
    ),
)
def test_what_a_scan_remembers_is_never_wrong(
    reads: list[bytes], steps: list[tuple[str, int, bytes]]
) -> None:
    """Scans and splits of several reads in any order, from any publication on, while values and
    marks come and go between them."""
    compiled, python = _tables(["one", "two", "three"])
    starts = [[at for at, _ in _publications(read)] + [len(read)] for read in reads]
    for what, number, topic in steps:
        which = number % len(reads)
        read, at = reads[which], starts[which][number % len(starts[which])]
        for table in compiled, python:
            if what == "put":
                table.put(topic, f"value {number}")
            elif what == "discard":
                table.discard(topic)
            elif what == "clear":
                table.unmark_all() if number % 2 else table.clear()
            elif what == "more":
                for more in range(number):
                    table.mark(b"more/%d" % more)
                table.mark(topic)
        if what == "scan":
            assert compiled.scan(read, at, 12) == python.scan(read, at, 12)
        elif what == "split":
            assert compiled.split(read, at, len(read)) == python.split(read, at, len(read))
        assert len(compiled) == len(python)
        assert compiled.marked == python.marked


def _publications(run: bytes) -> list[tuple[int, bytes]]:
    """Return where each publication of a run begins, and its topic."""
    found, position = [], 0
    while position < len(run):
        topic, end = run[position + 1], int.from_bytes(run[position + 2 : position + 6], "big")
        found.append((position, run[position + 6 : position + 6 + topic]))
        position += 6 + topic + end
    return found


_WHAT = ["put", "discard", "clear", "mark", "unmark"]
_STEP = st.tuples(st.sampled_from(_WHAT), st.integers(0, 300))


@settings(max_examples=300)
@given(st.lists(_STEP, max_size=400))
def test_the_table_is_a_dict_and_a_set(steps: list[tuple[str, int]]) -> None:
    table: Any = TopicTable()
    model: dict[bytes, int] = {}
    marks: set[bytes] = set()
    for what, number in steps:
        topic = b"t/%d" % number
        if what == "put":
            table.put(topic, number + 1)
            model[topic] = number + 1
        elif what == "discard":
            table.discard(topic)
            model.pop(topic, None)
        elif what == "mark":
            table.mark(topic)
            marks.add(topic)
        elif number < 3:
            table.clear() if what == "clear" else table.unmark_all()
            (model if what == "clear" else marks).clear()
    assert len(table) == len(model)
    assert table.marked == len(marks)
    for number in range(301):
        topic = b"t/%d" % number
        assert (topic in table) == (topic in model)
        assert table.get(topic) == model.get(topic)
        assert table.is_marked(topic) == (topic in marks)


def test_values_are_let_go() -> None:
    """Each reference that the table takes is given back once: by a new value, by discarding, by
    moving, by clearing, by its own end."""
    value = object()
    before = sys.getrefcount(value)
    table: Any = TopicTable()
    for again in range(3):
        for number in range(500):
            table.put(b"t/%d" % number, value)
            if number % 3 == again:
                table.mark(b"t/%d" % number)
        for number in range(0, 500, 2):
            table.discard(b"t/%d" % number)
        assert sys.getrefcount(value) == before + 250
        if again:
            table.clear()
            assert sys.getrefcount(value) == before
        table.unmark_all()
    table.put(b"last", value)
    del table
    assert sys.getrefcount(value) == before


def test_it_grows_and_keeps_everything() -> None:
    table: Any = TopicTable()
    for number in range(20_000):
        table.put(b"home/%d/temperature" % number, number + 1)
    for number in range(0, 20_000, 2):
        table.discard(b"home/%d/temperature" % number)
    assert len(table) == 10_000
    assert all(
        table.get(b"home/%d/temperature" % number) == number + 1 for number in range(1, 20_000, 2)
    )
    assert not any(b"home/%d/temperature" % number in table for number in range(0, 20_000, 2))


@pytest.mark.parametrize("length", [1, 5, 6, 7])
def test_a_run_that_is_none_is_refused_by_the_compiled_one(length: int) -> None:
    """The caller gives whole publications; the compiled one never reads beyond them."""
    compiled, _ = _tables([True])
    whole = pack(0, b"a", b"x")
    if len(whole) > length:
        with pytest.raises(ValueError, match="does not end with a publication"):
            compiled.split(whole[:length], 0, length)
