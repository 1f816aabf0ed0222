"""Settings.bus.max_steps_per_s: what one client can make the broker search is bounded."""

from host_broker.bus.publication import pack
from tests.host_broker.desk import Desk

_LIMIT = 12_000
_LEVELS = 2_000  # one search among them is allowed, ten in a second are not


def _desk() -> tuple[Desk, int, int]:
    """Many subscriptions and retained messages; one client that will be no victim."""
    desk = Desk(bus={"max_steps_per_s": _LIMIT})
    other, bad = desk.open(), desk.open()
    for number in range(_LEVELS):
        desk.sub(other, f"x/{number}", debug=True)
        desk.pub(other, f"y/{number}", b"kept", cache=True)
        desk.now += 0.01
    desk.got(other)
    desk.journal()
    return desk, other, bad


def _steps(desk: Desk) -> int:
    return desk.broker._bus.work.steps


def _still_well(desk: Desk, other: int) -> None:
    desk.now += 1
    desk.pub(other, "x/1", b"well")
    assert desk.messages(other)[-1] == (0, "x/1", b"well")


def test_a_read_full_of_wildcard_subscriptions() -> None:
    """R21: each of them asks for everything retained; the answer to all of them is the end."""
    desk, other, bad = _desk()
    before = _steps(desk)
    outputs = desk.send(bad, pack(0xB0, b"*/*", b"") * 10 + pack(0x90, b"*/*", b"") * 30_000)
    assert _steps(desk) - before < _LIMIT + 3 * _LEVELS
    assert [(close.connection, close.abort) for close in outputs.closes] == [(bad, True)]
    reason = outputs.closes[0].reason
    assert reason.startswith("bus.max_steps_per_s: it asked for more than 12000 steps")
    assert bad not in outputs.sends
    desk.close(bad)
    _still_well(desk, other)


def test_endless_different_wildcard_publications() -> None:
    """R11, R14: in one read, none of them in the cache of routes."""
    desk, other, bad = _desk()
    before = _steps(desk)
    read = b"".join(pack(0, b"*/*/%d" % number, b"x") for number in range(5_000))
    desk.sub(other, "a/b/c", debug=True)
    outputs = desk.send(bad, read)
    assert _steps(desk) - before < _LIMIT + 3 * _LEVELS
    assert [close.connection for close in outputs.closes] == [bad]
    assert len(desk.journal()) == 1
    desk.close(bad)
    _still_well(desk, other)


def test_one_search_per_read_without_end() -> None:
    """The limit is per second, so many small reads are one large one."""
    desk, other, bad = _desk()
    before = _steps(desk)
    for number in range(100):
        desk.pub(bad, f"*/*/{number}", b"x")
    assert _steps(desk) - before < _LIMIT + 3 * _LEVELS
    assert [close.connection for close in desk.closes] == [bad]
    _still_well(desk, other)


def test_who_takes_its_time_may_search_for_ever() -> None:
    desk, _, client = _desk()
    for number in range(100):
        desk.sub(client, "y/*", debug=True)
        desk.pub(client, f"x/*/{number}", b"x")
        assert len(desk.messages(client)) == _LEVELS
        desk.now += 1
    assert desk.closes == []


def test_the_wills_of_the_disconnected_are_published() -> None:
    """R25, A17: to all, and its subscriptions' end is told to all."""
    desk, other, bad = _desk()
    desk.sub(other, "mine", feedback=True)
    desk.sub(bad, "mine")
    desk.pub(bad, "x/7", b"bye", will=True)
    desk.messages(other)
    desk.send(bad, b"".join(pack(0, b"*/*/%d" % number, b"x") for number in range(50)))
    desk.close(bad)
    assert desk.messages(other) == [(0x24, "mine", b""), (8, "x/7", b"bye")]


def test_a_stop_publishes_the_wills_of_the_tired() -> None:
    """R36: although nothing is left of what a client may search for."""
    desk, other, client = _desk()
    desk.pub(client, "x/7", b"bye", will=True)
    desk.send(client, pack(0, b"*/*", b"x") + pack(0x90, b"y/*", b""))
    desk.pub(client, "$/signals/stop", b"")
    desk.messages(other)
    desk.done(desk.broker.stop(desk.now))
    assert desk.messages(other) == [(8, "x/7", b"bye")]
