"""What many reads have for the same receivers is forwarded together."""

import pytest

from host_broker.broker import Broker
from host_broker.bus.publication import pack
from host_broker.protocols.fmqp.spelling import encode_publication
from host_broker.settings import FmqpSettings, Settings
from tests.host_broker.desk import Desk

NOW = 1.0
SUBSCRIBE = 0x80


def _broker(publishers: int, journalled: bool = True) -> Broker:
    """A broker with subscriber 1 to ``home/*``, publishers from 2 on, and one route known."""
    broker = Broker(Settings(), journalled=journalled)
    for connection in range(1, publishers + 2):
        broker.opened(connection, "fmqp", NOW)
    broker.received(1, pack(SUBSCRIBE, b"home/*", b""), NOW)
    for connection in range(2, publishers + 2):
        broker.received(connection, pack(0, b"home/%d" % connection, b"first"), NOW)
    return broker


def test_a_hundred_reads_of_one_frame_are_one_forward() -> None:
    broker = _broker(100)
    frames = [pack(0, b"home/%d" % connection, b"21.5") for connection in range(2, 102)]
    for connection, frame in enumerate(frames, 2):
        assert broker.gather(connection, frame, NOW) is None
    gathered = broker.gathered()
    assert gathered is not None
    (forward,) = gathered.forwards
    assert forward.receivers == (1,)
    assert forward.buffers == frames
    assert forward.senders == list(range(2, 102))
    assert [(record.connection, record.body) for record in gathered.records] == list(
        enumerate(frames, 2)
    )
    assert broker.gathered() is None


def test_a_read_that_is_not_plain_comes_after_what_was_gathered() -> None:
    broker = _broker(2)
    plain = pack(0, b"home/2", b"x")
    assert broker.gather(2, plain, NOW) is None
    outputs = broker.gather(2, pack(0x04, b"home/2", b"kept"), NOW)
    assert outputs is not None
    assert outputs.sends == {1: [pack(0x04, b"home/2", b"kept")]}
    gathered = broker.gathered()
    assert gathered is not None
    assert gathered.forwards[0].buffers == [plain]


def test_a_long_read_is_not_copied_and_a_short_part_does_not_keep_one() -> None:
    broker = _broker(1)
    run = pack(0, b"home/2", bytes(1024)) * 9
    begun = pack(0, b"home/2", bytes(1024))
    assert broker.gather(2, run + begun[:-1], NOW) is None
    assert broker.gather(2, begun[-1:] + begun + bytes(3), NOW) is None
    gathered = broker.gathered()
    assert gathered is not None
    (forward,) = gathered.forwards
    assert [type(buffer) for buffer in forward.buffers] == [memoryview, bytes, memoryview]
    assert b"".join(forward.buffers) == run + begun * 2


def test_nothing_is_recorded_for_an_edge_without_a_journal() -> None:
    broker = _broker(1, journalled=False)
    assert broker.received(2, pack(0x04, b"home/2", b"kept"), NOW).records == []
    assert broker.gather(2, pack(0, b"home/2", b"x"), NOW) is None
    gathered = broker.gathered()
    assert gathered is not None
    assert gathered.records == []
    assert broker.stats.publications == 3


def test_a_read_without_a_listener_is_recorded() -> None:
    broker = Broker(Settings())
    broker.opened(1, "fmqp", NOW)
    frame = pack(0, b"nobody", b"x")
    assert broker.received(1, frame, NOW).records != []
    assert broker.gather(1, frame, NOW) is None
    gathered = broker.gathered()
    assert gathered is not None
    assert (gathered.forwards, [record.body for record in gathered.records]) == ([], [frame])


def test_a_read_is_taken_directly_if_its_way_is_known() -> None:
    broker = _broker(2, journalled=False)
    frame = pack(0, b"home/2", b"21.5")
    group = broker.direct(2, frame)
    assert group is not None
    assert group.verbatim == (1,)
    assert broker.direct(3, frame) is not None  # whoever says it
    assert broker.stats.publications == 4
    routes = broker.routes
    broker.received(3, pack(SUBSCRIBE, b"home/2", b""), NOW)
    assert broker.routes != routes
    assert broker.direct(2, frame) is None
    broker.received(2, frame, NOW)
    group = broker.direct(2, frame)
    assert group is not None
    assert group.verbatim == (1, 3)


_TOO_LONG = b"\0\x01" + b"\xff" * 4 + b"a"  # above fmqp.hard_body_limit: it is disconnected


@pytest.mark.parametrize("end", ["closed", "closing", "ending"])
def test_nothing_is_taken_directly_of_who_is_no_longer_heard(end: str) -> None:
    broker = _broker(2, journalled=False)
    frame = pack(0, b"home/2", b"21.5")
    assert broker.direct(2, frame) is not None
    if end == "closed":
        broker.closed(2, NOW)
    elif end == "closing":
        assert broker.received(2, _TOO_LONG, NOW).closes
    else:
        broker.stopping()
    assert broker.direct(2, frame) is None


def test_a_will_while_the_broker_is_ending_lets_nobody_be_heard() -> None:
    """R34; a will is routed, so the broker knows again who gets its topic."""
    broker = _broker(2, journalled=False)
    frame = pack(0, b"home/2", b"21.5")
    will = encode_publication("home/2", b"gone", will=True)
    broker.received(3, will, NOW)
    broker.stopping()
    assert broker.closed(3, NOW).sends == {1: [will]}
    routes = broker.routes
    assert broker.direct(2, frame) is None
    assert broker.received(2, frame, NOW).sends == {}
    assert broker.routes == routes


def test_who_is_disconnected_for_too_much_work_is_not_heard() -> None:
    broker = Broker(Settings(fmqp=FmqpSettings(max_steps_per_s=200)), journalled=False)
    for connection in (1, 2):
        broker.opened(connection, "fmqp", NOW)
    many = b"".join(pack(SUBSCRIBE, b"a/%d" % number, b"") for number in range(20))
    broker.received(1, many, NOW)
    frame = pack(0, b"a/1", b"x")
    broker.received(2, frame, NOW)
    assert broker.direct(2, frame) is not None
    wild = b"".join(pack(0, b"*/%d" % number, b"x") for number in range(200))
    assert broker.received(2, wild, NOW).closes
    assert broker.direct(2, frame) is None


def test_what_must_be_translated_is_not_taken_directly() -> None:
    desk = Desk()
    board = desk.lightmq("board")
    speaker = desk.open()
    frame = pack(0, b"lightmq/board/down", b"x")
    for _ in range(2):
        assert desk.broker.direct(speaker, frame) is None
        desk.send(speaker, frame)
    assert desk.got(board).count(b"x") == 2
