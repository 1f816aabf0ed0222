"""Blocks with messages left out: the compiled way and its Python twin, and what readers get."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.bus.topic_filter import TopicFilter
from host_broker.net.journal import selection
from host_broker.net.journal.selection import Selection, python_select, select
from tests.host_broker.net.journal_decoder import read_blocks
from tests.host_broker.net.test_journal_format import VECTORS
from tests.journal_segment import START_NS, Record, Segment, Sender, packet

_TOPICS = ["a", "a/b", "a/c", "home/kitchen/lamp", "home/hall/lamp", "é"]
_MESSAGE = st.tuples(st.sampled_from(_TOPICS), st.binary(max_size=9))
_RECORD = st.tuples(
    st.integers(0, 9),
    st.sampled_from(["", "kitchen", "καρδιά"]),
    st.lists(_MESSAGE, min_size=1, max_size=5),
    st.sampled_from([1, 1, 1, 2]),
)
_BLOCK = st.lists(_RECORD, min_size=1, max_size=6)


def _block(records: Any) -> bytes:
    segment = Segment(0, 100)
    made = []
    for number, (connection, client, messages, encoding) in enumerate(records):
        spelled = [packet(*message) for message in messages]
        if encoding == 2:
            spelled = [b"\0\0\0\x09\1\0\0\0\3nabc" + each for each in spelled]
        sender = Sender(connection, 1, client)
        made.append(Record(sender, spelled, START_NS + number, encoding))
    return segment.block(*made)


def test_the_compiled_one_is_tested() -> None:
    """Where it is compiled it is of today's source; the tests below would else compare the twin
    with itself. MOTEMQ_PURE_PYTHON=1 leaves it out."""
    if not selection.COMPILED:
        pytest.fail("the compiled selection is missing: run make setup where there is a compiler")
    from host_broker.net.journal import _selection

    source = Path(selection.__file__).with_name("_selection.pyx").read_bytes()
    assert hashlib.sha256(source).hexdigest() == _selection.SOURCE


@pytest.mark.parametrize("made", [select, python_select])
@settings(max_examples=200)
@given(_BLOCK, st.lists(st.sampled_from([*_TOPICS, "home/*/lamp", "a/*", "x"]), max_size=3))
def test_what_is_wanted_is_left(made: Any, records: Any, topics: list[str]) -> None:
    block = _block(records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "select", made)
        patch.setattr(selection, "_MOST_TOPICS", 2)
        found = Selection(topics).apply(block)
    wanted = TopicFilter(topics)
    assert read_blocks(found) == [
        message for message in read_blocks(block) if wanted.matches(message.topic)
    ]


@settings(max_examples=300)
@given(
    _BLOCK,
    st.lists(st.tuples(st.booleans(), st.integers(0, 900)), max_size=5),
    st.lists(st.tuples(st.integers(32, 400), st.integers(0, 255)), max_size=3),
    st.integers(0, 500),
)
def test_the_twins_agree_on_anything(
    records: Any, stretches: list[tuple[bool, int]], damage: list[tuple[int, int]], cut: int
) -> None:
    block = bytearray(_block(records))
    for at, value in damage:
        block[at % len(block)] = value
    data = bytes(block[: len(block) - cut] if cut % 3 == 0 else block)
    if int.from_bytes(data[32:40], "little") >> 16:  # counts: not gigabytes of columns
        return
    ascending = sorted(stretches, key=lambda stretch: stretch[1])
    answers: list[bytes | str | None] = []
    for made in (select, python_select):
        try:
            answers.append(made(data, [*ascending, (True, len(data))]))
        except ValueError:
            answers.append("refused")
    assert answers[0] == answers[1]


@pytest.mark.parametrize("answer", VECTORS["answers"], ids=lambda answer: str(answer["case"]))
@pytest.mark.parametrize("made", [select, python_select])
def test_golden_answers(made: Any, answer: dict) -> None:
    """Selecting all of a selected block's messages is no change; the numbers are its own."""
    golden = bytes.fromhex(answer["hex"])
    segment = Segment(0, answer["first"])
    records, wanted = [], []
    number = answer["first"]
    for stored in answer["records"]:
        messages = []
        for message in stored["messages"]:
            for left_out in range(number, message["seq"]):
                messages.append(packet("left/out", b"%d" % left_out))
                wanted.append((False, len(messages[-1])))
            body = packet(message["topic"], bytes.fromhex(message["body_hex"]), message["flags"])
            if stored["encoding"] == 2:
                pairs = [(n.encode(), bytes.fromhex(v)) for n, v in message["properties"].items()]
                spelled = b"".join(
                    bytes([len(n)]) + len(v).to_bytes(4, "big") + n + v for n, v in pairs
                )
                body = len(spelled).to_bytes(4, "big") + spelled + body
            messages.append(body)
            wanted.append((True, len(body)))
            number = message["seq"] + 1
        sender = Sender(stored["connection"], stored["protocol"], stored["client"])
        records.append(Record(sender, messages, stored["time_ns"], stored["encoding"]))
    block = segment.block(*records)
    position = len(block) - sum(length for _, length in wanted)
    stretches = []
    for want, length in wanted:
        position += length
        stretches.append((want, position))
    covered = made(block, stretches)
    assert covered is not None
    # But for which segment it is of, which an answer does not say in its body.
    assert covered[:32].hex() == golden[12:44].hex()
    assert covered[36:].hex() == golden[48:].hex()
