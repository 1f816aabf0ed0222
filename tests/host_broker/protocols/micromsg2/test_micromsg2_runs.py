"""Message frames that are alike, taken and said as one: what they mean is the same."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_broker.bus.publication import pack, pack_many
from host_broker.protocols.micromsg2.codec import (
    MAX_FRAGMENT,
    Codec,
    spell_handshake,
    spell_message,
    spell_messages,
)
from host_broker.protocols.micromsg2.events import Handshake, MessageFrame, MessageRun
from host_broker.protocols.micromsg2.negotiation import Acks
from host_broker.protocols.micromsg2.outgoing import Outgoing
from host_broker.protocols.micromsg2.windows import ReceiveWindow, SendWindow
from host_broker.wire.budget import Budget
from tests.host_broker.protocols.micromsg2.peer import Peer, micromsg2_desk, payloads

_DESTINATIONS = st.sampled_from([b"", b"q", b"q", b"topic/a", b"topic/ab"])
_PAYLOADS = st.sampled_from([b"", b"1", b"12", b"x" * 255, b"x" * 256])


@st.composite
def _frames(draw: st.DrawFn) -> bytes:
    """Frames that are often alike, numbered one by one for the most part, and perhaps damaged."""
    number = draw(st.sampled_from([1, 7, 65_530]))
    frames = []
    for _ in range(draw(st.integers(0, 12))):
        properties = draw(st.sampled_from([b"", b"", b"", b"n:N1"]))
        continued = draw(st.sampled_from([False, False, False, True]))
        destination, payload = draw(_DESTINATIONS), draw(_PAYLOADS)
        frames.append(spell_message(number, destination, properties, payload, continued))
        number = draw(st.sampled_from([number % 65_535 + 1] * 5 + [number, 9]))
    data = bytearray(b"".join(frames))
    if data and draw(st.booleans()):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


def _read(data: bytes, places: list[int], *, runs: bool) -> list[Any]:
    codec = Codec("server", 300, runs=runs)
    codec.receive_data(spell_handshake(Handshake(1, 0, "")) * 2)
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    events: list[Any] = []
    for start, end in pairwise(edges):
        for event in codec.receive_data(data[start:end]):
            if type(event) is MessageRun:
                assert len(event.payloads) > 1
                events += event.each()
            else:
                events.append(event)
    return events


@given(_frames(), st.lists(st.integers(0, 5000), max_size=5))
def test_a_run_is_what_its_frames_are(data: bytes, places: list[int]) -> None:
    """R17, R22: however it is cut, also where numbers wrap."""
    assert _read(data, places, runs=True) == _read(data, [], runs=False)


def test_a_read_of_messages_that_are_alike_is_one_event() -> None:
    codec = Codec("server", runs=True)
    codec.receive_data(spell_handshake(Handshake(1, 0, "")) * 2)
    bodies = [b"%d" % number for number in range(1, 100)]
    data = spell_messages(65_500, b"topic/a", bodies)
    assert codec.receive_data(data + b"\0") == [MessageRun(65_500, b"topic/a", bodies)]
    one = spell_message(1, b"q", b"", b"x")[1:]
    assert codec.receive_data(one) == [MessageFrame(1, b"q", b"", b"x")]


@given(st.integers(1, 65_535), _DESTINATIONS, st.lists(_PAYLOADS, max_size=9))
def test_what_is_said_as_one_is_what_is_said_singly(
    first: int, destination: bytes, bodies: list[bytes]
) -> None:
    """R18, R22."""
    singly = [
        spell_message((first + position - 1) % 65_535 + 1, destination, b"", payload)
        for position, payload in enumerate(bodies)
    ]
    assert spell_messages(first, destination, bodies) == b"".join(singly)
    with pytest.raises(ValueError, match="255 bytes"):
        spell_messages(first, bytes(256), bodies)


@given(st.lists(st.one_of(st.integers(1, 5), st.integers(-3, -1)), max_size=30))
def test_windows_count_many_as_singly(steps: list[int]) -> None:
    """R26, R29: positive: so many frames at once; negative: an ack that leaves so many."""
    acks = Acks(1, 7)
    many, singly = SendWindow[int | None](acks, 65_530), SendWindow[int | None](acks, 65_530)
    takes_many, takes_singly = ReceiveWindow(acks), ReceiveWindow(acks)
    takes_many.receive(65_530, 0.0)
    takes_singly.receive(65_530, 0.0)
    last = 65_530
    for step in steps:
        if step < 0:
            number = (last + step) % 65_535 + 1
            assert many.acknowledge(number) == singly.acknowledge(number)
        elif step <= singly.room:
            numbers = [singly.send(step) for _ in range(step)]
            assert many.send_many([step] * step) == numbers[0]
            last = numbers[-1]
            assert takes_many.receive_many(numbers[0], step, 1.0)
            assert all(takes_singly.receive(number, 1.0) for number in numbers)
        else:
            with pytest.raises(ValueError, match="no more may be sent"):
                many.send_many([None] * step)
        assert many.room == singly.room
        assert many.outstanding == singly.outstanding
    assert takes_many.deadline == takes_singly.deadline
    assert takes_many.take_early() == takes_singly.take_early()
    assert takes_many.receive(last, 2.0) == takes_singly.receive(last, 2.0)


def test_a_run_that_was_sent_before_is_looked_at_singly() -> None:
    """A14: what is there twice is no message twice, but acknowledged again."""
    window = ReceiveWindow(Acks(1, 10))
    assert window.receive(1, 0.0)
    assert window.receive_many(2, 4, 0.0)
    assert not window.receive_many(1, 5, 0.0)
    assert not window.receive_many(7, 2, 0.0)
    assert ReceiveWindow(None).receive_many(7, 2, 0.0)
    desk = micromsg2_desk()
    reader, writer = Peer(desk), Peer(desk, "batch-ack")
    reader.subscribe("topic/t")
    frames = spell_messages(1, b"topic/t", [b"1", b"2", b"3"])
    assert writer.acked(writer.say(frames)) == [3]
    more = spell_messages(4, b"topic/t", [b"4", b"5"])
    assert writer.acked(writer.say(frames + more)) == [5]
    assert payloads(reader.heard()) == [b"1", b"2", b"3", b"4", b"5"]
    assert sum(record.count for record in desk.records) == 5


def test_what_has_to_wait_is_not_said_at_once() -> None:
    """R26: nor what is too long for one frame, or for a frame at all."""
    outgoing = Outgoing(Acks(1, 3), None, 1 << 20, Budget(1 << 20))
    assert outgoing.at_once(b"q", [b"x"] * 4) is None
    assert outgoing.at_once(b"q", [bytes(MAX_FRAGMENT + 1)]) is None
    assert outgoing.at_once(bytes(256), [b"x"]) is None
    assert outgoing.at_once(b"q", [b"x"] * 3) == spell_messages(1, b"q", [b"x"] * 3)
    assert outgoing.at_once(b"q", [b"x"]) is None


@pytest.mark.parametrize("required", ["", "batch-ack", "json", "dotnet", "json;batch-ack"])
def test_many_at_once_do_what_they_do_singly(required: str) -> None:
    """R31: whatever was agreed on, for topics and queues."""
    outcomes = []
    for cut in (False, True):
        desk = micromsg2_desk()
        reader, fmqp = Peer(desk), desk.open()
        reader.subscribe("topic/t")
        reader.subscribe("jobs")
        desk.sub(fmqp, "t")
        writer = Peer(desk, required)
        for destination in (b"topic/t", b"jobs"):
            first = writer.sequence + 1
            bodies = [b"%d" % number for number in range(20)]
            writer.sequence += 20
            data = spell_messages(first, destination, bodies)
            pieces = [data[at : at + 7] for at in range(0, len(data), 7)] if cut else [data]
            for piece in pieces:
                writer.say(piece)
        told = [(each.destination, each.payload) for each in reader.heard()]
        outcomes.append((told, desk.messages(fmqp), sum(each.count for each in desk.records)))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][2] == 40
    assert len(outcomes[0][0]) == 40


def test_publications_are_packed_as_singly() -> None:
    bodies = [b"1", b"22", b"3"]
    assert pack_many(b"t", bodies) == b"".join(pack(0, b"t", body) for body in bodies)
    assert pack_many(b"t", []) == b""
