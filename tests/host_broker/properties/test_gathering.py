"""Reads that are gathered do what they would have done one by one, wherever it is taken."""

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from host_broker.bus.publication import pack, unpack_one
from host_broker.outputs import Outputs
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


class _DirectDesk(Desk):
    """Takes reads as an edge does that passes on at once, and by itself what it has learned."""

    def __init__(self, limits: dict[str, Any], alone: bool) -> None:
        super().__init__(fmqp=limits)
        self.taken = 0
        self._alone = alone
        self._routes = -1
        self._known: dict[bytes, tuple[int, ...]] = {}
        self._ready: set[int] = set()  # whose reads were all taken directly since one was

    def send(self, connection: int, data: bytes) -> Outputs:
        if self._routes != self.broker.routes:
            self._routes = self.broker.routes
            self._known.clear()
        topic = _topic_of_one(data)
        if self._alone and connection in self._ready and topic in self._known:
            self.broker.passed(connection, 1, len(data))
            return self._pass_on(self._known[topic], data)
        group = self.broker.direct(connection, data)
        if group is None:
            self._ready.discard(connection)
            return super().send(connection, data)
        assert topic
        self._known[topic] = group.verbatim
        self._ready.add(connection)
        return self._pass_on(group.verbatim, data)

    def _pass_on(self, receivers: tuple[int, ...], data: bytes) -> Outputs:
        self.taken += 1
        for receiver in receivers:
            self.sent[receiver] += data
        return Outputs()


def _topic_of_one(data: bytes) -> bytes:
    """Return the topic, if this is one plain publication."""
    if len(data) > MAX_BODY + 300 or data[:1] != b"\0":
        return b""
    try:
        _, topic, body = unpack_one(data)
    except ValueError:
        return b""
    return topic if 0 < len(body) <= MAX_BODY else b""


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


@settings(max_examples=300, deadline=None)
@given(_SAID, st.lists(st.booleans(), min_size=12, max_size=12))
def test_gathered_reads_are_reads(
    said: list[tuple[int, bytes, list[int]]], taken: list[bool]
) -> None:
    limits = {"max_body": MAX_BODY, "hard_body_limit": HARD_LIMIT, "signals": "on"}
    assert _outcome(_GatheringDesk(limits), said, taken) == _outcome(Desk(fmqp=limits), said, taken)


def _heard(desk: Desk, said: list[tuple[int, bytes, list[int]]]) -> Any:
    listeners = [desk.open() for _ in range(2)]
    desk.send(listeners[0], pack(_SUBSCRIBE, b"*", b"") + pack(_SUBSCRIBE, b"a/b", b""))
    desk.send(listeners[1], pack(_SUBSCRIBE, _SECOND, b"") + pack(_SUBSCRIBE, b"a", b""))
    speakers = [desk.open() for _ in range(_SPEAKERS)]
    for speaker, data, places in said:
        for read in cut(data, places):
            desk.send(speakers[speaker], read)
    desk.now += 1.0
    desk.done(desk.broker.tick(desk.now))
    stats = desk.broker.stats
    return (
        {connection: desk.got(connection) for connection in (*listeners, *speakers)},
        desk.closes,
        stats.discarded,
        stats.publications,
        desk.broker.retained_count,
    )


_SECOND = b"$/info/messages/second"
_ONE = st.builds(
    pack, st.just(0), st.sampled_from([b"a", b"b", b"a/b"]), st.binary(min_size=1, max_size=4)
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, _SPEAKERS - 1), _ONE, st.just([])),
            st.tuples(st.integers(0, _SPEAKERS - 1), st.one_of(_ONE, _PLAIN, FMQP), CUTS),
        ),
        max_size=20,
    ),
    st.booleans(),
)
def test_reads_taken_directly_are_reads(
    said: list[tuple[int, bytes, list[int]]], alone: bool
) -> None:
    limits = {"max_body": MAX_BODY, "hard_body_limit": HARD_LIMIT}
    direct = _DirectDesk(limits, alone)
    assert _heard(direct, said) == _heard(Desk(fmqp=limits), said)
    event(f"alone {alone}, " + ("taken" if direct.taken else "not taken"))
