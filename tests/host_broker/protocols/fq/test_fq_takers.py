"""Peers that acknowledge: what they are given, and what is done with."""

from typing import Any

import pytest

from host_broker.bus.queue import read_place
from host_broker.protocols.fq import pages
from host_broker.protocols.fq.codec import (
    PERMANENT,
    spell_greeting,
    spell_head,
    spell_origin,
    spell_run,
    spell_taken,
)
from host_broker.protocols.fq.events import DataGreeting
from tests.host_broker.desk import Desk, Done
from tests.host_broker.protocols.fq.peer import AWAITED, ID, Heard, Peer, fq_desk

_NODE, _OTHER = b"\x0a\0\0\1", b"\x0a\0\0\2"
_QUEUE = b"for-us\0disk:private,block,permanent,backlog=5"
_ANOTHER = b"somebody"
_PATH = b"fq/for-us"


def _takes(desk: Desk, taken: int = 0, name: bytes = bytes(8), queue: bytes = _QUEUE) -> Peer:
    """A peer that has all up to ``taken`` under a name."""
    peer = Peer(desk, queue, data=False)
    accepted = peer.answers[0]
    peer.data = desk.open("fq")
    greeting = DataGreeting(accepted.key, _NODE, peer=True, taker=name, taken=taken)
    peer.welcome = AWAITED
    desk.send(peer.data, spell_greeting(greeting))
    return peer


def _welcome(peer: Peer) -> tuple[bytes, int]:
    """Under which name its numbers count from now on, and up to which of them it has all."""
    assert len(peer.welcome) == 16
    return peer.welcome[:8], int.from_bytes(peer.welcome[8:], "big")


def _bound(desk: Desk) -> Peer:
    peer = Peer(desk, _QUEUE, data=False)
    peer.bind(b"ex", b"prefix:", PERMANENT)
    peer.close()
    return Peer(desk, b"p")


def _numbers(heard: list[Heard]) -> dict[int, bytes]:
    return {pages.read_place(each.id): each.payload for each in heard}


def _again(kept: dict[bytes, tuple[bytes, bytes]]) -> Desk:
    """Another broker, with what the edge has."""
    desk = fq_desk(journalled=True)
    desk.broker.restore_queues((key, *kept[key]) for key in sorted(kept, key=read_place))
    return desk


def _keep(kept: dict[bytes, tuple[bytes, bytes]], done: Done) -> None:
    for key, entry in done.queued.items():
        if entry is None:
            kept.pop(key, None)
        else:
            kept[key] = entry


def test_what_is_acknowledged_is_done_with() -> None:
    """And nothing else: it comes again, with its number, to whoever says up to where it has it."""
    desk = fq_desk(journalled=True)
    publisher = _bound(desk)
    taker = _takes(desk)
    publisher.publish(b"ex", b"r", b"1", b"2", b"3")
    publisher.publish(b"ex", b"r", b"4")
    assert _numbers(taker.heard()) == {1: b"1", 2: b"2", 3: b"3", 4: b"4"}
    queue = desk.broker.queues[_PATH]
    for taken, left in ((0, 4), (2, 2), (2, 2), (3, 1)):
        desk.send(taker.data, spell_taken(taken))
        assert len(queue) == left
    taker.close()
    name, none = _welcome(taker)
    assert none == 0
    taker = _takes(desk, 3, name)
    assert _numbers(taker.heard()) == {4: b"4"}
    assert _welcome(taker) == (name, 3)


def test_each_of_what_came_at_once_can_be_acknowledged_alone() -> None:
    """Also across what was given together, and beyond what is there."""
    desk = fq_desk(journalled=True)
    publisher = _bound(desk)
    taker = _takes(desk)
    publisher.publish(b"ex", b"r", b"1", b"2", b"3")
    publisher.publish(b"ex", b"r", b"4", b"5")
    queue = desk.broker.queues[_PATH]
    for taken, left in ((1, 4), (2, 3), (4, 1), (3, 1), (9, 0)):
        desk.send(taker.data, spell_taken(taken))
        assert len(queue) == left
    publisher.publish(b"ex", b"r", b"6")
    assert len(queue) == 1


def test_what_was_kept_and_not_acknowledged_does_not_come_again() -> None:
    desk = fq_desk(journalled=True)
    publisher = _bound(desk)
    taker = _takes(desk)
    publisher.publish(b"ex", b"r", b"1", b"2", b"3")
    assert len(taker.heard()) == 3
    taker.close()
    assert _numbers(_takes(desk, 2, _welcome(taker)[0]).heard()) == {3: b"3"}


def test_who_has_another_name_speaks_of_another_queue() -> None:
    """It has lost what it had, or this queue is a new one: its numbers say nothing here, also if it
    goes before it is told so, and says them again when the queue has them."""
    desk = fq_desk(journalled=True)
    publisher = _bound(desk)
    publisher.publish(b"ex", b"r", b"1", b"2")
    names = {_ANOTHER}
    for taken in (2, 3, 3, 0):
        taker = _takes(desk, taken, _ANOTHER)
        assert len(_numbers(taker.heard())) == len(names) + 1
        name, number = _welcome(taker)
        assert number == 0
        assert name not in names
        names.add(name)
        taker.close()
        publisher.publish(b"ex", b"r", b"more")


def test_who_knows_an_old_name_only_speaks_of_another_queue_too() -> None:
    """A broker that was made anew of a backup."""
    desk = fq_desk(journalled=True)
    publisher = _bound(desk)
    old, new = _takes(desk), None
    publisher.publish(b"ex", b"r", b"1", b"2")
    assert len(old.heard()) == 2
    old.close()
    new = _takes(desk)
    assert len(new.heard()) == 2
    new.close()
    assert len(_takes(desk, 2, _welcome(old)[0]).heard()) == 2


def test_a_number_that_is_yet_to_come_says_nothing() -> None:
    """A loss of power has taken what the queue knew, or somebody lies."""
    desk = fq_desk(journalled=True)
    publisher = _bound(desk)
    taker = _takes(desk)
    publisher.publish(b"ex", b"r", b"1", b"2")
    assert len(taker.heard()) == 2
    taker.close()
    name, _ = _welcome(taker)
    taker = _takes(desk, 2**64 - 1, name)
    assert _numbers(taker.heard()) == {1: b"1", 2: b"2"}
    assert _welcome(taker)[0] != name
    publisher.publish(b"ex", b"r", b"3")
    assert _numbers(taker.heard()) == {3: b"3"}


def test_numbers_that_were_not_stored_are_not_given_again() -> None:
    """Before a loss of power: what is new then is nothing that the peer has."""
    kept: dict[bytes, tuple[bytes, bytes]] = {}
    desk = _again(kept)
    publisher = _bound(desk)
    taker = _takes(desk)
    _keep(kept, desk.done())
    for number in range(3):  # the last two are lost
        done = publisher.publish(b"ex", b"r", b"%d" % number)
        if not number:
            _keep(kept, done)
    heard = taker.heard()
    assert len(heard) == 3
    name, last = _welcome(taker)[0], pages.read_place(heard[-1].id)
    desk = _again(kept)
    publisher = _bound(desk)
    publisher.publish(b"ex", b"r", *[b"new"] * 4)
    assert [each.payload for each in _takes(desk, last, name).heard()][-4:] == [b"new"] * 4


def test_numbers_never_begin_again() -> None:
    """Or what is new would be taken for what the peer has: also when the queue was empty, and the
    broker is another one."""
    kept: dict[bytes, tuple[bytes, bytes]] = {}
    name, last = bytes(8), 0
    for run in range(3):
        desk = _again(kept)
        publisher = _bound(desk)
        taker = _takes(desk, last, name)
        _keep(kept, desk.done())
        _keep(kept, publisher.publish(b"ex", b"r", b"%d" % run))
        ((number, payload),) = _numbers(taker.heard()).items()
        assert payload == b"%d" % run
        assert number > last
        name, last = _welcome(taker)[0], number
        _keep(kept, desk.send(taker.data, spell_taken(last)))
        # All that is left is the queue itself, which says more than how it is opened.
        assert [read_place(key) for key in kept] == [(_PATH, 0)]
        assert b" " in kept[next(iter(kept))][1]


def test_nothing_is_sent_that_is_not_kept() -> None:
    """Other consumers do not wait."""
    desk = fq_desk(journalled=True)
    publisher = _bound(desk)
    taker, other = _takes(desk), Peer(desk, b"d\0disk:private,permanent")
    other.bind(b"ex", b"prefix:")
    done = publisher.publish(b"ex", b"r", b"1")
    assert done.kept_first == {taker.data}
    assert other.payloads() == [b"1"]


def test_what_the_peer_is_not_sent_is_done_with() -> None:
    """R46: what has been there would fill the queue."""
    desk = fq_desk(journalled=True)
    publisher = _bound(desk)
    taker = _takes(desk)
    queue = desk.broker.queues[_PATH]
    source = Peer(desk, b"s", data=False)
    source.open_data(_OTHER, is_peer=True)

    def relay(*hops: bytes) -> None:
        data = b"".join(
            spell_run(spell_head(b"ex", b"r"), spell_origin(b"s", _OTHER + hop), [ID], [b"r"])
            for hop in hops
        )
        desk.send(source.data, data)

    relay(_NODE, _NODE)  # alone
    assert len(queue) == 0
    publisher.publish(b"ex", b"r", b"3")
    relay(_NODE)  # behind one that is not acknowledged yet
    relay(_NODE, _OTHER)  # before one
    assert list(_numbers(taker.heard())) == [3, 6]
    assert len(queue) == 4
    desk.send(taker.data, spell_taken(3))
    assert len(queue) == 2
    desk.send(taker.data, spell_taken(6))
    assert len(queue) == 0


def test_one_that_acknowledges_nothing_fills_its_queue() -> None:
    """The limit is the backlog, 16,384 if nothing is said: publishers wait, or what is new is
    dropped."""
    desk = fq_desk(journalled=True)
    publisher = _bound(desk)
    taker = _takes(desk)
    publisher.publish(b"ex", b"r", *[b"m"] * 5)
    assert len(taker.heard()) == 5
    assert (publisher.data, "queue") in desk.held
    desk.send(taker.data, spell_taken(1))
    assert (publisher.data, "queue") not in desk.held
    drops = _takes(desk, queue=b"drops\0disk:private,drop,permanent,backlog=5")
    drops.bind(b"ey", b"prefix:")
    for _ in range(4):
        publisher.publish(b"ey", b"r", b"1", b"2")
    assert len(desk.broker.queues[b"fq/drops"]) == 5
    assert drops.status()["dropped_in"] == 3


@pytest.mark.parametrize(
    ("queue", "may"),
    [
        (_QUEUE, True),
        (b"c\0disk:private", True),
        (b"c\0disk:public,permanent", False),
        (b"c\0mem:private,permanent", False),
    ],
)
def test_the_status_says_who_may_acknowledge(queue: bytes, may: bool) -> None:
    """Who does although it may not is disconnected; fqd has no such word, and closes, too."""
    desk = fq_desk(journalled=True)
    assert Peer(desk, queue, data=False).status() == {"dropped_in": 0} | (
        {"acks": 1} if may else {}
    )
    desk = fq_desk(journalled=True)
    assert _takes(desk, queue=queue).data_is_closed != may


def test_whatever_it_says_is_read_as_numbers() -> None:
    """Also messages; nobody else has a part in it."""
    desk: Any = fq_desk(journalled=True)
    publisher = _bound(desk)
    taker = _takes(desk)
    publisher.publish(b"ex", b"r", b"1")
    desk.send(taker.data, b"\xff" * 12)
    assert len(desk.broker.queues[_PATH]) == 0
    desk.send(taker.data, b"\0" * 4)
    assert not taker.data_is_closed
