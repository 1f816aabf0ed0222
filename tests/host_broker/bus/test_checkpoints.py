"""Checkpoints of durable queues: what is kept for them, what comes again, what a restart leaves."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.bus.publication import NO_PROPERTIES
from host_broker.bus.queue import Queue, read_state, spell_state

_BIG = 1 << 30
_CONSUMER = 1


def _queue(max_messages: int = _BIG, max_bytes: int = _BIG) -> Queue:
    return Queue(
        b"q",
        "drop-newest",
        permanent=True,
        durable=True,
        max_messages=max_messages,
        max_bytes=max_bytes,
    )


def _put(queue: Queue, count: int) -> None:
    for _ in range(count):
        queue.put(b"t", b"body", NO_PROPERTIES)


def _given(queue: Queue) -> list[int]:
    """Have what waits be taken by a consumer that is done with it; the numbers."""
    queue.consume(_CONSUMER, 1, acknowledged=False)
    numbers = [each.number for each in queue.assign().get(_CONSUMER, [])]
    queue.leave(_CONSUMER)
    return numbers


def test_what_was_done_with_waits_once_more() -> None:
    queue = _queue()
    _put(queue, 5)
    assert queue.set_checkpoint(b"start", 0)
    assert _given(queue) == [1, 2, 3, 4, 5]
    assert queue.set_checkpoint(b"later", 3)
    assert queue.take_forgotten() == []
    _put(queue, 1)
    assert queue.go_back(b"later")
    assert (len(queue), queue.kept) == (3, 3)
    assert _given(queue) == [4, 5, 6]
    assert queue.go_back(b"start")
    assert _given(queue) == [1, 2, 3, 4, 5, 6]
    assert queue.forget_checkpoint(b"start")
    assert queue.take_forgotten() == [1, 2, 3]
    assert queue.forget_checkpoint(b"later")
    assert sorted(queue.take_forgotten()) == [4, 5, 6]
    assert (len(queue), queue.size, queue.kept) == (0, 0, 0)
    assert not queue.forget_checkpoint(b"later")
    assert not queue.go_back(b"later")


def test_what_comes_again_is_marked() -> None:
    queue = _queue()
    _put(queue, 1)
    queue.set_checkpoint(b"a", 0)
    _given(queue)
    queue.go_back(b"a")
    queue.consume(_CONSUMER, 1, acknowledged=False)
    ((message,),) = queue.assign().values()
    assert message.redelivered


@pytest.mark.parametrize(("number", "is_there"), [(1, False), (2, True), (5, True), (6, False)])
def test_only_places_after_which_all_is_there(number: int, is_there: bool) -> None:
    """Of five messages two are gone."""
    queue = _queue()
    _put(queue, 2)
    assert _given(queue) == [1, 2]
    _put(queue, 3)
    assert queue.set_checkpoint(b"a", number) is is_there
    assert (b"a" in queue.checkpoints) is is_there


@pytest.mark.parametrize("limits", [{"max_messages": 10}, {"max_bytes": 50}])
def test_the_oldest_checkpoint_goes_when_too_much_is_kept(limits: dict[str, int]) -> None:
    """As much is kept as may wait: ten messages, of five bytes each."""
    queue = _queue(**limits)
    queue.set_checkpoint(b"old", 0)
    for _ in range(2):
        _put(queue, 5)
        _given(queue)
    queue.set_checkpoint(b"new", 5)
    assert queue.take_forgotten() == []
    _put(queue, 1)
    _given(queue)
    assert queue.checkpoints == {b"new": 5}
    assert queue.take_forgotten() == [1, 2, 3, 4, 5]
    queue.go_back(b"new")
    assert _given(queue) == [6, 7, 8, 9, 10, 11]


def test_what_is_acknowledged_out_of_order_is_kept_in_order() -> None:
    """Which place is the first after which all is there, and what gives way, is by numbers."""
    queue = _queue(max_messages=3)
    queue.set_checkpoint(b"start", 0)
    _put(queue, 3)
    queue.consume(_CONSUMER, 3, acknowledged=True)
    queue.assign()
    assert queue.acknowledge(_CONSUMER, [3, 1, 2]) == 3
    assert queue.set_checkpoint(b"second", 1)
    _put(queue, 1)
    queue.assign()
    queue.acknowledge(_CONSUMER, [4])
    assert queue.checkpoints == {b"second": 1}
    queue.go_back(b"second")
    ((*again,),) = queue.assign().values()
    assert [each.number for each in again] == [2, 3, 4]


def test_after_a_restart_a_place_can_be_set_as_often_as_before() -> None:
    """Numbers that were marked as given and never used are no messages that are gone."""
    queue = _queue()
    _put(queue, 1)
    queue.set_checkpoint(b"a", 0)
    _given(queue)
    state = spell_state(queue)
    queue = _queue()
    queue.restore_state(state)
    queue.restore(1, b"t", b"body", NO_PROPERTIES)
    for _ in range(2):
        assert queue.set_checkpoint(b"a", 1)
    assert queue.take_forgotten() == [1]
    assert not queue.set_checkpoint(b"a", 0)


def test_what_a_consumer_did_not_get_is_not_kept() -> None:
    """It left because of a message that came before."""
    queue = _queue()
    _put(queue, 3)
    queue.set_checkpoint(b"a", 0)
    queue.consume(_CONSUMER, 1, acknowledged=False)
    ((*_, last),) = queue.assign().values()
    queue.take_back([last])
    assert (len(queue), queue.kept, queue.done) == (1, 2, 0)
    queue.proceed(_CONSUMER)  # they are sent
    assert (len(queue), queue.kept, queue.done) == (1, 2, 2)
    queue.go_back(b"a")
    assert (len(queue), queue.kept, queue.done) == (3, 0, 0)


def test_state_that_is_none() -> None:
    assert read_state(b"7") == (7, 0, {}, b"")
    for text in (b"", b"x", b"1 2 3", b"1 2 3=zz"):
        with pytest.raises(ValueError, match=r"."):
            read_state(text)


@dataclass
class _Naive:
    """All messages by number, and which of them are done with."""

    last: int = 0
    done: int = 0
    checkpoints: dict[bytes, int] = field(default_factory=dict)
    gone: int = 0  # up to this number

    def drop(self) -> None:
        self.gone = max(self.gone, min([self.done, *self.checkpoints.values()]))


_NAMES = st.sampled_from([b"a", b"b", b"\xff="])
_STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 4)),
    st.tuples(st.just("take"), st.just(0)),
    st.tuples(st.just("set"), st.tuples(_NAMES, st.integers(0, 30))),
    st.tuples(st.just("forget"), _NAMES),
    st.tuples(st.just("go back"), _NAMES),
    st.tuples(st.just("restart"), st.just(0)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_STEPS, max_size=30))
def test_checkpoints_are_as_naive_ones(steps: list[tuple[str, object]]) -> None:
    """Also when the broker is ended anywhere, and has only what was stored."""
    queue, naive = _queue(), _Naive()
    stored: set[int] = set()
    for do, what in steps:
        match do, what:
            case "put", int(count):
                before = queue.last_number
                _put(queue, count)
                stored |= set(range(before + 1, queue.last_number + 1))
                naive.last = queue.last_number
            case "take", _:
                assert [each for each in _given(queue) if each <= naive.done] == []
                naive.done = naive.last
            case "set", (bytes(name), int(number)):
                can = naive.gone <= number <= naive.last
                assert queue.set_checkpoint(name, number) is can
                if can:
                    naive.checkpoints[name] = number
            case "forget", bytes(name):
                was = naive.checkpoints.pop(name, None)
                assert queue.forget_checkpoint(name) is (was is not None)
            case "go back", bytes(name):
                assert queue.go_back(name) is (name in naive.checkpoints)
                naive.done = min(naive.done, naive.checkpoints.get(name, naive.done))
            case _:
                state = spell_state(queue)
                queue = _queue()
                queue.restore_state(state)
                for number in sorted(stored):
                    queue.restore(number, b"t", b"body", NO_PROPERTIES)
                if not naive.checkpoints and not stored:  # as a file that has nothing of it
                    queue, naive = _queue(), _Naive()
                naive.last = max(naive.last, queue.last_number)
                if not len(queue):
                    naive.done = naive.last
        naive.drop()
        forgotten = queue.take_forgotten()
        assert stored >= set(forgotten)
        stored -= set(forgotten)
        assert queue.checkpoints == naive.checkpoints
        assert all(number > naive.gone for number in stored)
        assert set(queue.numbers) == stored
        assert len(queue) == len([each for each in stored if each > naive.done])


def _acknowledged_last_first(count: int, **limits: int) -> Queue:
    queue = _queue(**limits)
    _put(queue, count)
    assert queue.set_checkpoint(b"start", 0)
    queue.consume(_CONSUMER, count, acknowledged=True)
    queue.assign()
    for number in range(count, 0, -1):
        queue.acknowledge(_CONSUMER, [number])
    return queue


def test_in_which_order_it_was_acknowledged_is_no_matter_of_places() -> None:
    queue = _acknowledged_last_first(10)
    assert queue.set_checkpoint(b"middle", 4)
    assert queue.go_back(b"middle")
    assert [each.number for each in queue.assign()[_CONSUMER]] == [5, 6, 7, 8, 9, 10]


def test_the_oldest_goes_first_in_whichever_order_it_was_acknowledged() -> None:
    queue = _acknowledged_last_first(10, max_messages=10)
    assert queue.set_checkpoint(b"middle", 4)
    _put(queue, 1)
    queue.assign()
    queue.acknowledge(_CONSUMER, [11])
    assert (list(queue.checkpoints), queue.kept) == ([b"middle"], 7)


def test_what_is_done_with_is_known_without_a_look_at_all_that_waits() -> None:
    """Also while a consumer that chooses takes from the middle."""
    queue = _queue()
    _put(queue, 1000)
    queue.consume(_CONSUMER, 1000, acknowledged=True, filter=lambda topic, properties, body: True)
    queue.leave(_CONSUMER)
    wanted = {2, 500}
    queue.consume(
        _CONSUMER, 9, acknowledged=True, filter=lambda *_: len(seen.append(1) or seen) in wanted
    )
    seen: list[int] = []
    assert [each.number for each in queue.assign()[_CONSUMER]] == [2, 500]
    waiting = queue._waiting
    assert queue.done == 0
    assert queue._waiting is waiting
    queue.consume(2, 1, acknowledged=True)
    queue.assign()
    queue.acknowledge(2, [1])
    assert queue.done == 1
    queue.acknowledge(_CONSUMER, [2, 500])
    assert queue.done == 2
