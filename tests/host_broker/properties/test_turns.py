"""What is to be done may be taken after each read or after many: the outcome is the same."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.bus.publication import pack
from host_broker.outputs import Outputs
from tests.host_broker.desk import Desk, Done
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


class _TurnDesk(Desk):
    """Takes what is to be done at the end of a turn, as the edge does."""

    def send(self, connection: int, data: bytes) -> Done:
        self.broker.received(connection, data, self.now)
        return Done(Outputs())


def _outcome(desk: Desk, said: list[tuple[int, bytes, list[int]]], turns: list[bool]) -> Any:
    listeners = [desk.open() for _ in range(3)]
    board = desk.lightmq("board")
    desk.done()
    desk.send(listeners[0], pack(_SUBSCRIBE, b"*", b""))
    desk.send(listeners[1], pack(_SUBSCRIBE, b"a/b", b"") + pack(_SUBSCRIBE, b"a", b""))
    speakers = [desk.open() for _ in range(_SPEAKERS)]
    for number, (speaker, data, places) in enumerate(said):
        for read in cut(data, places):
            desk.send(speakers[speaker], read)
        if turns[number]:
            desk.done()
    desk.done()
    desk.close(speakers[0])
    everybody = (*listeners, board, *speakers)
    stats = desk.broker.stats
    return (
        {connection: desk.got(connection) for connection in everybody},
        _joined(desk.journal()),
        desk.closes,
        desk.discarded,
        stats.publications,
        desk.broker.retained_count,
    )


@settings(max_examples=300, deadline=None)
@given(_SAID, st.lists(st.booleans(), min_size=12, max_size=12))
def test_a_turn_of_many_reads_is_its_reads(
    said: list[tuple[int, bytes, list[int]]], turns: list[bool]
) -> None:
    limits: dict[str, Any] = {
        "bus": {"max_body": MAX_BODY},
        "fmqp": {"hard_body_limit": HARD_LIMIT, "signals": "on"},
    }
    assert _outcome(_TurnDesk(**limits), said, turns) == _outcome(Desk(**limits), said, turns)
