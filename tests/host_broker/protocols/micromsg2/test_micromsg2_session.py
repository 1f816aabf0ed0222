"""MicroMsg2 in a whole broker on a desk: topics, queues, acks, other protocols, the end."""

from typing import Any

import pytest

from host_broker import broker
from host_broker.access import access
from host_broker.access.rules import Rules
from host_broker.access.users import Users
from host_broker.protocols.micromsg2.codec import (
    MAX_FRAGMENT,
    Codec,
    spell_command_frame,
    spell_error,
    spell_extension,
    spell_handshake,
)
from host_broker.protocols.micromsg2.events import (
    ErrorFrame,
    ExtensionFrame,
    Handshake,
    MessageFrame,
)
from host_broker.protocols.micromsg2.grammar import read_extensions
from host_broker.protocols.micromsg2.values import MAX_PROPERTIES
from tests.host_broker.desk import Desk
from tests.host_broker.protocols.micromsg2.peer import (
    Peer,
    micromsg2_desk,
    payloads,
    refused,
    told,
)


def test_a_topic_is_for_all() -> None:
    """R31, R35, A11, A12: who subscribes gets it, numbered from 1, until it unsubscribes."""
    desk = micromsg2_desk()
    one, two, writer = Peer(desk), Peer(desk), Peer(desk)
    assert one.subscribe("topic/home/lamp") == two.subscribe("topic/home/*") == []
    assert writer.publish("topic/home/lamp", b"on") == []
    writer.publish("topic/home/door", b"open")
    assert told(one.heard()) == [(1, "topic/home/lamp", "", b"on")]
    assert told(two.heard()) == [
        (1, "topic/home/lamp", "", b"on"),
        (2, "topic/home/door", "", b"open"),
    ]
    assert one.subscribe("topic/home/lamp", verb="UNSUBSCRIBE") == []
    assert one.subscribe("topic/home/lamp", verb="unsubscribe") == []
    writer.publish("topic/home/lamp", b"off")
    assert one.heard() == []
    assert payloads(two.heard()) == [b"off"]


def test_a_queue_is_for_one() -> None:
    """R36: each message has one consumer, in order; before there is one, the queue keeps them."""
    desk = micromsg2_desk()
    writer = Peer(desk)
    for number in range(3):
        assert writer.publish("jobs", b"%d" % number) == []
    one = Peer(desk)
    assert told(one.subscribe("jobs")) == [
        (n, "jobs", f"queue-number:N{n}", b"%d" % (n - 1)) for n in (1, 2, 3)
    ]
    two = Peer(desk)
    two.subscribe("jobs")
    for number in range(3, 9):
        writer.publish("jobs", b"%d" % number)
    taken = payloads(one.heard()), payloads(two.heard())
    assert all(list(each) == sorted(each) and each for each in taken)
    assert sorted(taken[0] + taken[1]) == [b"%d" % number for number in range(3, 9)]
    one.subscribe("jobs", verb="unsubscribe")
    writer.publish("jobs", b"9")
    assert (one.heard(), payloads(two.heard())) == ([], [b"9"])


def test_a_subscription_filters() -> None:
    """R37, R39, A23: on properties; the same destination again replaces the filter."""
    desk = micromsg2_desk()
    reader, writer = Peer(desk), Peer(desk)
    reader.subscribe("topic/t", "n>N1", "unit=TK")
    for properties in ("n:N2;unit:TK", "n:N1;unit:TK", "n:N2;unit:TC", "n:N3;unit:K;"):
        writer.publish("topic/t", b"x", properties)
    assert [properties for _, _, properties, _ in told(reader.heard())] == [
        "n:N2;unit:TK",
        "n:N3;unit:TK",
    ]
    reader.subscribe("topic/t", "n=N1")
    writer.publish("topic/t", b"y", "n:N1")
    writer.publish("topic/t", b"z", "n:N2;unit:TK")
    assert payloads(reader.heard()) == [b"y"]


def test_consumers_of_a_queue_filter() -> None:
    """R36, R37: each gets what it wants, in order; the rest waits for one that wants it."""
    desk = micromsg2_desk()
    low, writer = Peer(desk, "pubsub;batch-ack"), Peer(desk)
    assert low.subscribe("jobs", "n<N5") == []
    for number in (1, 7, 2, 8, 3):
        writer.publish("jobs", b"%d" % number, f"n:N{number}")
    assert payloads(low.heard()) == [b"1", b"2", b"3"]
    high = Peer(desk)
    assert payloads(high.subscribe("jobs", "n>N7")) == [b"8"]
    low.acknowledge(2)
    low.close()
    high.close()
    anybody = Peer(desk)
    assert payloads(anybody.subscribe("jobs")) == [b"7", b"3"]
    assert payloads(anybody.subscribe("jobs", "n=N9")) == []  # again: another filter
    for number in (1, 9):
        writer.publish("jobs", b"%d" % number, f"n:N{number}")
    assert payloads(anybody.heard()) == [b"9"]


def test_who_asks_for_too_many_filters_of_a_long_queue_is_disconnected() -> None:
    """R37: each has to look at all that waits."""
    desk = micromsg2_desk(bus={"max_steps_per_s": 1000})
    writer, reader = Peer(desk), Peer(desk)
    for _ in range(100):
        writer.publish("jobs", b"x", "n:N1")
    for _ in range(5):
        reader.subscribe("jobs", "n=N2")
    assert reader.why_closed.startswith("bus.max_steps_per_s")


def test_publishers_are_acknowledged() -> None:
    """R28, R32: at the end of each read, also early; what is sent again is not published again."""
    desk = micromsg2_desk()
    reader, writer = Peer(desk), Peer(desk, "pubsub;batch-ack:max-count=3")
    reader.subscribe("topic/t")
    assert writer.acked(writer.publish("topic/t", b"1")) == [1]
    two = writer.spell("topic/t", b"2") + writer.spell("topic/t", b"3")
    assert writer.acked(writer.say(two)) == [3]
    assert writer.acked(writer.say(two)) == [3]
    assert payloads(reader.heard()) == [b"1", b"2", b"3"]


def test_what_is_published_is_journalled() -> None:
    """Under the identity of its publisher, what goes to a queue under the queue's name."""
    desk = micromsg2_desk()
    writer = Peer(desk, "batch-ack", identity="sensor-1")
    writer.publish("topic/t", b"1")
    writer.publish("jobs", b"2")
    writer.publish("jobs", b"")
    messages = [[(0, "t", b"1")], [(0, "jobs", b"2")], [(0, "jobs", b"")]]
    assert desk.journal() == [(writer.connection, 3, "sensor-1", each) for each in messages]
    writer.publish("jobs", b"3", "level:N5")
    (record,) = desk.records
    assert (record.encoding, record.count) == (2, 1)
    assert b"level" in bytes(record.body)
    assert desk.broker.stats.publications == 4


def test_never_more_than_the_window() -> None:
    """R26, R27, R29, A13: of a topic and a queue together; the rest comes with the acks."""
    desk = micromsg2_desk()
    reader, writer = Peer(desk, "pubsub;batch-ack"), Peer(desk)
    reader.subscribe("topic/t")
    reader.subscribe("jobs")
    for number in range(30):
        writer.publish("jobs" if number % 3 else "topic/t", b"%d" % number)
    heard = reader.heard()
    got = told(heard)
    assert len(got) == 10
    while heard:
        heard = reader.acknowledge(got[-1][0])
        assert len(heard) <= 10
        got += told(heard)
    assert [sequence for sequence, *_ in got] == list(range(1, 31))
    for destination in ("jobs", "topic/t"):
        numbers = [int(payload) for _, to, _, payload in got if to == destination]
        assert numbers == sorted(numbers)
    assert sorted(int(payload) for *_, payload in got) == list(range(30))
    assert reader.why_closed == ""


def test_early_and_unknown_acks() -> None:
    """R28, A14: an early one makes room for as much as it covers, an unknown one for nothing."""
    desk = micromsg2_desk()
    reader, writer = Peer(desk, "pubsub;batch-ack:max-count=4"), Peer(desk)
    reader.subscribe("topic/t")
    for number in range(1, 9):
        writer.publish("topic/t", b"%d" % number)
    assert payloads(reader.heard()) == [b"1", b"2", b"3", b"4"]
    assert payloads(reader.acknowledge(2)) == [b"5", b"6"]
    assert reader.acknowledge(2) == reader.acknowledge(9) == reader.acknowledge(0) == []
    assert desk.discarded["A14"] == 3
    assert payloads(reader.acknowledge(6)) == [b"7", b"8"]


def test_one_message_at_a_time() -> None:
    """R30, A15: with ``ack``; a window of the client's own changes nothing."""
    desk = micromsg2_desk()
    reader, writer = Peer(desk, "ack:MessagesPerAck=10;pubsub"), Peer(desk)
    reader.subscribe("jobs")
    for number in range(1, 4):
        writer.publish("jobs", b"%d" % number)
    got = payloads(reader.heard())
    for number in range(1, 4):
        assert got[-1] == b"%d" % number
        got += payloads(reader.acknowledge(number))
    assert got == [b"1", b"2", b"3"]


def test_numbers_wrap() -> None:
    """R22, R29, A12: both ways, in a queue; nothing is lost and nothing comes twice."""
    desk = micromsg2_desk()
    reader = Peer(desk, "pubsub;batch-ack:max-count=1000")
    writer = Peer(desk, "batch-ack:max-count=1000")
    reader.subscribe("jobs")
    for batch in range(67):
        burst = b"".join(writer.spell("jobs", b"%d" % (batch * 1000 + n)) for n in range(1000))
        assert writer.acked(writer.say(burst)) == [writer.sequence]
        got = told(reader.heard())
        assert [int(payload) for *_, payload in got] == list(
            range(batch * 1000, batch * 1000 + 1000)
        )
        assert reader.acknowledge(got[-1][0]) == []
    assert got[-1][0] == writer.sequence == 67_000 - 65_535


def test_what_was_not_acknowledged_comes_back_in_order() -> None:
    """R36: marked as redelivered, when a consumer has left, and before all that is younger; under
    its number in the queue, whatever number it had in another queue."""
    desk = micromsg2_desk()
    writer, first = Peer(desk), Peer(desk, "pubsub;batch-ack:max-count=4")
    first.subscribe("jobs")
    for number in range(1, 7):
        writer.publish("jobs", b"%d" % number, "k:N1;redelivered:N1;queue-number:N77")
    assert payloads(first.heard()) == [b"1", b"2", b"3", b"4"]
    assert payloads(first.acknowledge(1)) == [b"5"]
    first.close()
    second = Peer(desk, "pubsub;batch-ack")
    got = told(second.subscribe("jobs"))
    assert [payload for *_, payload in got] == [b"2", b"3", b"4", b"5", b"6"]
    assert [properties for _, _, properties, _ in got] == [
        *(f"k:N1;redelivered:N1;queue-number:N{number}" for number in range(2, 6)),
        "k:N1;queue-number:N6",
    ]


@pytest.mark.parametrize(
    ("room", "marks"),
    [
        (32, ";redelivered:N1;queue-number:N1"),
        (30, ";redelivered:N1"),
        (15, ";redelivered:N1"),
        (14, ""),
    ],
)
def test_where_only_one_mark_fits_it_is_the_one_of_what_comes_again(room: int, marks: str) -> None:
    desk = micromsg2_desk()
    first, second = Peer(desk, "pubsub;batch-ack"), Peer(desk, "pubsub;batch-ack")
    long = "k:T" + "x" * (MAX_PROPERTIES - room - 3)
    Peer(desk).publish("jobs", b"1", long)
    assert payloads(first.subscribe("jobs")) == [b"1"]
    first.close()
    ((_, _, properties, _),) = told(second.subscribe("jobs"))
    assert properties[len(long) :] == marks


def test_a_consumer_that_leaves_a_queue_gives_back_what_it_had() -> None:
    """R36: what waits for its window is not sent any more."""
    desk = micromsg2_desk()
    reader, writer = Peer(desk, "pubsub;batch-ack:max-count=2"), Peer(desk)
    reader.subscribe("topic/t")
    reader.subscribe("jobs")
    for destination in ("topic/t", "topic/t", "jobs", "jobs", "topic/t"):
        writer.publish(destination, destination.encode())
    assert payloads(reader.heard()) == [b"topic/t"] * 2
    assert reader.subscribe("jobs", verb="unsubscribe") == []
    assert payloads(reader.acknowledge(2)) == [b"topic/t"]
    other = Peer(desk)
    assert payloads(other.subscribe("jobs")) == [b"jobs"] * 2


def test_a_late_ack_is_for_the_delivery_that_it_names() -> None:
    """R29, R36: who leaves a queue and comes back is sent again what it had. An ack of the first
    time says nothing about the second, in which it may not come to an end."""
    desk = micromsg2_desk()
    reader, writer = Peer(desk, "pubsub;batch-ack:max-count=9"), Peer(desk)
    reader.subscribe("jobs")
    for number in range(4):
        writer.publish("jobs", b"%d" % number)
    assert [sequence for sequence, *_ in told(reader.heard())] == [1, 2, 3, 4]
    reader.subscribe("jobs", verb="unsubscribe")
    again = told(reader.subscribe("jobs"))
    assert [(sequence, payload) for sequence, _, _, payload in again] == [
        (sequence, b"%d" % (sequence - 5)) for sequence in (5, 6, 7, 8)
    ]
    assert reader.acknowledge(4) == []
    assert reader.acknowledge(5) == []
    reader.close()
    assert payloads(Peer(desk).subscribe("jobs")) == [b"1", b"2", b"3"]


def test_a_client_that_acknowledges_nothing() -> None:
    """R36: is disconnected after a time, so that others get what it had of queues."""
    desk = micromsg2_desk({"ack_timeout_s": 20.0})
    reader, writer = Peer(desk, "pubsub;batch-ack:max-count=2"), Peer(desk)
    reader.subscribe("jobs")
    for number in range(3):
        writer.publish("jobs", b"%d" % number)
    desk.advance(19.0)
    assert payloads(reader.heard()) == [b"0", b"1"]
    reader.acknowledge(1)
    desk.advance(19.0)
    assert reader.why_closed == ""
    desk.advance(1.5)
    assert refused(reader, reader.heard()) == "micromsg2.ack_timeout_s"
    reader.close()
    assert payloads(Peer(desk).subscribe("jobs")) == [b"1", b"2"]


def test_a_client_that_acknowledges_is_not_disconnected() -> None:
    desk = micromsg2_desk({"ack_timeout_s": 20.0})
    reader, writer = Peer(desk, "pubsub;batch-ack:max-count=2"), Peer(desk)
    reader.subscribe("topic/t")
    for number in range(1, 6):
        writer.publish("topic/t", b"x")
        reader.heard()
        reader.acknowledge(number)
        desk.advance(100.0)
    assert reader.why_closed == ""


def test_consumers_in_a_circle_of_full_queues_do_not_wait_for_ever() -> None:
    """What they say is not read: they wait for room that comes when they are read. One of them is
    disconnected when time is up, and the others go on."""
    desk = micromsg2_desk({"ack_timeout_s": 20.0}, bus={"max_queue_messages": 2})
    workers = [Peer(desk, "pubsub;ack") for _ in range(2)]
    queues = ("raw", "done")
    for worker, queue in zip(workers, queues, strict=True):
        worker.subscribe(queue)
    writer = Peer(desk)
    for queue in queues:
        writer.publish(queue, b"first")
    for worker, queue in zip(workers, reversed(queues), strict=True):
        assert payloads(worker.heard()) == [b"first"]
        worker.publish(queue, b"second")
    assert all(desk.is_held(worker.connection) for worker in workers)
    desk.advance(19.0)
    assert [worker.why_closed for worker in workers] == ["", ""]
    desk.advance(3.0)
    (out,) = (worker for worker in workers if worker.why_closed)
    assert refused(out, out.heard()) == "micromsg2.ack_timeout_s"
    out.close()
    (left,) = (worker for worker in workers if worker is not out)
    taker = Peer(desk, "pubsub")
    assert payloads(taker.subscribe(queues[workers.index(out)])) == [b"first", b"second"]
    assert not desk.is_held(left.connection)
    assert payloads(left.acknowledge(1)) == [b"second"]


@pytest.mark.parametrize(("looks", "is_found"), [(2, False), (3, True)])
def test_a_circle_is_looked_for_among_so_many_consumers(
    monkeypatch: pytest.MonkeyPatch, looks: int, is_found: bool
) -> None:
    """Here it is the third; those beyond wait on, and the broker goes on."""
    monkeypatch.setattr(broker, "_MOST_LOOKS", looks)
    desk = micromsg2_desk({"ack_timeout_s": 20.0}, bus={"max_queue_messages": 4})
    worker, *others = (Peer(desk, "pubsub;ack") for _ in range(4))
    worker.subscribe("raw")
    for other in others:
        other.subscribe("done")
    writer = Peer(desk)
    for queue, count in (("raw", 3), ("done", 3)):
        for _ in range(count):
            writer.publish(queue, b"job")
    others[-1].publish("raw", b"job")
    worker.publish("done", b"job")
    assert desk.is_held(worker.connection)
    assert desk.is_held(others[-1].connection)
    desk.broker.tick(desk.now + 20.5, lambda each: each == worker.connection)
    desk.done()
    assert bool(worker.why_closed) is is_found


def test_a_consumer_that_fills_its_own_queue_does_not_wait_for_ever() -> None:
    desk = micromsg2_desk({"ack_timeout_s": 20.0}, bus={"max_queue_messages": 2})
    worker = Peer(desk, "pubsub;ack")
    worker.subscribe("jobs")
    Peer(desk).publish("jobs", b"first")
    worker.publish("jobs", b"again")
    assert desk.is_held(worker.connection)
    desk.advance(25.0)
    assert worker.why_closed.startswith("micromsg2.ack_timeout_s")
    worker.close()
    assert payloads(Peer(desk, "pubsub").subscribe("jobs")) == [b"first", b"again"]


@pytest.mark.parametrize("hung_up", [False, True])
def test_a_consumer_that_waits_keeps_what_it_has_unless_it_has_hung_up(hung_up: bool) -> None:
    """While it is there its acks may be unread, and it is in no circle."""
    desk = micromsg2_desk({"ack_timeout_s": 20.0}, bus={"max_queue_messages": 2})
    worker, writer = Peer(desk, "pubsub;ack"), Peer(desk)
    worker.subscribe("raw")
    writer.publish("raw", b"first")
    writer.publish("done", b"first")
    assert payloads(worker.heard()) == [b"first"]
    worker.publish("done", b"second")
    assert desk.is_held(worker.connection)
    if hung_up:
        desk.hung_up.add(worker.connection)
    desk.advance(200.0)
    if hung_up:
        assert worker.why_closed.startswith("micromsg2.ack_timeout_s")
        worker.close()
        assert payloads(Peer(desk, "pubsub").subscribe("raw")) == [b"first"]
        return
    assert worker.why_closed == ""
    assert payloads(Peer(desk, "pubsub").subscribe("done")) == [b"first", b"second"]
    assert not desk.is_held(worker.connection)
    worker.acknowledge(1)
    assert Peer(desk, "pubsub").subscribe("raw") == []
    desk.advance(200.0)
    assert worker.why_closed == ""


@pytest.mark.parametrize(
    ("limits", "rule"),
    [
        ({"micromsg2": {"max_backlog_bytes": 3000}}, "micromsg2.max_backlog_bytes"),
        ({"bus": {"max_held_bytes": 3000}}, "bus.max_held_bytes"),
    ],
)
def test_what_waits_of_topics_is_limited(limits: dict[str, Any], rule: str) -> None:
    """Beyond it the client is disconnected, and the memory is there again."""
    desk = micromsg2_desk(**limits)
    reader, writer = Peer(desk, "pubsub;ack"), Peer(desk)
    reader.subscribe("topic/t")
    for _ in range(3):
        writer.publish("topic/t", bytes(1000))
        assert reader.why_closed == ""
    assert len(reader.heard()) == 1
    writer.publish("topic/t", bytes(1000))
    assert refused(reader, reader.heard()) == rule
    reader.close()
    patient = Peer(desk, "pubsub;ack")
    patient.subscribe("topic/t")
    for number in range(1, 9):
        writer.publish("topic/t", bytes(1000))
        assert len(patient.heard()) == 1
        patient.acknowledge(number)
    for _ in range(3):
        writer.publish("topic/t", bytes(1000))
    got = patient.heard()
    for number in range(9, 12):
        got += patient.acknowledge(number)
    assert len(got) == 3
    assert patient.why_closed == writer.why_closed == ""


def test_a_message_without_a_destination() -> None:
    """A24: programs of SharpMessaging send nothing else, single or many."""
    desk = micromsg2_desk()
    reader, writer = Peer(desk), Peer(desk, "ack:MessagesPerAck=1;dotnet")
    reader.subscribe("topic/micromsg2")
    assert writer.acked(writer.publish("", b"1")) == [1]
    many = b"".join(writer.spell("", b"%d" % number) for number in range(2, 10))
    assert writer.acked(writer.say(many)) == [9]
    plain = Peer(desk)
    plain.say(plain.spell("", b"10") + plain.spell("", b"11"))
    assert told(reader.heard()) == [
        (number, "topic/micromsg2", "", b"%d" % number) for number in range(1, 12)
    ]
    assert refused(reader, reader.subscribe("")) == "R17"


def test_long_messages_come_in_fragments() -> None:
    """R19, R20, A17: both ways, each with its number, within the window, and nothing between."""
    desk = micromsg2_desk(bus={"max_body": 4 * MAX_FRAGMENT})
    reader, writer = Peer(desk, "pubsub;batch-ack:max-count=2"), Peer(desk)
    reader.codec = Codec("client", 4 * MAX_FRAGMENT)
    reader.codec.receive_data(spell_handshake(Handshake(1, 0, "")))
    reader.subscribe("topic/t")
    body = bytes(range(256)) * (3 * MAX_FRAGMENT // 256) + b"end"
    for position in range(0, len(body), MAX_FRAGMENT):
        part = body[position : position + MAX_FRAGMENT]
        more = position + MAX_FRAGMENT < len(body)
        assert writer.say(writer.spell("topic/t", part, "k:N1", more)) == []
        writer.say(spell_command_frame("subscribe", [("topic", b"other")]))
    writer.publish("topic/t", b"after")
    got = reader.heard()
    assert [each.sequence for each in got] == [1, 2]
    for number in (2, 4):
        got += reader.acknowledge(number)
    assert [(each.sequence, each.continued) for each in got] == [
        (1, True),
        (2, True),
        (3, True),
        (4, False),
        (5, False),
    ]
    assert b"".join(each.payload for each in got[:4]) == body
    assert got[0].properties == b"k:N1"
    assert got[4].payload == b"after"


def test_types_of_dotnet() -> None:
    """R33, R34, A3: before each message that has one; to peers without it nothing is said."""
    desk = micromsg2_desk()
    writer = Peer(desk, "json;dotnet;pubsub")
    reader, other = Peer(desk, "dotnet;pubsub"), Peer(desk)
    for each in (reader, other):
        each.subscribe("topic/t")
    writer.publish("topic/t", b"0", "k:N1")
    writer.say(spell_extension(2, b"A, B"))
    writer.publish("topic/t", b"1", "k:N1")
    writer.publish("topic/t", b"2")
    heard = reader.heard()
    assert heard[1::2] == [ExtensionFrame(1, b"A, B")] * 2
    assert [properties for _, _, properties, _ in told(heard[::2])] == ["k:N1", "k:N1", ""]
    assert payloads(other.heard()) == [b"0", b"1", b"2"]


def test_the_type_of_a_long_message_is_said_once() -> None:
    """R33: before its first fragment."""
    desk = micromsg2_desk(bus={"max_body": 4 * MAX_FRAGMENT})
    writer, reader = Peer(desk, "dotnet"), Peer(desk, "dotnet;pubsub")
    reader.subscribe("topic/t")
    writer.say(spell_extension(1, b"A, B"))
    writer.publish("topic/t", bytes(MAX_FRAGMENT + 1))
    assert [type(event) for event in reader.heard()] == [
        ExtensionFrame,
        MessageFrame,
        MessageFrame,
    ]


def test_json_is_checked() -> None:
    desk = micromsg2_desk()
    reader = Peer(desk)
    reader.subscribe("topic/t")
    for payload in (b'{"a": [1, 2.5, null]}', b'"x"', b"3"):
        assert Peer(desk, "json").publish("topic/t", payload) == []
    for payload, reason in (
        (b"", "is not JSON: Expecting value"),
        (b"{", "is not JSON: Expecting property name"),
        (b"NaN", "is not JSON: NaN is not JSON"),
        (b"\xff", "is not JSON: 'utf-8' codec"),
        (b"[" * 100_000, "is not JSON: maximum recursion"),
        (b"1" * 10_000, "an integer in the payload has more than 4300 digits"),
    ):
        writer = Peer(desk, "json")
        assert refused(writer, writer.publish("topic/t", payload)) == "micromsg2.json"
        assert reason in writer.why_closed
    assert len(reader.heard()) == 3


def test_messages_of_other_protocols() -> None:
    """R35: FMQP hears what MicroMsg2 says, and the other way round."""
    desk = micromsg2_desk()
    peer, fmqp = Peer(desk), desk.open()
    peer.subscribe("topic/a/*")
    desk.sub(fmqp, "a/b")
    own = peer.publish("topic/a/b", b"mine", "n:N1")
    assert desk.messages(fmqp) == [(0, "a/b", b"mine")]
    desk.pub(fmqp, "a/c", b"theirs")
    assert told(own + peer.heard()) == [
        (1, "topic/a/b", "n:N1", b"mine"),
        (2, "topic/a/c", "", b"theirs"),
    ]
    desk.pub(fmqp, "a/" + "x" * 250, b"too long to be said")
    assert peer.heard() == []
    assert desk.discarded["R17"] == 1


def test_what_is_retained_comes_first() -> None:
    desk = micromsg2_desk()
    desk.pub(desk.open(), "a/b", b"kept", cache=True)
    reader = Peer(desk)
    assert payloads(reader.subscribe("topic/a/b")) == [b"kept"]


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (spell_command_frame("dance"), "R24"),
        (spell_command_frame("subscribe"), "R24"),
        (spell_command_frame("subscribe", [("topic", b"a"), ("filter", b"n>=N1")]), "R39"),
        (spell_command_frame("unsubscribe"), "R24"),
        (spell_extension(9, b""), "R23"),
        (spell_extension(2, b"\0"), "R32"),
        (spell_extension(3, bytes(5000)), "R33"),
        (b"\3", "R16"),
        (bytes.fromhex("0000010100000178"), "R17"),
        (bytes.fromhex("000001012400000178"), "R17"),
        (bytes.fromhex("000001017100017a0178"), "R40"),
        (bytes.fromhex("00000101710003613a250178"), "R13"),
    ],
)
def test_mistakes_end_the_connection(data: bytes, rule: str) -> None:
    """A25, A26, A27: with an ERROR; others do not notice, and nothing after it is read."""
    desk = micromsg2_desk()
    bystander, peer = Peer(desk), Peer(desk, "pubsub;batch-ack;dotnet")
    bystander.subscribe("topic/t")
    after = peer.spell("topic/t", b"after")
    assert refused(peer, peer.say(data + after)) == rule
    assert peer.say(after) == []
    assert bystander.heard() == []
    Peer(desk).publish("topic/t", b"still here")
    assert payloads(bystander.heard()) == [b"still here"]


def test_too_many_properties() -> None:
    """An ERROR: a message that is acknowledged is published."""
    desk = micromsg2_desk()
    peer = Peer(desk, "batch-ack")
    properties = ";".join(f"p{number}:T" for number in range(65))
    assert refused(peer, peer.publish("topic/t", b"x", properties)) == "bus.properties"


def test_frames_of_extensions_that_have_none() -> None:
    """A27: are skipped."""
    desk = micromsg2_desk()
    peer = Peer(desk, "pubsub;json")
    assert peer.say(spell_extension(1, b"?") + spell_extension(2, b"?")) == []
    assert peer.why_closed == ""


def test_commands_of_pubsub_need_it() -> None:
    """R25: nothing holds that was not agreed on."""
    desk = micromsg2_desk()
    peer = Peer(desk, "json")
    assert refused(peer, peer.subscribe("topic/t")) == "R24"


def test_limits_of_the_bus_are_told() -> None:
    """In an ERROR: who subscribes must know that nothing will come."""
    desk = micromsg2_desk(bus={"max_queues": 1, "max_subscriptions": 1})
    peer, other, third = Peer(desk), Peer(desk), Peer(desk)
    peer.subscribe("one")
    assert refused(peer, peer.subscribe("two")) == "bus.max_queues"
    other.subscribe("topic/a")
    assert refused(other, other.subscribe("topic/b")) == "bus.max_subscriptions"
    assert refused(third, third.publish("two", b"x")) == "bus.max_queues"


def test_the_client_says_error() -> None:
    """A25: it is disconnected without a word."""
    desk = micromsg2_desk()
    peer = Peer(desk)
    assert peer.say(spell_error("enough") + peer.spell("topic/t", b"x")) == []
    assert peer.why_closed == "the client says: 'enough'"


@pytest.mark.parametrize("said", [b"", spell_handshake(Handshake(1, 0, "me"))])
def test_a_handshake_ends_in_time(said: bytes) -> None:
    """R9: also if the last word is what is missing."""
    desk = micromsg2_desk({"handshake_timeout_s": 5.0})
    connection = desk.open("micromsg2")
    desk.send(connection, said)
    desk.advance(4.9)
    assert desk.closes == []
    desk.advance(0.2)
    events = Codec("client").receive_data(desk.got(connection))
    assert events[-1] == ErrorFrame("no complete handshake within 5 s")
    assert [close.connection for close in desk.closes] == [connection]


def test_requests_that_are_refused() -> None:
    """R4, R5, R6: in words; a higher version is answered with ours."""
    for request, reason in (
        (Handshake(1, 0, "c", read_extensions(b"x-nope")), "unsupported extension: x-nope"),
        (Handshake(1, 0, "c", read_extensions(b"batch-ack:count=0")), "count is 0"),
    ):
        desk = micromsg2_desk()
        connection = desk.open("micromsg2")
        desk.send(connection, spell_handshake(request))
        (error,) = Codec("client").receive_data(desk.got(connection))
        assert isinstance(error, ErrorFrame)
        assert reason in error.reason
        assert len(desk.closes) == 1
    desk = micromsg2_desk()
    connection = desk.open("micromsg2")
    desk.send(connection, spell_handshake(Handshake(2, 0, "c")))
    assert Codec("client").receive_data(desk.got(connection)) == [Handshake(1, 0, "motemq")]


def test_the_window_of_the_broker() -> None:
    """A8: it is what the broker suggests, and more is not sent, whatever a client allows."""
    desk = micromsg2_desk({"window": 3})
    reader, writer = Peer(desk, "pubsub;batch-ack:max-count=100"), Peer(desk)
    reader.subscribe("jobs")
    reader.subscribe("topic/t")
    for number in range(5):
        writer.publish("jobs", b"%d" % number)
        writer.publish("topic/t", b"%d" % number)
    assert len(reader.heard()) == 3
    connection = desk.open("micromsg2")
    offer = Handshake(1, 0, "c", (), read_extensions(b"batch-ack:max-count=100"))
    desk.send(connection, spell_handshake(offer))
    (answer,) = Codec("client").receive_data(desk.got(connection))
    assert answer.optional == read_extensions(b"batch-ack:max-count=3")


def test_frames_in_the_read_of_an_ack_keep_their_order() -> None:
    """R36: one read publishes to the topic that the client itself hears, and makes room for what
    waits: what waits comes first, and numbers follow each other on the wire."""
    desk = micromsg2_desk()
    peer, writer = Peer(desk, "pubsub;batch-ack:max-count=2"), Peer(desk)
    peer.subscribe("topic/t")
    peer.subscribe("jobs")
    for number in range(1, 5):
        writer.publish("topic/t", b"%d" % number)
        writer.publish("jobs", b"%d" % number)
    assert len(peer.heard()) == 2
    acks = peer.agreement.acks
    assert acks is not None
    events = peer.say(peer.spell("topic/t", b"own") + spell_extension(acks.index, b"\0\2"))
    messages = told([event for event in events if not isinstance(event, ExtensionFrame)])
    assert [number for number, *_ in messages] == [3, 4]
    rest = peer.acknowledge(4)
    numbers = [number for number, *_ in told(rest)]
    while rest:
        rest = peer.acknowledge(numbers[-1])
        numbers += [number for number, *_ in told(rest)]
    assert numbers == list(range(5, 10))


def test_what_a_client_may_not_do_is_told() -> None:
    """A25: in an ERROR, as nothing else says that a message is lost; others go on."""
    rules = {
        "roles": {"everybody": {"connect": ["micromsg2"]}},
        "principals": {"alice": {"publish": ["a/*", "jobs"], "subscribe": ["a/*", "jobs"]}},
    }
    users = Users.read({"users": {"alice": {}, "bob": {}}})
    desk = micromsg2_desk(access=access.Access(users, Rules.read(rules)))
    here = access.Peer("127.0.0.1", listener="alice")
    alice = Peer(desk, identity="alice", peer=here)
    assert alice.subscribe("topic/a/*") == alice.subscribe("jobs") == []
    for destination in ("topic/b", "other"):
        bad = Peer(desk, "pubsub;batch-ack", "alice", here)
        assert refused(bad, bad.publish(destination, b"x")) == "access.publish"
        bad = Peer(desk, identity="", peer=here)
        assert refused(bad, bad.subscribe(destination)) == "access.subscribe"
    bob = Peer(desk, identity="bob", peer=access.Peer("127.0.0.1", listener="bob"))
    assert refused(bob, bob.publish("topic/a/b", b"forged")) == "access.publish"
    got = alice.publish("jobs", b"1") + alice.publish("topic/a/b", b"2")
    assert payloads(got) == [b"1", b"2"]


def test_who_comes_while_the_broker_stops_is_told_so() -> None:
    desk = micromsg2_desk()
    desk.broker.stopping()
    connection = desk.open("micromsg2")
    desk.send(connection, spell_handshake(Handshake(1, 0, "late")))
    events = Codec("client").receive_data(desk.got(connection))
    assert events == [ErrorFrame("the broker is stopping")]
    assert [close.connection for close in desk.closes] == [connection]


def _behind(desk: Desk) -> tuple[Peer, int]:
    """A client that has acknowledged nothing of what an FMQP program publishes, which waits."""
    reader = Peer(desk, "pubsub;batch-ack")
    reader.subscribe("topic/t")
    program = desk.open()
    for number in range(10):
        desk.pub(program, "t", b"%09d" % number)
    assert not desk.held
    for number in range(10, 40):
        desk.pub(program, "t", b"%09d" % number)
        if desk.held:
            break
    assert desk.held == {(program, "queue")}
    # Who publishes by HTTP cannot be held, and is told.
    assert desk.broker.makes_publishers_wait
    assert desk.broker.waits_for([b"other", b"t"]) == "a receiver of t is behind"
    assert desk.broker.waits_for([b"other"]) == ""
    return reader, program


def test_publishers_wait_for_a_client_that_is_behind() -> None:
    """R26: and nothing is lost; they go on when it has caught up."""
    desk = micromsg2_desk({"max_backlog_bytes": 1600})
    reader, program = _behind(desk)
    got = payloads(reader.heard())
    while desk.held:
        got += payloads(reader.acknowledge(len(got)))
    assert reader.why_closed == ""
    desk.pub(program, "t", b"last")
    while (more := payloads(reader.acknowledge(len(got)))) or got[-1] != b"last":
        got += more
    assert got[:-1] == [b"%09d" % number for number in range(len(got) - 1)]
    assert desk.behind == {reader.connection: False}
    assert not desk.broker.makes_publishers_wait
    assert reader.why_closed == ""


def test_publishers_do_not_wait_for_ever() -> None:
    """R26: the edge says when a client has let them wait for too long, and it is told so; what it
    leaves behind is released, and so it is if it leaves by itself."""
    desk = micromsg2_desk({"max_backlog_bytes": 1600})
    reader, program = _behind(desk)
    assert desk.behind == {reader.connection: True}
    heard = payloads(reader.heard())
    reader.acknowledge(len(heard) // 2)  # which is not enough
    assert desk.behind == {reader.connection: True}
    desk.broker.stalled(reader.connection, 5.0, desk.now)
    desk.done()
    *_, error = reader.heard()
    why = "publishers had to wait 5 s for this client; it did not catch up"
    assert error == ErrorFrame(why)
    assert reader.why_closed == f"net.stalled_receiver_s: {why}"
    assert not desk.held
    assert desk.behind == {reader.connection: None}
    leaving, program = _behind(desk)
    leaving.close()
    assert not desk.held
    assert desk.behind[leaving.connection] is None
    other, program = _behind(desk)
    desk.close(program)
    assert other.why_closed == ""


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_a_listener_may_drop_what_a_client_is_behind_with(policy: Any) -> None:
    """R26: nobody waits then, it hears the oldest or the newest in order, and all of it again when
    it has caught up; queues are not concerned."""
    desk = micromsg2_desk({"max_backlog_bytes": 1600})
    desk.slow_policy = policy
    reader = Peer(desk, "pubsub;batch-ack:max-count=4")
    reader.subscribe("topic/t")
    reader.subscribe("jobs")
    program = desk.open()
    writer = Peer(desk)
    for number in range(200):
        desk.pub(program, "t", b"%09d" % number)
        if number % 20 == 0:
            writer.publish("jobs", b"job %d" % number)
    assert not desk.held
    got = told(reader.heard())
    while len(more := told(reader.acknowledge(len(got)))):
        got += more
    numbers = [int(payload) for _, to, _, payload in got if to == "topic/t"]
    assert 10 < len(numbers) < 100
    assert numbers == sorted(numbers)
    assert numbers[:3] == [0, 1, 2]
    assert (numbers[-1] == 199) == (policy == "drop-oldest")
    jobs = [payload for _, to, _, payload in got if to == "jobs"]
    assert jobs == [b"job %d" % number for number in range(0, 200, 20)]
    dropped = desk.broker.stats.dropped["micromsg2"]
    assert dropped.messages == 200 - len(numbers)
    assert dropped.bytes > 9 * dropped.messages
    assert reader.why_closed == ""
    desk.pub(program, "t", b"fresh")
    assert payloads(reader.heard()) == [b"fresh"]


def test_a_listener_may_disconnect_who_is_behind() -> None:
    """R26: its publishers do not wait."""
    desk = micromsg2_desk({"max_backlog_bytes": 1600})
    desk.slow_policy = "disconnect"
    reader = Peer(desk, "pubsub;batch-ack")
    reader.subscribe("topic/t")
    program = desk.open()
    for number in range(100):
        desk.pub(program, "t", b"%09d" % number)
    assert not desk.held
    assert reader.why_closed.startswith("net.slow_consumer: too much waits for its acks")


def test_nobody_waits_for_itself() -> None:
    """What it is behind with would never be read then."""
    desk = micromsg2_desk({"max_backlog_bytes": 1600})
    talker = Peer(desk, "pubsub;batch-ack")
    talker.subscribe("topic/t")
    for number in range(40):
        talker.publish("topic/t", b"%09d" % number)
    assert not desk.held
    assert talker.why_closed == ""


def test_a_conversation_with_sharpmessaging() -> None:
    """A1, A12, A15, A28, A29, A31: as its client holds it, byte for byte; it is acknowledged as
    often as it has said, or in half of its time. What it says again because it has heard an ack of
    a part is not published again, and is acknowledged again."""
    said = b"ack:MessagesPerAck=10,AckExpireTime=1000;dotnet"
    hello = bytes.fromhex("010100084d79436c69656e74") + bytes([0, len(said)]) + said + bytes(2)
    desk = micromsg2_desk()
    reader = Peer(desk)
    reader.subscribe("topic/micromsg2")
    reader.subscribe("jobs")
    connection = desk.open("micromsg2")
    desk.send(connection, hello)
    reply = bytes.fromhex("010000066d6f74656d71") + bytes([0, len(said)]) + said + bytes(2)
    assert desk.got(connection) == reply
    desk.send(connection, hello)
    assert desk.got(connection) == b""
    frames = [bytes.fromhex(f"0000{number:02x}0000000168") for number in range(1, 11)]
    desk.send(connection, b"".join(frames[:6]))
    assert payloads(reader.heard()) == [b"h"] * 6
    assert desk.got(connection) == b""
    desk.advance(0.6)
    assert desk.got(connection) == bytes.fromhex("0201020006")
    desk.send(connection, b"".join(frames[6:] + frames[6:]))  # it says the rest twice
    assert desk.got(connection) == bytes.fromhex("020102000a")
    desk.send(connection, frames[9])  # and after its ten seconds
    assert desk.got(connection) == bytes.fromhex("020102000a")
    assert payloads(reader.heard()) == [b"h"] * 4
    tens = [bytes.fromhex(f"0000{number:02x}0000000168") for number in range(11, 31)]
    for frame in tens:  # one a read
        desk.send(connection, frame)
    assert desk.got(connection) == bytes.fromhex("0201020014020102001e")
    assert payloads(reader.heard()) == [b"h"] * 20
    # Properties without types, the type of what comes, and a long payload of a queue.
    type_of = b"System.String, mscorlib"
    desk.send(connection, bytes([2, 2, len(type_of)]) + type_of)
    properties = b"first_name:jonas;twitter:jgauffin;"
    head = bytes.fromhex("08001f046a6f6273") + bytes([0, len(properties)]) + properties
    desk.send(connection, head + (300).to_bytes(4, "big") + bytes(300))
    desk.advance(0.6)
    assert desk.got(connection) == bytes.fromhex("020102001f")
    ((_, destination, got, payload),) = told(reader.heard())
    assert (destination, payload) == ("jobs", bytes(300))
    # The reader has not agreed on types.
    assert got == "first_name:Tjonas;twitter:Tjgauffin;queue-number:N1"
    # An empty payload ends with its length; a topic's is not delivered, and is acknowledged.
    desk.send(connection, bytes.fromhex("00002000000000"))
    desk.advance(0.6)
    assert desk.got(connection) == bytes.fromhex("0201020020")
    desk.advance(60)
    assert desk.got(connection) == b""
    assert reader.heard() == []
    assert desk.closes == []


def test_a_peer_that_prints_4_for_extension() -> None:
    """A1: with ``micromsg2.legacy_ext_flag4`` its acks are acks, and ours are as ever; without, it
    is an ERROR of the peer, which ends the connection."""
    for legacy, told_of_second in ((True, [b"2"]), (False, [])):
        desk = micromsg2_desk({"legacy_ext_flag4": legacy})
        reader, writer = Peer(desk, "ack;pubsub"), Peer(desk, "batch-ack")
        reader.subscribe("topic/t")
        for body in (b"1", b"2"):
            assert writer.acked(writer.publish("topic/t", body)) == [writer.sequence]
        assert payloads(reader.heard()) == [b"1"]
        assert payloads(reader.say(bytes.fromhex("0401020001"))) == told_of_second
        assert bool(reader.why_closed) is not legacy
