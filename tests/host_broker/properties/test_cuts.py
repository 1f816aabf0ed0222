"""The law: same bytes, any cuts, same events, same deliveries, same records."""

from dataclasses import replace
from itertools import chain
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from host_broker.bus.publication import Run, pack
from host_broker.protocols.fmqp.codec import Codec as FmqpCodec
from host_broker.protocols.fmqp.events import Publication, publications
from host_broker.protocols.lightmq.codec import Codec as LightmqCodec
from host_broker.protocols.lightmq.events import Send
from host_broker.wire.violation import Violation
from tests.host_broker.desk import Desk, Message, packets
from tests.host_broker.properties.traffic import (
    CARRIED,
    CUTS,
    FMQP,
    HARD_LIMIT,
    LIGHTMQ,
    MAX_BODY,
    carried,
    cut,
)

_BOARD, _SPEAKER = 4, 5
_Journal = list[tuple[int, int, str, list[Message]]]


def _fmqp_events(reads: list[bytes], role: Any) -> list[Any]:
    codec = FmqpCodec(role, MAX_BODY, HARD_LIMIT)
    found: list[Any] = []
    for read in reads:
        for event in codec.receive_data(read):
            if isinstance(event, Run):
                found += publications(event)
            elif isinstance(event, Publication):
                found += [replace(event, count=1)] * event.count
            elif isinstance(event, Violation):
                _gather(found, event)
            else:
                found.append(event)
    return found


def _gather(found: list[Any], violation: Violation) -> None:
    """Add a violation to an equal one right before it: reads may end between them."""
    last = found[-1] if found else None
    if isinstance(last, Violation) and last.rule == violation.rule:
        last.count += violation.count
    else:
        found.append(replace(violation, distinct=1))


@given(FMQP, CUTS, st.sampled_from(["broker", "client"]))
def test_fmqp_events(data: bytes, places: list[int], role: str) -> None:
    whole = _fmqp_events([data], role)
    assert _fmqp_events(cut(data, places), role) == whole
    assert _fmqp_events([bytes([byte]) for byte in data], role) == whole


@given(st.one_of(LIGHTMQ, st.binary(max_size=40)), CUTS, st.sampled_from(["server", "client"]))
def test_lightmq_events(data: bytes, places: list[int], role: Any) -> None:
    def events(reads: list[bytes]) -> list[Any]:
        codec = LightmqCodec(role)
        return [event for read in reads for event in codec.receive_data(read)]

    whole = events([data])
    assert events(cut(data, places)) == whole
    assert events([bytes([byte]) for byte in data]) == whole


def _joined(journal: _Journal) -> dict[tuple[int, int, str], list[Message]]:
    """Records of one source, one after the other, however many there were."""
    joined: dict[tuple[int, int, str], list[Message]] = {}
    for *source, messages in journal:
        joined.setdefault((source[0], source[1], source[2]), []).extend(messages)
    return joined


def _outcome(reads: list[bytes], protocol: str, max_body: int = MAX_BODY) -> Any:
    """What everybody gets when one client says this: itself, listeners of both protocols."""
    desk = Desk(bus={"max_body": max_body}, fmqp={"hard_body_limit": HARD_LIMIT})
    listeners = [desk.open() for _ in range(3)]
    desk.send(listeners[0], pack(0x80, b"*", b"") + pack(0xA0, b"a", b""))
    desk.send(listeners[1], pack(0x80, b"a/b", b"") + pack(0x80, b"a", b""))
    desk.send(listeners[2], pack(0x80, b"*/*/*", b"") + pack(0x90, b"b", b""))
    board = desk.lightmq("board")
    speaker = desk.open(protocol)
    assert (board, speaker) == (_BOARD, _SPEAKER)
    for read in reads:
        desk.send(speaker, read)
    desk.close(speaker)
    late = desk.open()
    for depth in range(1, 4):
        desk.sub(late, "/".join("*" * depth))
        desk.sub(late, "/".join("*" * depth), feedback=True)
    got = {connection: desk.got(connection) for connection in (*listeners, board, speaker, late)}
    stats = desk.broker.stats
    return got, _joined(desk.journal()), desk.closes, desk.discarded, stats.publications


@settings(max_examples=300)
@given(FMQP, CUTS)
def test_fmqp_deliveries_and_records(data: bytes, places: list[int]) -> None:
    """R51: any stream in order will do, however it cuts."""
    assert _outcome(cut(data, places), "fmqp") == _outcome([data], "fmqp")


@given(LIGHTMQ, CUTS)
def test_lightmq_deliveries_and_records(data: bytes, places: list[int]) -> None:
    assert _outcome(cut(data, places), "lightmq") == _outcome([data], "lightmq")


@settings(max_examples=300)
@given(CARRIED, CUTS)
@example(
    # A subscription to what is retained, and in the same read a body beyond the hard limit.
    carried(
        pack(0xA0, b"a", b""),
        [],
        [LightmqCodec("client").ping(0), LightmqCodec("client").send(0, b"\0\0\0\x80\0\0\1")],
    ),
    list(range(100)),
)
def test_carried_deliveries_and_records(data: bytes, places: list[int]) -> None:
    """However TCP cuts the SENDs."""
    assert _outcome(cut(data, places), "lightmq+fmqp") == _outcome([data], "lightmq+fmqp")


@settings(max_examples=300)
@given(FMQP, CUTS)
@example(pack(0, b"*/*/*", b"\0"), [])  # lightmq/board/down, too
def test_carried_is_the_same_as_not_carried(data: bytes, places: list[int]) -> None:
    """However SENDs cut the stream: what others get, what is discarded, why it is closed."""
    got, journal, *counts = _outcome([data], "fmqp")
    inside, recorded, *same = _outcome([carried(data, places)], "lightmq+fmqp")
    assert same == counts
    events = LightmqCodec("client").receive_data(inside[_SPEAKER])
    inside[_SPEAKER] = b"".join(event.data for event in events if isinstance(event, Send))
    assert {who: _nameless(packets(said)) for who, said in inside.items() if who != _BOARD} == {
        who: _nameless(packets(said)) for who, said in got.items() if who != _BOARD
    }
    assert _without_ids(inside[_BOARD]) == _without_ids(got[_BOARD])
    assert _nameless(list(chain(*recorded.values()))) == list(chain(*journal.values()))


def _nameless(messages: list[Message]) -> list[Message]:
    """Without the presence of the carried client: the other has no name."""
    return [message for message in messages if message[1] != "lightmq/carried/status"]


def _without_ids(said: bytes) -> list[Any]:
    """What a LightMQ client is told; ids are drawn at random, one for the carried client first."""
    events = LightmqCodec("client").receive_data(said)
    return [replace(event, id=0) if isinstance(event, Send) else event for event in events]


@given(FMQP)
def test_the_fast_path_is_the_slow_path(data: bytes) -> None:
    """Byte by byte every packet stands alone, so nothing is batched; the outcome is the same."""
    assert _outcome([bytes([byte]) for byte in data], "fmqp") == _outcome([data], "fmqp")
