"""What many reads of one turn have for the same receivers is forwarded together."""

from host_broker.broker import Broker
from host_broker.bus.publication import pack
from host_broker.protocols.fmqp.spelling import encode_publication
from host_broker.settings import BusSettings, Settings
from tests.host_broker.desk import Done

NOW = 1.0
SUBSCRIBE = 0x80


def _broker(publishers: int, journalled: bool = True) -> Broker:
    """A broker with subscriber 1 to ``home/*``, and publishers from 2 on."""
    broker = Broker(Settings(), journalled=journalled)
    for connection in range(1, publishers + 2):
        broker.opened(connection, "fmqp", NOW)
    broker.received(1, pack(SUBSCRIBE, b"home/*", b""), NOW)
    broker.take()
    return broker


def test_a_hundred_reads_of_one_frame_are_one_forward() -> None:
    broker = _broker(100)
    frames = [pack(0, b"home/%d" % connection, b"21.5") for connection in range(2, 102)]
    for connection, frame in enumerate(frames, 2):
        broker.received(connection, frame, NOW)
    outputs = broker.take()
    (forward,) = outputs.forwards
    assert forward.receivers == (1,)
    assert forward.buffers == frames
    assert forward.senders == list(range(2, 102))
    assert [(record.connection, record.body) for record in outputs.records] == list(
        enumerate(frames, 2)
    )
    assert outputs.extra is None  # nothing but publications: the edge looks for no more
    assert broker.take().forwards == []


def test_order_is_kept_among_all_kinds_of_publications() -> None:
    broker = _broker(2)
    plain, kept = pack(0, b"home/2", b"x"), pack(0x04, b"home/2", b"kept")
    broker.received(2, plain, NOW)
    broker.received(3, kept, NOW)
    broker.received(2, plain + kept + plain, NOW)
    outputs = broker.take()
    sent = b"".join(Done(outputs).sends[1])
    assert sent == plain + kept + plain + kept + plain
    assert b"".join(bytes(record.body) for record in outputs.records) == sent
    assert [record.connection for record in outputs.records] == [2, 3, 2]
    assert Done(outputs).retained == {b"home/2": (kept, b"")}


def test_a_long_read_is_not_copied_and_a_short_part_does_not_keep_one() -> None:
    broker = _broker(1)
    run = pack(0, b"home/2", bytes(1024)) * 9
    begun = pack(0, b"home/2", bytes(1024))
    broker.received(2, run + begun[:-1], NOW)
    broker.received(2, begun[-1:] + begun + bytes(3), NOW)
    (forward,) = broker.take().forwards
    assert [type(buffer) for buffer in forward.buffers] == [memoryview, bytes, memoryview]
    assert b"".join(forward.buffers) == run + begun * 2


def test_nothing_is_recorded_for_an_edge_without_a_journal() -> None:
    broker = _broker(1, journalled=False)
    broker.received(2, pack(0x04, b"home/2", b"kept") + pack(0, b"home/2", b"x"), NOW)
    assert broker.take().records == []
    assert broker.stats.publications == 2


def test_a_read_without_a_listener_is_recorded() -> None:
    broker = Broker(Settings())
    broker.opened(1, "fmqp", NOW)
    broker.take()
    frame = pack(0, b"nobody", b"x")
    broker.received(1, frame, NOW)
    outputs = broker.take()
    assert (outputs.forwards, [record.body for record in outputs.records]) == ([], [frame])


def test_a_will_while_the_broker_is_ending_lets_nobody_be_heard() -> None:
    """R34; a will is routed, so the broker knows again who gets its topic."""
    broker = _broker(2, journalled=False)
    frame = pack(0, b"home/2", b"21.5")
    will = encode_publication("home/2", b"gone", will=True)
    broker.received(3, will, NOW)
    broker.stopping()
    broker.closed(3, NOW)
    assert Done(broker.take()).sends == {1: [will]}
    broker.received(2, frame, NOW)
    assert broker.take().forwards == []


def test_who_is_disconnected_for_too_much_work_is_not_heard() -> None:
    broker = Broker(Settings(bus=BusSettings(max_steps_per_s=200)), journalled=False)
    for connection in (1, 2):
        broker.opened(connection, "fmqp", NOW)
    many = b"".join(pack(SUBSCRIBE, b"a/%d" % number, b"") for number in range(20))
    broker.received(1, many, NOW)
    frame = pack(0, b"a/1", b"x")
    broker.received(2, frame, NOW)
    assert Done(broker.take()).sends[1][-1] == frame
    wild = b"".join(pack(0, b"*/%d" % number, b"x") for number in range(200))
    broker.received(2, wild, NOW)
    assert [close.connection for close in Done(broker.take()).closes] == [2]
    broker.received(2, frame, NOW)
    assert broker.take().forwards == []


def test_receivers_of_their_own_get_their_own_in_order() -> None:
    """A run for many different receivers: each gets what it wants, once, in the order it came."""
    broker = Broker(Settings())
    for connection in range(1, 9):
        broker.opened(connection, "fmqp", NOW)
        broker.received(connection, pack(SUBSCRIBE, b"own/%d" % connection, b""), NOW)
    broker.received(1, pack(SUBSCRIBE, b"own/*", b""), NOW)
    broker.opened(9, "fmqp", NOW)
    broker.take()
    frames = [pack(0, b"own/%d" % (1 + number % 8), b"%d" % number) for number in range(100)]
    broker.received(9, b"".join(frames), NOW)
    sends = Done(broker.take()).sends
    assert b"".join(sends[1]) == b"".join(frames)
    for connection in range(2, 9):
        assert b"".join(sends[connection]) == b"".join(frames[connection - 1 :: 8])
        assert len(sends[connection]) == 1
