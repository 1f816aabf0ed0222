"""Who does a check together."""

from boards.session.worker_pool import WAIT_S, Meeting


def test_nobody_begins_while_others_may_come() -> None:
    meeting = Meeting(["a", "b", "c"])
    meeting.arrive("c", 0.0)
    meeting.arrive("a", 1.0)
    assert meeting.group(WAIT_S - 1) == []
    meeting.arrive("b", 2.0)
    assert meeting.group(2.0) == ["a", "b", "c"]
    assert meeting.group(WAIT_S + 9) == []


def test_a_board_that_failed_is_not_waited_for() -> None:
    meeting = Meeting(["a", "b", "c"])
    meeting.arrive("a", 0.0)
    meeting.leave("b")
    assert meeting.group(1.0) == []
    meeting.leave("c")
    assert meeting.group(1.0) == ["a"]


def test_a_slow_board_is_not_waited_for_longer_than_that_and_meets_whoever_comes_then() -> None:
    meeting = Meeting(["a", "b", "c", "d"])
    meeting.arrive("a", 10.0)
    meeting.arrive("b", 20.0)
    assert meeting.group(10.0 + WAIT_S) == ["a", "b"]
    meeting.arrive("c", 100.0)
    assert meeting.group(100.0) == []
    meeting.arrive("d", 110.0)
    assert meeting.group(110.0) == ["c", "d"]


def test_a_board_that_dies_while_it_waits_is_in_no_group() -> None:
    meeting = Meeting(["a", "b"])
    meeting.arrive("a", 0.0)
    meeting.leave("a")
    assert meeting.group(WAIT_S + 1) == []
    meeting.arrive("b", 5.0)
    assert meeting.group(5.0) == ["b"]
