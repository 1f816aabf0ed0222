"""MicroMsg2 in a whole broker: whatever one client says, and however it is cut."""

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.protocols.micromsg2.codec import (
    Codec,
    spell_command_frame,
    spell_error,
    spell_extension,
    spell_handshake,
    spell_message,
)
from host_broker.protocols.micromsg2.events import Handshake
from host_broker.protocols.micromsg2.grammar import read_extensions
from tests.host_broker.desk import Desk
from tests.host_broker.protocols.micromsg2.peer import Peer, micromsg2_desk, payloads

_LISTS = st.sampled_from(
    ["pubsub;batch-ack:max-count=2", "ack;pubsub", "pubsub", "json;dotnet;pub-sub", "x-nope", ""]
)
_HANDSHAKES = st.builds(
    lambda required: spell_handshake(Handshake(1, 0, "me", read_extensions(required.encode()))) * 2,
    _LISTS,
)
_DESTINATIONS = st.sampled_from([b"topic/a", b"topic/a", b"topic/*", b"jobs", b"jobs", b"$", b""])
_MESSAGES = st.builds(
    spell_message,
    st.integers(0, 6),
    _DESTINATIONS,
    st.sampled_from([b"", b"", b"n:N1", b"n:N2;t:Tx;", b"n"]),
    st.sampled_from([b"1", b"{}", b"", b"x" * 300]),
    st.booleans(),
)
_COMMANDS = st.builds(
    lambda verb, destination, filters: spell_command_frame(
        verb, [("destination", destination), *(("filter", each) for each in filters)]
    ),
    st.sampled_from(["subscribe", "subscribe", "unsubscribe", "dance"]),
    _DESTINATIONS,
    st.lists(st.sampled_from([b"n=N1", b"n>N1", b"t&Tx", b"n"]), max_size=1),
)
_ACKS = st.builds(
    spell_extension,
    st.integers(1, 3),
    st.one_of(st.integers(0, 9).map(lambda number: number.to_bytes(2, "big")), st.just(b"A, B")),
)
_FRAMES = st.one_of(_MESSAGES, _MESSAGES, _COMMANDS, _COMMANDS, _ACKS, st.just(spell_error("x")))
_CUTS = st.lists(st.integers(0, 10_000), max_size=20)


@st.composite
def _traffic(draw: st.DrawFn) -> bytes:
    """A handshake and frames, or nearly so."""
    data = bytearray(draw(_HANDSHAKES) + b"".join(draw(st.lists(_FRAMES, max_size=12))))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        place = draw(st.integers(0, len(data) - 1))
        data[place] = draw(st.integers(0, 255))
    return bytes(data)


def _cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


def _heard(desk: Desk, connection: int) -> list[Any]:
    """All that a client was told but for acks, which come once a read."""
    events = Codec("client").receive_data(desk.got(connection))
    return [event for event in events if type(event).__name__ != "ExtensionFrame"]


def _outcome(reads: list[bytes]) -> Any:
    """What everybody gets when one client says this, and what is kept of it."""
    desk = micromsg2_desk()
    reader = Peer(desk)
    reader.subscribe("topic/*")
    fmqp = desk.open()
    desk.sub(fmqp, "a")
    speaker = desk.open("micromsg2")
    for read in reads:
        desk.send(speaker, read)
    told = _heard(desk, speaker)
    if not desk.closes:
        desk.close(speaker)
    else:
        desk.broker.closed(speaker, desk.now)
        desk.done()
    consumer = Peer(desk)
    queued = consumer.subscribe("jobs")
    journal = [
        (each.connection, each.client, each.encoding, bytes(each.body)) for each in desk.records
    ]
    return told, reader.heard(), desk.messages(fmqp), queued, journal, desk.closes, desk.discarded


def _joined(outcome: Any) -> Any:
    """Consecutive records of one client are one, however many reads they came in."""
    told, *others = outcome
    joined: list[list[Any]] = []
    for connection, client, encoding, body in others[3]:
        if joined and joined[-1][:3] == [connection, client, encoding] and encoding == 1:
            joined[-1][3] += body
        else:
            joined.append([connection, client, encoding, body])
    others[3] = joined
    return told, others


@settings(max_examples=200, deadline=None)
@given(_traffic(), _CUTS)
def test_any_cuts_have_the_same_outcome(data: bytes, places: list[int]) -> None:
    """R18: what others get, what is kept, why it is closed."""
    assert _joined(_outcome(_cut(data, places))) == _joined(_outcome([data]))


@settings(max_examples=200, deadline=None)
@given(st.one_of(_traffic(), st.binary(max_size=200)), _CUTS)
def test_nobody_is_harmed(data: bytes, places: list[int]) -> None:
    """Nothing is raised, nobody else is disconnected, and all memory comes back."""
    desk = micromsg2_desk()
    free = desk.broker._held_memory.left
    bystander, writer = Peer(desk), Peer(desk)
    bystander.subscribe("topic/quiet/corner")
    bad = desk.open("micromsg2")
    for read in _cut(data, places):
        desk.send(bad, read)
        desk.advance(0.5)
    desk.advance(100.0)
    assert {close.connection for close in desk.closes} <= {bad}
    desk.close(bad)
    assert desk.broker._held_memory.left == free
    bystander.heard()
    writer.publish("topic/quiet/corner", b"still here")
    assert payloads(bystander.heard()) == [b"still here"]
