"""Settings.bus.max_held_bytes: what all connections together have us keep for them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from host_broker.bus.publication import pack
from tests.host_broker.desk import Desk
from tests.host_broker.properties.traffic import CUTS, cut

_LIMIT = 250_000
_LONG = pack(0, b"a", bytes(100_000))


def _left(desk: Desk) -> int:
    server: Any = desk.broker._servers["fmqp"]  # visible nowhere else
    return int(server._shared.budget.left)


def test_what_exceeds_it_is_discarded_and_the_connection_goes_on() -> None:
    """R4: the third unfinished packet is skipped; once one is finished there is room."""
    desk = Desk(bus={"max_held_bytes": _LIMIT})
    listener, *clients = (desk.open() for _ in range(5))
    desk.sub(listener, "a")
    for client in clients[:3]:
        desk.send(client, _LONG[:60_000])
        desk.send(client, _LONG[60_000:-1])
    assert desk.discarded == {"bus.max_held_bytes": 1}
    assert _left(desk) == _LIMIT - 2 * (len(_LONG) - 1)
    for client in clients[:3]:
        desk.send(client, _LONG[-1:] + pack(0, b"a", b"next"))
    bodies = [len(body) for *_, body in desk.messages(listener)]
    assert bodies == [100_000, 4, 100_000, 4, 4]
    assert _left(desk) == _LIMIT
    desk.send(clients[2], _LONG[:-1])
    desk.send(clients[2], _LONG[-1:])
    assert len(desk.messages(listener)) == 1
    desk.send(clients[3], _LONG[:-1])
    desk.close(clients[3])
    assert _left(desk) == _LIMIT
    assert desk.closes == []


def test_last_wills_count() -> None:
    """A17: they are kept as long as their connection lasts."""
    desk = Desk(bus={"max_held_bytes": _LIMIT})
    listener, client, other = desk.open(), desk.open(), desk.open()
    desk.sub(listener, "w")
    for sender in (client, client, other):
        desk.pub(sender, "w", bytes(100_000), will=True)
    assert desk.discarded == {"bus.max_held_bytes": 1}
    desk.close(client)
    assert len(desk.messages(listener)) == 2
    desk.pub(other, "w", b"x", will=True)
    desk.close(other)
    assert desk.messages(listener) == [(8, "w", b"x")]
    assert _left(desk) == _LIMIT


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(10_000, 90_000), st.sampled_from([0, 8]), CUTS),
        max_size=8,
    )
)
def test_it_is_all_given_back(said: list[tuple[int, int, int, list[int]]]) -> None:
    """However packets begin, end, are skipped or cut off, nothing stays taken, and at no time is
    more taken than there is."""
    desk = Desk(bus={"max_held_bytes": _LIMIT})
    clients = [desk.open() for _ in range(3)]
    for number, length, flags, places in said:
        packet = pack(flags, b"a", bytes(length))
        for read in cut(packet[:-1] if length % 5 == 0 else packet, places):
            desk.send(clients[number], read)
            assert 0 <= _left(desk) <= _LIMIT
    for client in clients:
        desk.close(client)
    assert _left(desk) == _LIMIT


def test_partial_frames_of_lightmq_count() -> None:
    """Each client may send 64 KiB of a frame that never ends; all of them together may not."""
    limit = 1_000_000
    desk = Desk(bus={"max_held_bytes": limit})
    partial = b"\x05\xff\xff" + bytes(60_000)
    clients = [desk.lightmq(f"board{number}") for number in range(30)]
    for client in clients:
        for start in range(0, len(partial), 10_000):
            if client not in desk.left:
                desk.send(client, partial[start : start + 10_000])
    kept = [client for client in clients if client not in desk.left]
    assert 10 < len(kept) <= limit // 60_000
    assert all("bus.max_held_bytes" in close.reason for close in desk.closes)
    for client in clients:
        desk.close(client)
    assert _left(desk) == limit
