"""The whole broker against a naive one: the same bytes for every client, whatever was said."""

from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.bus.publication import pack, unpack
from tests.host_broker.desk import Desk
from tests.host_broker.properties.naive import Block, NaiveBroker
from tests.host_broker.properties.traffic import CUTS, FMQP, HARD_LIMIT, MAX_BODY, cut, mutated

_CLIENTS = 3
_SAID = st.lists(
    st.tuples(st.integers(0, _CLIENTS - 1), st.one_of(FMQP, FMQP, mutated(FMQP)), CUTS),
    max_size=8,
)
_LEAVES = st.lists(st.booleans(), min_size=8, max_size=8)


def _agree(got: bytes, blocks: list[Block]) -> None:
    """The bytes are the blocks, in order; the packets within a block in any."""
    packets = [pack(*each) for each in unpack(got)]
    for block in blocks:
        assert sorted(packets[: len(block)]) == sorted(block)
        del packets[: len(block)]
    assert packets == []


@settings(max_examples=400, deadline=None)
@given(_SAID, _LEAVES)
def test_the_broker_is_the_text(
    said: list[tuple[int, bytes, list[int]]], leaves: list[bool]
) -> None:
    """R4 to R30, R40, R41, R43 to R49: several clients, arbitrary cuts, some leave and return."""
    desk = Desk(bus={"max_body": MAX_BODY}, fmqp={"hard_body_limit": HARD_LIMIT, "signals": "off"})
    naive = NaiveBroker(MAX_BODY, HARD_LIMIT)
    names = [0] * _CLIENTS

    def check() -> None:
        for name in names:
            if name:
                _agree(desk.got(name), naive.got(name))

    def enter(client: int) -> None:
        names[client] = desk.open()
        naive.opened(names[client])

    for client in range(_CLIENTS):
        enter(client)
    for (client, data, places), goes in zip(said, leaves, strict=False):
        for read in cut(data, places):
            desk.send(names[client], read)
            naive.received(names[client], read)
            check()
        if goes or desk.closes:
            gone, names[client] = names[client], 0
            desk.close(gone)
            desk.got(gone)
            naive.closed(gone)
            check()
            enter(client)
            desk.closes.clear()
            check()
