"""fq's queues on the bus: competition, policies, backlogs, how long they live."""

from typing import Any

import pytest

from host_broker.bus.publication import unpack_with_properties
from host_broker.bus.queue import spell_place
from host_broker.protocols.fq.codec import PERMANENT, REFUSED
from host_broker.protocols.fq.session import HOPS, ID, SENDER
from tests.host_broker.desk import Desk
from tests.host_broker.protocols.fq.peer import ID as AN_ID
from tests.host_broker.protocols.fq.peer import NODE, Peer, fq_desk


def _numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


@pytest.mark.parametrize("count", [2, 3, 16])
def test_consumers_of_a_public_queue_compete(count: int) -> None:
    """R9, R28, R29, R31, R44: each message once, in order, evenly; one copy for two bindings."""
    desk = fq_desk()
    publisher = Peer(desk, b"p")
    consumers = [Peer(desk, b"c\0mem:public") for _ in range(count)]
    consumers[0].bind(b"ex", b'prefix:"r"')
    consumers[-1].bind(b"ex", b"prefix:")
    for round_ in range(10):
        publisher.publish(b"ex", b"r", *_numbered(round_ * 48, round_ * 48 + 48))
    found = [[int(each) for each in consumer.payloads()] for consumer in consumers]
    assert sorted(each for share in found for each in share) == list(range(480))
    for each in found:
        assert each == sorted(each)
        assert len(each) == 480 // count
    assert publisher.status()["routed"] == 480


def test_one_message_at_a_time_goes_round() -> None:
    """R29: nobody is left out, however slowly they come."""
    desk = fq_desk()
    publisher = Peer(desk, b"p")
    consumers = [Peer(desk, b"c\0mem:public") for _ in range(4)]
    consumers[0].bind(b"ex", b"prefix:")
    for number in range(8):
        publisher.publish(b"ex", b"r", b"%d" % number)
    assert [consumer.payloads() for consumer in consumers] == [
        [b"0", b"4"],
        [b"1", b"5"],
        [b"2", b"6"],
        [b"3", b"7"],
    ]


def test_seventeen_clients_are_too_many() -> None:
    """R31."""
    desk = fq_desk()
    clients = [Peer(desk, b"c\0mem:public") for _ in range(16)]
    assert Peer(desk, b"c\0mem:public").error == b"can't add you to queue"
    clients[3].close()
    assert Peer(desk, b"c\0mem:public").key


def test_a_private_queue_has_one_client() -> None:
    """R30: also one that has no data connection yet."""
    desk = fq_desk()
    for data in (True, False):
        first = Peer(desk, b"c\0mem:private", data=data)
        assert Peer(desk, b"c").error == b"requested queue is private and in use\n"
        first.close()


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (b"c", b"requested private, queue is public"),
        (b"c\0mem:public,block", b"request block, queue is drop"),
        (b"c\0disk:public", b"requested type disk, queue is mem"),
    ],
)
def test_what_is_there_must_be_what_is_wanted(wanted: bytes, text: bytes) -> None:
    """A26: but for the backlog."""
    desk = fq_desk()
    Peer(desk, b"c\0mem:public")
    assert Peer(desk, wanted).error == text
    assert Peer(desk, b"c\0mem:public,backlog=3").key


def test_a_full_queue_drops_what_is_new() -> None:
    """R32, R34: what was there stays."""
    desk = fq_desk()
    publisher, consumer = Peer(desk, b"p"), Peer(desk, b"c\0mem:drop,backlog=10", data=False)
    consumer.bind(b"ex", b"prefix:")
    publisher.publish(b"ex", b"r", *_numbered(0, 25))
    assert publisher.status()["dropped"] == 15
    assert publisher.status()["routed"] == 25
    consumer.open_data()
    assert consumer.payloads() == _numbered(0, 10)
    publisher.publish(b"ex", b"r", *_numbered(0, 25))  # a consumer that has room takes all
    assert consumer.payloads() == _numbered(0, 25)


def test_a_full_queue_has_its_publisher_wait_and_nobody_else() -> None:
    """R33, A25."""
    desk = fq_desk()
    publisher, other = Peer(desk, b"p"), Peer(desk, b"o")
    consumer = Peer(desk, b"c\0mem:block,backlog=10", data=False)
    free = Peer(desk, b"f")
    consumer.bind(b"ex", b"prefix:")
    free.bind(b"ey", b"prefix:")
    publisher.publish(b"ex", b"r", *_numbered(0, 9))
    assert not desk.held
    publisher.publish(b"ex", b"r", *_numbered(9, 25))
    assert desk.held == {(publisher.data, "queue")}
    other.publish(b"ey", b"r", b"on")
    assert free.payloads() == [b"on"]
    consumer.open_data()
    assert consumer.payloads() == _numbered(0, 25)
    assert not desk.held
    assert publisher.status()["dropped"] == 0


@pytest.mark.parametrize(
    ("backlog", "most"), [(b"0", 0), (b"x", 0), (b"-1", 100_000), (b"7,backlog=8", 8)]
)
def test_backlogs(backlog: bytes, most: int) -> None:
    """R34, A24: nothing fits 0; less is modulo 2**32; at most bus.max_queue_messages."""
    desk = fq_desk()
    Peer(desk, b"c\0mem:backlog=" + backlog)
    assert desk.broker.queues[b"fq/c"].max_messages == most


def test_no_backlog_drops_all_or_blocks_for_ever() -> None:
    """A24."""
    desk = fq_desk()
    publisher = Peer(desk, b"p")
    drops, blocks = Peer(desk, b"d\0mem:backlog=0"), Peer(desk, b"b\0mem:block,backlog=0")
    drops.bind(b"ex", b"prefix:d")
    blocks.bind(b"ex", b"prefix:b")
    publisher.publish(b"ex", b"d", b"1", b"2")
    assert publisher.status()["dropped"] == 2
    assert not desk.held
    publisher.publish(b"ex", b"b", b"1")
    assert desk.held == {(publisher.data, "queue")}
    assert drops.payloads() == blocks.payloads() == []
    blocks.close()
    assert not desk.held


def test_a_queue_without_a_name() -> None:
    """A name of its own, private, and gone with its client, whatever it says."""
    desk = fq_desk()
    one, two = (Peer(desk, b"\0mem:public,permanent") for _ in range(2))
    names = list(desk.broker.queues)
    assert len(set(names)) == 2
    assert all(name.startswith(b"fq/auto-") and len(name) == 3 + 5 + 36 for name in names)
    one.close()
    two.close()
    assert not desk.broker.queues


def test_transient_queues_end_with_the_last_client() -> None:
    """R36, R37: permanent ones stay, with their bindings; who says nothing changes nothing."""
    desk = fq_desk()
    publisher = Peer(desk, b"p")
    first, second = (Peer(desk, b"c\0mem:public,permanent") for _ in range(2))
    first.bind(b"ex", b"prefix:")
    first.close()
    second.close()
    publisher.publish(b"ex", b"r", b"kept")
    third = Peer(desk, b"c\0mem:public")
    assert third.payloads() == [b"kept"]
    third.close()
    assert b"fq/c" in desk.broker.queues
    Peer(desk, b"c\0mem:public,transient").close()
    assert b"fq/c" not in desk.broker.queues
    publisher.publish(b"ex", b"r", b"lost")
    assert publisher.status()["no_route"] == 1
    assert Peer(desk, b"c\0mem:public").payloads() == []


def test_messages_wait_for_the_data_connection() -> None:
    """Bindings are active before; what waits comes first."""
    desk = fq_desk()
    publisher, consumer = Peer(desk, b"p"), Peer(desk, b"c", data=False)
    consumer.bind(b"ex", b"prefix:")
    publisher.publish(b"ex", b"r", b"1", b"2")
    consumer.open_data()
    publisher.publish(b"ex", b"r", b"3")
    assert consumer.payloads() == [b"1", b"2", b"3"]


def test_disk_queues_need_a_place() -> None:
    """A clear error where there is no data folder."""
    error = Peer(fq_desk(journalled=False), b"c\0disk").error
    assert error == b"no disk queues: this broker has no data folder (--data DIR)"


def test_disk_queues_outlive_the_broker() -> None:
    """R35, R26: with what waited in them; those in memory do not."""
    desk = fq_desk(journalled=True)
    publisher = Peer(desk, b"p")
    disk = Peer(desk, b"d\0disk:public,permanent", data=False)
    memory = Peer(desk, b"m\0mem:public,permanent", data=False)
    for peer in (disk, memory):
        peer.bind(b"ex", b"prefix:", PERMANENT)
    done = publisher.publish(b"ex", b"r", b"1", b"2", b"")
    stored = sorted((key, *entry) for key, entry in done.queued.items() if entry is not None)
    again = fq_desk(journalled=True)
    assert again.broker.restore_queues(stored) == 3
    consumer = Peer(again, b"d\0disk:public")
    places = [AN_ID[:8] + bytes([0, 0, 0, 0, number, 0, 0, 0]) for number in (1, 2, 3)]
    assert [(each.payload, each.id, each.sender) for each in consumer.heard()] == [
        (b"1", places[0], b"u"),
        (b"2", places[1], b"u"),
        (b"", places[2], b"u"),
    ]
    assert Peer(again, b"m\0mem:public").payloads() == []


def test_a_queue_that_the_bus_refuses() -> None:
    desk = fq_desk(bus={"max_queues": 1})
    Peer(desk, b"one")
    assert Peer(desk, b"two").error == b"can't add you to queue: bus.max_queues"
    assert desk.failures == []


def test_bindings_have_an_end() -> None:
    """A refused one leaves nothing behind."""
    desk = fq_desk(bus={"max_subscriptions": 2})
    peer = Peer(desk, b"c")
    assert peer.bind(b"ex", b"prefix:a") != REFUSED
    assert peer.bind(b"ey", b"prefix:") == REFUSED  # takes two
    assert peer.bind(b"ex", b"prefix:b") != REFUSED
    assert peer.bind(b"ex", b"prefix:c") == REFUSED
    peer.publish(b"ey", b"r", b"no")
    peer.publish(b"ex", b"b", b"yes")
    assert peer.payloads() == [b"yes"]


def test_messages_of_other_protocols() -> None:
    """They reach bindings, and are given what fq's have: an id, a sender, hops (A16)."""
    desk = fq_desk()
    board, consumer = desk.open(), Peer(desk, b"c")
    consumer.bind(b"hall", b"prefix:te")
    consumer.bind(b"attic", b"prefix:")
    desk.pub(board, "hall/temp/1", b"20")
    desk.pub(board, "hall/wind", b"no")
    desk.pub(board, "attic", b"21")
    one, two = consumer.heard()
    assert (one.exchange, one.route, one.payload) == (b"hall", b"temp/1", b"20")
    assert (one.sender, one.hops) == (b"_motemq", NODE)
    assert (two.exchange, two.route, two.payload) == (b"attic", b"", b"21")
    assert len({one.id, two.id}) == 2
    desk.pub(board, f"hall/te{'x' * 200}", b"no route of fq is so long")
    assert consumer.heard() == []
    assert desk.discarded["R25"] == 1


def test_messages_for_other_protocols() -> None:
    """Each name has its topic; a message without a payload is for queues only."""
    desk = fq_desk()
    board, publisher = desk.open(), Peer(desk, b"p")
    desk.sub(board, "hall/*")
    desk.sub(board, "%00/%FF")
    publisher.publish(b"hall", b"temp", b"20", b"", b"21")
    publisher.publish(b"\0", b"\xff", b"raw")
    assert desk.messages(board) == [
        (0, "hall/temp", b"20"),
        (0, "hall/temp", b"21"),
        (0, "%00/%FF", b"raw"),
    ]
    status = publisher.status()
    assert (status["routed"], status["no_route"], status["no_exchange"]) == (4, 0, 0)


def test_an_exchange_is_an_exchange_and_a_prefix_bytes() -> None:
    """R38 to R40, R44: whatever the bytes are."""
    desk = fq_desk()
    publisher = Peer(desk, b"p")
    names = [b"\0", b"\xff" * 127, b"$", b"/outer/", b"a//b", b"*", b"", b"e" * 127, b"e"]
    routes = [b"", b"/", b"a//b/", b"\xc3\xa9", b"\xc3", b"*", b"%2F", b"r" * 127, b"\0" * 127]
    prefixes = [b"", b"/", b"a/", b"\\xc3", b"\\x00", b"*", b"%2", b"%", b"r" * 127]
    consumers = [Peer(desk, b"c%d" % number) for number in range(len(prefixes))]
    for consumer, prefix in zip(consumers, prefixes, strict=True):
        for name in names:
            assert consumer.bind(name, b'prefix:"%s"' % prefix) != REFUSED
    for name in names:
        for route in routes:
            publisher.publish(name, route, b"body")
    raw = [
        b"\xc3" if each == b"\\xc3" else b"\0" if each == b"\\x00" else each for each in prefixes
    ]
    for consumer, prefix in zip(consumers, raw, strict=True):
        wanted = [(name, route) for name in names for route in routes if route.startswith(prefix)]
        assert [(each.exchange, each.route) for each in consumer.heard()] == wanted
    assert desk.failures == []


def test_properties_on_the_bus() -> None:
    """R23, R24: whoever reads the journal knows who has sent what."""
    desk = fq_desk(journalled=True)
    publisher = Peer(desk, b"p", b"alice")
    publisher.publish(b"ex", b"r", b"body")
    (record,) = desk.records
    assert record.encoding == 2
    ((_, topic, body, properties),) = unpack_with_properties(record.body)
    assert (topic, body) == (b"ex/r", b"body")
    assert properties == {SENDER: b"alice", HOPS: NODE + NODE, ID: AN_ID}


def _after_a_crash(queue: bytes) -> Desk:
    """A broker that has begun again; a client had bound this queue, and two messages waited."""
    desk = fq_desk(journalled=True)
    Peer(desk, queue, data=False).bind(b"ex", b"prefix:")
    done = Peer(desk, b"p").publish(b"ex", b"r", b"1", b"2")
    stored = sorted((key, *entry) for key, entry in done.queued.items() if entry is not None)
    again = fq_desk(journalled=True)
    assert again.broker.restore_queues(stored) == 2
    again.broker.opened(900, "fq", again.now, internal=True)
    again.broker.rows_changed(900, {}, again.now)
    again.done()
    return again


def test_after_a_crash_a_queue_on_disk_is_its_clients() -> None:
    """R35: with what waits in it; of another kind it is another one, with nothing."""
    assert Peer(_after_a_crash(b"d\0disk:block"), b"d\0disk:block").payloads() == [b"1", b"2"]
    for other in (b"d\0mem", b"d\0mem:block", b"d\0disk:drop"):
        desk = _after_a_crash(b"d\0disk:block")
        assert Peer(desk, other).payloads() == []
        (queue,) = desk.broker.queues.values()
        assert queue.durable == (b"disk" in other)
        assert queue.policy == ("block" if b"block" in other else "drop-newest")


def test_after_a_crash_a_queue_without_a_name_is_nobodys() -> None:
    """Nobody will ever ask for it again."""
    assert not _after_a_crash(b"\0disk").broker.queues


def test_programs_have_a_share_of_the_memory() -> None:
    """A long rule costs fifty times its length when it is compiled; it is given back."""
    desk = fq_desk(bus={"max_held_bytes": 1 << 20})
    client = Peer(desk, b"c")
    rule = b"true()"
    for _ in range(8):
        rule = b"(%s||%s)" % (rule, rule)
    routes = [client.bind(b"ex", b"prefix:%d " % number + rule) for number in range(10)]
    taken = [route for route in routes if route != REFUSED]
    assert 4 <= len(taken) < 10
    assert client.bind(b"ex", b"prefix:x " + rule[1:]) == REFUSED
    for route in taken:
        client.unbind(route, b"ex")
    assert client.bind(b"ex", b"prefix: " + rule) != REFUSED
    client.close()
    assert desk.broker.held_bytes == 0


def test_what_is_dropped_for_what_is_behind_it_is_not_stored() -> None:
    """Or it would be there again after the next start."""
    desk = fq_desk(journalled=True)
    assert desk.broker.restore_queues([(spell_place(b"fq/d", 0), b"drop-oldest 2 0", b"0")]) == 0
    Peer(desk, b"d\0disk", data=False).bind(b"ex", b"prefix:")
    done = Peer(desk, b"p").publish(b"ex", b"r", *_numbered(0, 7))
    (queue,) = (each for each in desk.broker.queues.values() if each.name == b"fq/d")
    kept = {key for key, entry in done.queued.items() if entry is not None}
    assert len(queue.numbers) == 2
    assert kept - {spell_place(b"fq/d", 0)} == {spell_place(b"fq/d", n) for n in queue.numbers}


def test_a_queue_is_full_by_its_bytes_only_if_nobody_takes_them() -> None:
    """R32: one read has more than it may hold; a consumer that has room is given it meanwhile."""
    desk = fq_desk(bus={"max_queue_bytes": 4096})
    publisher = Peer(desk, b"p")
    ready, waits = Peer(desk, b"c"), Peer(desk, b"w", data=False)
    for peer in (ready, waits):
        peer.bind(b"ex", b"prefix:")
    words = [b"%4d" % number + bytes(96) for number in range(200)]
    publisher.publish(b"ex", b"r", *words)
    assert ready.payloads() == words
    waits.open_data()
    kept = waits.payloads()
    assert kept == words[: len(kept)]
    assert 20 < len(kept) < 40
    assert publisher.status()["dropped"] == 200 - len(kept)


def test_an_exchange_that_nobody_uses_makes_room_for_another() -> None:
    """The one that was not used for longest; how many there are is no matter."""
    desk = fq_desk()
    client = Peer(desk, b"c")
    server: Any = desk.broker._servers["fq"]
    exchanges = server._shared.queues.exchanges
    looks = 0

    class Bindings(dict[int, Any]):
        def __len__(self) -> int:
            nonlocal looks
            looks += 1
            return super().__len__()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("host_broker.protocols.fq.queues.MAX_EXCHANGES", 100)
        kept = client.bind(b"kept", b"prefix:")
        for number in range(99):
            client.unbind(client.bind(b"%d" % number, b"prefix:"), b"%d" % number)
        assert len(exchanges) == 100
        for exchange in exchanges.values():
            exchange.bindings = Bindings(exchange.bindings)
        client.bind(b"more", b"prefix:")
        assert looks <= 2
        assert len(exchanges) == 100
        assert b"0" not in exchanges and b"1" in exchanges and b"kept" in exchanges
        for number in range(98):
            assert client.bind(b"all %d" % number, b"prefix:") != REFUSED
        assert client.bind(b"one too many", b"prefix:") == REFUSED
        client.unbind(kept, b"kept")
        assert client.bind(b"one too many", b"prefix:") != REFUSED
    client.close()
    assert desk.broker.held_bytes == 0


def test_a_queue_on_disk_keeps_what_its_consumer_does_not_take() -> None:
    """R35: until the socket has taken all of it, a kill of the broker loses nothing; and that is
    bounded: who has 256 KiB to take is given no more."""
    desk = fq_desk(journalled=True)
    consumer = Peer(desk, b"q\0disk:public")
    consumer.bind(b"ex", b"prefix:")
    sender = Peer(desk, b"sender")
    desk.slow.add(consumer.data)
    stored: dict[bytes, Any] = {}
    for read in range(10):
        done = sender.publish(b"ex", b"r", *_numbered(read * 100, read * 100 + 100))
        stored |= done.queued
    assert consumer.payloads() == _numbered(0, 1000)
    places = [spell_place(b"fq/q", number) for number in range(1, 1001)]
    assert all(stored[place] is not None for place in places)

    sender.publish(b"ex", b"r", *[b"x" * 10_000] * 40)
    given = len(consumer.payloads())
    assert given == 27
    sender.publish(b"ex", b"r", b"y")
    assert consumer.payloads() == []

    desk.slow.clear()
    desk.broker.proceed(consumer.data, desk.now)
    stored |= desk.done().queued
    assert all(stored[place] is None for place in places)
    assert len(consumer.payloads()) == 40 - given + 1
