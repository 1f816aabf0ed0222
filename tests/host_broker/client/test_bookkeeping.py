"""What a client remembers: unconfirmed publications, and messages that nobody took yet."""

from hypothesis import given
from hypothesis import strategies as st

from host_broker.client.inbox import Mark
from host_broker.client.subscriptions import Subscribed, Subscriptions
from host_broker.client.unconfirmed import MOST_BYTES, MOST_MESSAGES, Unconfirmed
from host_broker.client_session import Message, Messages, Publication, Subscription
from tests.host_broker.client.sessions import fmqp


def _numbered(number: int) -> Publication:
    return Publication("t", b"%d" % number)


def test_the_first_message_wants_a_mark_and_the_next_hundred_wait_for_its_answer() -> None:
    held = Unconfirmed()
    assert not held.wants_mark
    held.hold(_numbered(0))
    assert held.wants_mark
    held.mark(1)
    for number in range(1, 100):
        held.hold(_numbered(number))
        assert not held.wants_mark
    held.hold(_numbered(100))
    assert held.wants_mark
    held.reached(1)
    assert [publication.payload for publication in held] == [b"%d" % n for n in range(1, 101)]


def test_what_is_held_is_bounded_by_count_and_by_bytes() -> None:
    many, large = Unconfirmed(), Unconfirmed()
    for number in range(MOST_MESSAGES):
        assert not many.full
        many.hold(_numbered(number))
    assert many.full
    large.hold(Publication("t", bytes(MOST_BYTES - 1)))
    assert not large.full
    large.hold(Publication("t", b"x"))
    assert large.full
    large.mark(1)
    large.reached(1)
    assert (len(large), large.full) == (0, False)


def test_after_a_loss_everything_is_asked_for_anew() -> None:
    held = Unconfirmed()
    for number in range(3):
        held.hold(_numbered(number))
        held.mark(number)
    held.lost()
    assert held.wants_mark
    held.reached(0)  # an answer of the connection that is gone
    assert len(held) == 3
    held.mark(7)
    held.reached(7)
    assert len(held) == 0


@given(steps=st.lists(st.sampled_from(["hold", "mark", "reach", "lose"]), max_size=60))
def test_nothing_is_dropped_before_it_was_confirmed(steps: list[str]) -> None:
    """Against a broker that has what was sent before a mark when it answers that."""
    held, sent, has, marks, operation = Unconfirmed(), 0, 0, dict[int, int](), 0
    for step in steps:
        if step == "hold":
            held.hold(_numbered(sent))
            sent += 1
        elif step == "mark":
            operation += 1
            held.mark(operation)
            marks[operation] = sent
        elif step == "lose":
            held.lost()
            marks.clear()
        elif marks:
            answered = min(marks)
            has = max(has, marks.pop(answered))
            held.reached(answered)
        assert [int(publication.payload) for publication in held] == list(range(has, sent))


def _subscribed(number: int, *patterns: str, feedback: bool = False) -> Subscribed:
    return Subscribed(Subscription(number, patterns, confirm=True, feedback=feedback))


def _taken(all: Subscriptions, subscribed: Subscribed | None) -> list[object]:
    taken = []
    while (item := all.take(subscribed)) is not None:
        taken.append(item.payload if isinstance(item, Message) else item)
    return taken


def test_who_is_not_read_by_itself_shares_the_inbox() -> None:
    all = Subscriptions(fmqp().matches)
    all.add(_subscribed(1, "a/*"))
    all.deliver(Messages([Message("a/b", b"1"), Message("c", b"2")]))
    assert all.unread_bytes == 2 * 257
    assert _taken(all, None) == [b"1", b"2"]
    assert all.unread_bytes == 0


def test_the_first_look_takes_what_has_come_already_in_order() -> None:
    all = Subscriptions(fmqp().matches)
    first, second = _subscribed(1, "a/*"), _subscribed(2, "*/b")
    all.add(first)
    all.add(second)
    all.deliver(Messages([Message("a/x", b"1"), Message("other", b"2")]))
    all.mark(first, active=True)
    all.deliver(Messages([Message("a/b", b"3")]))
    assert not first.active
    assert _taken(all, first) == [b"1", Mark(1, True), b"3"]
    assert first.active
    all.deliver(Messages([Message("a/b", b"4"), Message("other", b"5")]))
    assert _taken(all, second) == []  # it came while second was not read by itself
    all.deliver(Messages([Message("a/b", b"6")]))
    assert _taken(all, first) == [b"4", b"6"]
    assert _taken(all, second) == [b"6"]
    assert _taken(all, None) == [b"2", b"5"]
    assert all.unread_bytes == 0


def test_the_protocol_may_say_which_subscription_it_is_for() -> None:
    all = Subscriptions(lambda pattern, topic: False)
    mine = _subscribed(3, "anything")
    all.add(mine)
    all.inbox_of(mine)
    all.deliver(Messages([Message("x", b"1")], subscription=3))
    all.deliver(Messages([Message("x", b"2")], subscription=4))
    assert _taken(all, mine) == [b"1"]
    assert _taken(all, None) == [b"2"]


def test_what_came_before_anybody_read_is_for_whom_the_protocol_said() -> None:
    """UMQ tells each subscription of its own copy, also if the patterns of another match."""
    all = Subscriptions(lambda pattern, topic: True)
    first, second = _subscribed(1, "a/*"), _subscribed(2, "a/b")
    for subscribed in (first, second):
        all.add(subscribed)
    for body in (b"x", b"y"):
        all.deliver(Messages([Message("a/b", body)], subscription=1))
        all.deliver(Messages([Message("a/b", body)], subscription=2))
    all.deliver(Messages([Message("a/b", b"any")]))
    assert _taken(all, first) == [b"x", b"y", b"any"]
    assert _taken(all, second) == [b"x", b"y"]
    assert _taken(all, None) == []
    assert all.unread_bytes == 0


def test_what_is_left_of_a_batch_is_still_for_whom_it_came() -> None:
    all = Subscriptions(lambda pattern, topic: True)
    first, second = _subscribed(1, "a/*"), _subscribed(2, "a/b")
    for subscribed in (first, second):
        all.add(subscribed)
    all.deliver(Messages([Message("a/b", b"1"), Message("a/b", b"2")], subscription=2))
    taken = all.take(None)
    assert isinstance(taken, Message)
    assert taken.payload == b"1"
    assert _taken(all, first) == []
    assert _taken(all, second) == [b"2"]


def test_somebody_finishes_with_what_came_for_one_that_left() -> None:
    all = Subscriptions(lambda pattern, topic: pattern == topic)
    first, second = _subscribed(1, "jobs"), _subscribed(2, "jobs")
    for subscribed in (first, second):
        all.add(subscribed)
    all.deliver(Messages([Message("jobs", b"1", receipt=1)], subscription=1))
    all.remove(first)
    assert _taken(all, second) == [b"1"]
    assert [message.payload for message in all.finished] == [b"1"]


def test_feedback_is_not_for_who_wants_messages() -> None:
    all = Subscriptions(fmqp().matches)
    told, heard = _subscribed(1, "a", feedback=True), _subscribed(2, "a")
    for subscribed in (told, heard):
        all.add(subscribed)
        all.inbox_of(subscribed)
    all.deliver(Messages([Message("a", b"1", feedback=True), Message("a", b"2")]))
    assert (_taken(all, told), _taken(all, heard)) == ([b"1"], [b"2"])


def test_what_came_for_a_removed_one_can_still_be_taken() -> None:
    all = Subscriptions(fmqp().matches)
    gone = _subscribed(1, "a")
    all.add(gone)
    all.inbox_of(gone)
    all.deliver(Messages([Message("a", b"1")]))
    all.remove(gone)
    all.remove(gone)
    all.deliver(Messages([Message("a", b"2")]))
    assert _taken(all, gone) == [b"1"]
    assert _taken(all, None) == []
    assert all.unread_bytes == 0


def test_what_nobody_will_read_does_not_count() -> None:
    """Or a program that ends its subscriptions early would hear nothing at all at last."""
    all = Subscriptions(fmqp().matches)
    for number in range(1, 7, 2):
        gone, unread = _subscribed(number, "a/*"), _subscribed(number + 1, "b")
        for subscribed in (gone, unread):
            all.add(subscribed)
        all.inbox_of(gone)
        all.deliver(Messages([Message("a/x", b"1"), Message("a/y", b"2"), Message("b", b"3")]))
        all.take(gone)
        assert all.unread_bytes == 2 * 257
        all.remove(gone)
        all.deliver(Messages([Message("a/x", b"under way"), Message("b", b"4")]))
        assert all.unread_bytes == 2 * 257
        all.remove(unread)
        assert _taken(all, unread) == [b"3", b"4"]  # nobody had read it: the first look finds it
        assert _taken(all, gone) == [b"2"]
        assert all.unread_bytes == 0


def test_what_was_never_subscribed_to_comes_all_the_same() -> None:
    """LightMQ's broker sends what it likes; also what an old subscription wants that is back."""
    all = Subscriptions(fmqp().matches)
    gone = _subscribed(1, "a/*")
    all.add(gone)
    all.remove(gone)
    all.deliver(Messages([Message("b", b"1"), Message("a/1", b"2")]))
    assert _taken(all, None) == [b"1"]
    all.add(_subscribed(2, "a/1"))
    all.deliver(Messages([Message("a/1", b"3"), Message("a/2", b"4")]))
    assert _taken(all, None) == [b"3"]
    all.add(_subscribed(3, "a/*"))
    all.deliver(Messages([Message("a/2", b"5")]))
    assert _taken(all, None) == [b"5"]


def test_what_was_told_of_one_that_left_is_for_nobody() -> None:
    all = Subscriptions(lambda pattern, topic: True)
    first, second = _subscribed(1, "a/*"), _subscribed(2, "a/b")
    for subscribed in (first, second):
        all.add(subscribed)
    all.remove(first)
    all.deliver(Messages([Message("a/b", b"1")], subscription=1))
    all.deliver(Messages([Message("a/b", b"2")], subscription=2))
    assert _taken(all, second) == [b"2"]
    assert all.unread_bytes == 0


def test_what_a_leaving_reader_has_not_taken_is_told_of_nobody() -> None:
    """Whoever reads next has what it wants of it, also behind what was told of others."""
    all = Subscriptions(lambda pattern, topic: pattern == topic)
    first, second, third = (
        _subscribed(1, "jobs"),
        _subscribed(2, "jobs"),
        _subscribed(3, "other"),
    )
    for subscribed in (first, second, third):
        all.add(subscribed)
    all.inbox_of(first)
    all.deliver(Messages([Message("other", b"%d" % n) for n in range(3)], subscription=3))
    all.deliver(Messages([Message("jobs", b"9", receipt=9)], subscription=1))
    assert isinstance(all.take(None), Message)  # what is left is told of the third
    all.remove(first)
    assert _taken(all, second) == [b"9"]
    assert _taken(all, third) == [b"1", b"2"]


def test_signs_between_messages_do_not_outlive_them() -> None:
    all = Subscriptions(lambda pattern, topic: True)
    for number in range(1, 100, 2):
        first, second = _subscribed(number, "a/*"), _subscribed(number + 1, "a/b")
        for subscribed in (first, second):
            all.add(subscribed)
        for _ in range(5):
            all.deliver(Messages([Message("a/b", b"x")], subscription=number))
            all.deliver(Messages([Message("a/b", b"y")], subscription=number + 1))
        for subscribed in (first, second):
            assert len(_taken(all, subscribed)) == 5
            all.remove(subscribed)
    assert not all.inbox.items


def test_what_a_leaving_reader_has_not_taken_is_for_one_who_reads() -> None:
    """Not for an inbox where nobody looks: without its ack the broker would send no more."""
    all = Subscriptions(lambda pattern, topic: pattern == topic)
    first, second = _subscribed(1, "jobs"), _subscribed(2, "jobs")
    for subscribed in (first, second):
        all.add(subscribed)
    all.inbox_of(first)
    queued = [Message("jobs", b"%d" % number, receipt=number) for number in range(1, 4)]
    all.deliver(Messages(queued[:2]))
    all.inbox_of(second)
    all.deliver(Messages(queued[2:]))
    all.remove(first)
    assert _taken(all, second) == [b"1", b"2", b"3"]
    assert [message.payload for message in all.finished] == [b"1", b"2", b"3"]
    assert all.unread_bytes == 0
