"""Reads that are gathered do what they would have done one by one, wherever it is taken."""

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from host_broker.bus.publication import pack, unpack_one
from host_broker.outputs import Outputs
from host_broker.protocols.fmqp.codec import Codec
from host_broker.protocols.fmqp.events import Publications
from tests.host_broker.desk import Desk
from tests.host_broker.properties.test_cuts import _joined
from tests.host_broker.properties.traffic import CUTS, FMQP, HARD_LIMIT, MAX_BODY, cut

_SPEAKERS = 3
_SUBSCRIBE = 0x80
_PLAIN = st.lists(
    st.builds(
        pack,
        st.just(0),
        st.sampled_from([b"a", b"a", b"b", b"a/b", b"lightmq/board/down"]),
        st.binary(min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=6,
).map(b"".join)
_SAID = st.lists(
    st.tuples(st.integers(0, _SPEAKERS - 1), st.one_of(_PLAIN, _PLAIN, _PLAIN, FMQP), CUTS),
    max_size=12,
)


class _GatheringDesk(Desk):
    """Runs reads as the edge does within a turn of its event loop."""

    def __init__(self, limits: dict[str, Any]) -> None:
        super().__init__(fmqp=limits)
        self._speakers: list[int] = []

    def send(self, connection: int, data: bytes) -> Outputs:
        self._speakers.append(connection)
        outputs = self.broker.gather(connection, data, self.now)
        if outputs is None:
            return Outputs()
        self.take()
        return self.done(outputs)

    def take(self) -> int:
        """Do what was gathered; returns how many forwards it was."""
        gathered = self.broker.gathered()
        if gathered is None:
            return 0
        self.records += gathered.records
        for forward in gathered.forwards:
            assert forward.receivers
            assert forward.buffers
            assert set(forward.senders) <= set(self._speakers)
            for receiver in forward.receivers:
                for buffer in forward.buffers:
                    self.sent[receiver] += buffer
        self._speakers.clear()
        return len(gathered.forwards)


def _outcome(desk: Desk, said: list[tuple[int, bytes, list[int]]], taken: list[bool]) -> Any:
    take = desk.take if isinstance(desk, _GatheringDesk) else lambda: 0
    listeners = [desk.open() for _ in range(3)]
    board = desk.lightmq("board")
    desk.send(listeners[0], pack(_SUBSCRIBE, b"*", b""))
    desk.send(listeners[1], pack(_SUBSCRIBE, b"a/b", b"") + pack(_SUBSCRIBE, b"a", b""))
    speakers = [desk.open() for _ in range(_SPEAKERS)]
    for number, (speaker, data, places) in enumerate(said):
        for read in cut(data, places):
            desk.send(speakers[speaker], read)
        if taken[number]:
            take()
    take()
    desk.close(speakers[0])
    everybody = (*listeners, board, *speakers)
    stats = desk.broker.stats
    return (
        {connection: desk.got(connection) for connection in everybody},
        _joined(desk.journal()),
        desk.closes,
        stats.discarded,
        stats.publications,
        desk.broker.retained_count,
    )


@given(FMQP, _PLAIN, CUTS)
def test_a_read_taken_whole_is_one_plain_publication(
    data: bytes, plain: bytes, places: list[int]
) -> None:
    """Whatever came before: the shortcut of the codec gives what the codec gives."""
    short, long = (Codec("broker", MAX_BODY, HARD_LIMIT) for _ in range(2))
    for codec in (short, long):
        for topic in (b"a", b"b", b"a/b"):
            codec.receive_data(pack(0, topic, b"known"))
    taken = 0
    for read in cut(data, places) + cut(plain, [7 + plain[1] + plain[5]]):
        topic = short.only(read)
        if topic is None:
            assert short.receive_data(read) == long.receive_data(read)
            continue
        taken += 1
        assert long.receive_data(read) == [Publications(read, 0, len(read), 1, {topic})]
        assert unpack_one(read)[:2] == (0, topic)
    event("taken" if taken else "not taken")


@settings(max_examples=300, deadline=None)
@given(_SAID, st.lists(st.booleans(), min_size=12, max_size=12))
def test_gathered_reads_are_reads(
    said: list[tuple[int, bytes, list[int]]], taken: list[bool]
) -> None:
    limits = {"max_body": MAX_BODY, "hard_body_limit": HARD_LIMIT, "signals": "on"}
    assert _outcome(_GatheringDesk(limits), said, taken) == _outcome(Desk(fmqp=limits), said, taken)
