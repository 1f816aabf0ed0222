"""The line protocol in a whole broker on a desk: topics, filters, properties, queues, the end."""

import pytest

from host_broker.bus.publication import unpack_with_properties
from tests.host_broker.desk import Desk
from tests.host_broker.lightmq_peer import board
from tests.host_broker.own_protocol.line_peer import LinePeer, line_desk


def test_publish_and_subscribe() -> None:
    desk = line_desk()
    reader, writer = LinePeer(desk), LinePeer(desk)
    assert reader.say("sub home/*") == ["ok 1"]
    assert writer.say("pub home/lamp : on", "pub garden/lamp : off") == []
    assert reader.heard() == ["msg 1 home/lamp : on"]
    assert reader.say("unsub 1", "unsub 1") == ["ok", "err no subscription 1"]
    writer.say("pub home/lamp : off")
    assert reader.heard() == []


def test_a_delivery_names_every_subscription_that_matched() -> None:
    desk = line_desk()
    reader, writer = LinePeer(desk), LinePeer(desk)
    assert reader.say("sub a/*", "sub a/b where body > 5", "sub a/b") == ["ok 1", "ok 2", "ok 3"]
    writer.say("pub a/b : 4", "pub a/b : 6", "pub a/c : 6")
    assert reader.heard() == ["msg 1,3 a/b : 4", "msg 1,2,3 a/b : 6", "msg 1 a/c : 6"]
    assert reader.say("unsub 3") == ["ok"]
    writer.say("pub a/b : 4")
    assert reader.heard() == ["msg 1 a/b : 4"]


def test_a_filter_looks_at_properties() -> None:
    desk = line_desk()
    reader, writer = LinePeer(desk), LinePeer(desk)
    reader.say("sub t where unit = K", "sub t where body contains warm")
    writer.say("pub t unit=K : 300", "pub t unit=C : 27", "pub t unit=C by=me : so warm")
    assert reader.heard() == ["msg 1 t unit=K : 300", "msg 2 t unit=C by=me : so warm"]


def test_what_is_kept_is_told_after_the_answer_and_filtered() -> None:
    desk = line_desk()
    LinePeer(desk).say("keep t/1 unit=K : 300", "keep t/2 : 7")
    reader = LinePeer(desk)
    assert reader.say("sub t/*", "sub t/* where unit = K") == [
        "ok 1",
        "msg 1 t/1 unit=K : 300",
        "msg 1 t/2 : 7",
        "ok 2",
        "msg 2 t/1 unit=K : 300",
    ]


def test_other_protocols_are_heard_and_hear() -> None:
    desk = line_desk()
    line, fmqp, kitchen = LinePeer(desk), desk.open(), board(desk, "kitchen")
    line.say("sub room/*", "sub lightmq/*/up")
    desk.sub(fmqp, "from/line")
    desk.got(fmqp)
    desk.pub(fmqp, "room/1", b"two\nlines")
    kitchen.say(kitchen.codec.send(1, b"warm"))
    assert line.heard() == ["msg 1 room/1 : two%0Alines", "msg 2 lightmq/kitchen/up : warm"]
    line.say("pub from/line unit=K : 1", "pub lightmq/kitchen/down : hot%0Awater")
    assert desk.messages(fmqp) == [(0, "from/line", b"1")]
    assert [send.data for send in kitchen.sends()] == [b"hot\nwater"]


def test_the_journal_keeps_properties_under_the_protocols_code() -> None:
    desk = line_desk()
    LinePeer(desk).say("pub a : 1", "pub a unit=K : 2")
    plain, rich = desk.records
    assert (plain.protocol, plain.encoding, plain.count) == (200, 1, 1)
    assert (rich.protocol, rich.encoding, rich.count) == (200, 2, 1)
    assert list(unpack_with_properties(rich.body)) == [(0, b"a", b"2", {"unit": b"K"})]


def test_a_will_is_published_unless_the_client_says_quit() -> None:
    desk = line_desk()
    reader = LinePeer(desk)
    reader.say("sub gone/*")
    crashed, left = LinePeer(desk), LinePeer(desk)
    crashed.say("will gone/1 : first", "will gone/1 why=crash : second")
    assert left.say("will gone/2 : x", "quit", "pub gone/2 : too late") == ["bye"]
    assert left.why_closed == "it said quit"
    left.close()
    crashed.close()
    assert reader.heard() == ["msg 1 gone/1 why=crash : second"]


def test_wills_take_the_memory_of_the_broker_and_give_it_back() -> None:
    desk = line_desk(bus={"max_held_bytes": 100})
    for _ in range(3):
        one, other = LinePeer(desk), LinePeer(desk)
        assert one.say("will a : " + "x" * 80) == []
        assert other.say("will a : " + "y" * 80) == ["err no room for another last will"]
        assert one.say("will a : " + "z" * 90) == []
        other.close()
        one.close()
    assert desk.broker.stats.discarded == {"line": {"bus.max_held_bytes": 3}}


def test_the_brokers_own_topics_are_not_for_publishers() -> None:
    desk = line_desk()
    assert LinePeer(desk).say("pub $/info/clients : 7") == [
        "err what begins with $ is the broker's own"
    ]


def test_each_message_of_a_queue_is_for_one_consumer_in_order() -> None:
    desk = line_desk()
    writer, one, other = LinePeer(desk), LinePeer(desk), LinePeer(desk)
    writer.say("put jobs : a", "put jobs kind=x : b")
    assert one.say("take jobs 2") == ["ok", "job 1 jobs : a", "job 2 jobs kind=x : b"]
    writer.say("put jobs : c", "put jobs : d")
    assert one.heard() == []
    assert other.say("take jobs 1") == ["ok", "job 3 jobs : c"]
    assert one.say("ack jobs 1") == ["job 4 jobs : d"]
    assert other.say("ack jobs 1") == []


@pytest.mark.parametrize("how", ["leave", "close", "quit"])
def test_what_a_consumer_did_not_acknowledge_is_redelivered(how: str) -> None:
    desk = line_desk()
    writer, one, other = LinePeer(desk), LinePeer(desk), LinePeer(desk)
    writer.say("put jobs : a", "put jobs : b", "put jobs : c")
    one.say("take jobs 2", "ack jobs 1")
    assert len(one.heard()) == 0
    if how == "close":
        one.close()
    else:
        one.say("leave jobs" if how == "leave" else "quit")
    assert other.say("take jobs 9") == ["ok", "again 2 jobs : b", "again 3 jobs : c"]


def test_what_comes_back_twice_is_still_in_order() -> None:
    """The second consumer is given the first message after the second one."""
    desk = line_desk()
    writer, one, other, heir = (LinePeer(desk) for _ in range(4))
    writer.say("put jobs : a", "put jobs : b")
    assert one.say("take jobs 1") == ["ok", "job 1 jobs : a"]
    assert other.say("take jobs 2") == ["ok", "job 2 jobs : b"]
    one.close()
    assert other.heard() == ["again 1 jobs : a"]
    other.close()
    assert heir.say("take jobs 9") == ["ok", "again 1 jobs : a", "again 2 jobs : b"]


def test_a_full_queue_holds_its_publishers_only() -> None:
    desk = line_desk({"queue_messages": 2})
    writer, bystander, reader = LinePeer(desk), LinePeer(desk), LinePeer(desk)
    writer.say("put jobs : 1")
    assert not writer.held
    writer.say("put jobs : 2")
    assert writer.held
    bystander.say("put others : 1", "pub t : 1")
    assert not bystander.held
    assert reader.say("take jobs 1") == ["ok", "job 1 jobs : 1"]
    assert writer.held
    reader.say("ack jobs 1")
    assert not writer.held


def test_who_fills_a_queue_again_after_emptying_it_in_one_read_is_held() -> None:
    """The hold comes after the release, and the edge is told so."""
    desk = line_desk({"queue_messages": 1})
    both = LinePeer(desk)
    assert both.say("put jobs : 1", "take jobs 1", "ack jobs 1", "put jobs : 2")[-1] == (
        "job 2 jobs : 2"
    )
    assert both.held
    both.say("ack jobs 2")
    assert not both.held


def test_what_the_bus_refuses_is_said() -> None:
    desk = line_desk(bus={"max_queues": 1, "max_subscriptions": 1})
    peer = LinePeer(desk)
    assert peer.say("sub a", "sub b") == ["ok 1", "err bus.max_subscriptions"]
    assert peer.say("unsub 2", "unsub 1", "sub b") == ["err no subscription 2", "ok", "ok 3"]
    assert peer.say("put one : x", "put two : x", "take two 1") == [
        "err bus.max_queues",
        "err bus.max_queues",
    ]
    assert desk.broker.stats.discarded["line"]["bus.max_queues"] == 2


def test_too_many_wrong_lines_are_the_end() -> None:
    desk = line_desk({"max_errors": 3})
    peer = LinePeer(desk)
    assert len(peer.say("no", "no")) == 2
    assert peer.why_closed == ""
    heard = peer.say("sub 1 2", "ping")
    assert heard == ["err a space in '1 2': write it as %20"]
    assert peer.why_closed.startswith("it said line.max_errors wrong lines")
    assert desk.broker.stats.discarded["line"]["syntax"] == 3


def test_a_line_is_no_longer_than_a_body_may_be() -> None:
    desk = line_desk(bus={"max_body": 20})
    assert LinePeer(desk).say("pub a : " + "x" * 13) == ["err a line is longer than 20 bytes"]


def test_who_comes_while_the_broker_stops_is_told_so() -> None:
    desk = line_desk()
    before = LinePeer(desk)
    desk.broker.stopping()
    late = LinePeer(desk)
    assert before.say("ping") == []
    assert late.say("ping") == ["err the broker is stopping"]
    assert late.why_closed == "the broker is stopping"


def test_silence_is_the_edges_to_end() -> None:
    assert line_desk().broker.idle_timeouts == {}
    assert line_desk({"idle_timeout_s": 5.0}).broker.idle_timeouts == {"line": 5.0}


def test_a_desk_without_it_does_not_know_it() -> None:
    with pytest.raises(ValueError, match="protocol 'line' is none of fmqp, lightmq"):
        Desk().open("line")
