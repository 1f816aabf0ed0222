"""A protocol from outside the package with the others on one bus, against naive models."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.host_broker.desk import Desk
from tests.host_broker.lightmq_peer import Peer, board
from tests.host_broker.own_protocol.line_peer import LinePeer, line_desk

_PEOPLE = 3
_QUEUES = ("jobs", "mail")
_MOST = 4  # messages of a queue


@dataclass
class NaiveQueue:
    """What is in a queue, as lists: numbers that wait, in order, and who has what in flight."""

    last: int = 0
    waiting: list[int] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)  # were in flight once
    credit: dict[int, int] = field(default_factory=dict)  # by consumer
    in_flight: dict[int, list[int]] = field(default_factory=dict)

    def put(self) -> int:
        self.last += 1
        self.waiting.append(self.last)
        return self.last

    def take(self, person: int, credit: int) -> None:
        self.credit[person] = credit
        self.in_flight.setdefault(person, [])

    def ack(self, person: int, number: int) -> None:
        if number in self.in_flight.get(person, []):
            self.in_flight[person].remove(number)

    def leave(self, person: int) -> None:
        self.credit.pop(person, None)
        self.waiting = sorted(self.waiting + self.in_flight.pop(person, []))

    def delivered(self, person: int, number: int, again: bool) -> None:
        """Check one delivery: it is the oldest that waits, and its consumer has room."""
        assert number == min(self.waiting)
        assert len(self.in_flight[person]) < self.credit[person]
        assert again == (number in self.seen)
        self.waiting.remove(number)
        self.in_flight[person].append(number)
        self.seen.add(number)

    def settled(self) -> None:
        """Nothing waits while a consumer has room."""
        assert not self.waiting or all(
            len(self.in_flight[person]) >= credit for person, credit in self.credit.items()
        )

    @property
    def count(self) -> int:
        return len(self.waiting) + sum(len(each) for each in self.in_flight.values())


_PERSON = st.integers(0, _PEOPLE - 1)
_QUEUE = st.sampled_from(_QUEUES)
_STEP = st.one_of(
    st.tuples(st.just("put"), _PERSON, _QUEUE, st.integers(1, 3)),
    st.tuples(st.just("take"), _PERSON, _QUEUE, st.integers(1, 3)),
    st.tuples(st.just("ack"), _PERSON, _QUEUE, st.integers(1, 8)),
    st.tuples(st.just("leave"), _PERSON, _QUEUE, st.just(0)),
    st.tuples(st.just("close"), _PERSON, _QUEUE, st.just(0)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_STEP, max_size=40))
def test_a_queue_loses_nothing_and_keeps_its_order(
    steps: list[tuple[str, int, str, int]],
) -> None:
    """Each message has one consumer at a time, at most credit of them; what is left is all there.

    A person whose message fills a queue is held until it is not full, and says nothing meanwhile.
    """
    desk = line_desk({"queue_messages": _MOST})
    naive = {queue: NaiveQueue() for queue in _QUEUES}
    people = [LinePeer(desk) for _ in range(_PEOPLE)]
    waits: list[set[str]] = [set() for _ in range(_PEOPLE)]  # for these full queues

    def hear() -> None:
        # In the order of numbers: who is given several may be heard before who is given one.
        heard: list[tuple[str, int, int, bool]] = []
        for person, peer in enumerate(people):
            for line in peer.heard():
                verb, number, rest = (*line.split(" ", 2), "", "")[:3]
                if verb in ("job", "again"):
                    queue, body = rest.split(" : ")
                    assert body == number  # each says its own place
                    heard.append((queue, int(number), person, verb == "again"))
                else:
                    assert line == "ok"
        for queue, number, person, again in sorted(heard):
            naive[queue].delivered(person, number, again)
        for queue, model in naive.items():
            model.settled()
            if model.count < _MOST:
                for each in waits:
                    each.discard(queue)
        assert [peer.held for peer in people] == [bool(each) for each in waits]

    for verb, person, queue, number in steps:
        peer, model = people[person], naive[queue]
        if verb == "close":
            for each in naive.values():
                each.leave(person)
            waits[person] = set()
            desk.close(peer.connection)
            desk.held = {pair for pair in desk.held if pair[0] != peer.connection}
            people[person] = LinePeer(desk)
        elif peer.held:
            continue
        elif verb == "put":
            lines = [f"put {queue} : {model.put()}" for _ in range(number)]
            if model.count >= _MOST:
                waits[person].add(queue)
            desk.send(peer.connection, "".join(f"{line}\n" for line in lines).encode())
        else:
            words = {"take": f" {number}", "ack": f" {number}", "leave": ""}[verb]
            if verb == "take":
                model.take(person, number)
            elif verb == "ack":
                model.ack(person, number)
            else:
                model.leave(person)
            desk.send(peer.connection, f"{verb} {queue}{words}\n".encode())
        hear()

    for peer in people:
        peer.close()
    heir = LinePeer(desk)
    for queue, model in naive.items():
        for person in range(_PEOPLE):
            model.leave(person)
        _, *lines = heir.say(f"take {queue} 1000")
        again = ["again" if number in model.seen else "job" for number in model.waiting]
        expected = [
            f"{verb} {number} {queue} : {number}"
            for verb, number in zip(again, model.waiting, strict=True)
        ]
        assert lines == expected


_LEVELS = st.sampled_from(["a", "b", "*"])
_TOPIC = st.lists(_LEVELS, min_size=1, max_size=2).map("/".join)
_BOARD_TOPIC = "lightmq/kitchen/down"
_SPEAKER = st.sampled_from(["line", "fmqp", "lightmq"])
_CONDITIONS = {
    "": lambda body, unit: True,
    " where body > 5": lambda body, unit: int(body) > 5,
    " where body contains 1": lambda body, unit: "1" in body,
    " where unit = K": lambda body, unit: unit == "K",
}


def _equivalent(one: str, other: str) -> bool:
    ones, others = one.split("/"), other.split("/")
    return len(ones) == len(others) and all(
        a == b or "*" in (a, b) for a, b in zip(ones, others, strict=True)
    )


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.one_of(_TOPIC, st.just("lightmq/*/up")), st.sampled_from(list(_CONDITIONS))),
        max_size=4,
    ),
    st.lists(_TOPIC, max_size=2),
    st.lists(
        st.tuples(
            _SPEAKER,
            st.one_of(_TOPIC, st.just(_BOARD_TOPIC)),
            st.integers(0, 12).map(str),
            st.sampled_from(["", "K", "C"]),
        ),
        max_size=8,
    ),
    st.booleans(),
)
def test_everybody_hears_what_everybody_says(
    of_line: list[tuple[str, str]],
    of_fmqp: list[str],
    said: list[tuple[str, str, str, str]],
    one_read: bool,
) -> None:
    """Lines, FMQP packets and SENDs, in any order; a filter sees properties of lines only."""
    desk = line_desk(random_u16=iter(range(1, 1000)).__next__)
    reader, writer = LinePeer(desk), LinePeer(desk)
    listener, publisher = desk.open(), desk.open()
    kitchen = board(desk, "kitchen")
    for topic, condition in of_line:
        reader.say(f"sub {topic}{condition}")
    for topic in of_fmqp:
        desk.sub(listener, topic)
    for each in (reader.connection, listener):
        desk.got(each)
    lines, packets, sends = [], [], []
    pending: list[str] = []
    for number, (speaker, topic, body, unit) in enumerate(said):
        if speaker == "line":
            pending.append(f"pub {topic}{unit and f' unit={unit}'} : {body}")
            if not one_read:
                _say(desk, writer, pending)
        else:
            _say(desk, writer, pending)
            unit = ""
            if speaker == "fmqp":
                desk.pub(publisher, topic, body.encode())
            else:
                topic = "lightmq/kitchen/up"
                desk.send(kitchen.connection, kitchen.codec.send(number, body.encode()))
        ids = [
            str(id)
            for id, (wanted, condition) in enumerate(of_line, 1)
            if _equivalent(wanted, topic) and _CONDITIONS[condition](body, unit)
        ]
        if ids:
            lines.append(f"msg {','.join(ids)} {topic}{unit and f' unit={unit}'} : {body}")
        if any(_equivalent(wanted, topic) for wanted in of_fmqp):
            packets.append((0, topic, body.encode()))
        if _equivalent(topic, _BOARD_TOPIC):
            sends.append(body.encode())
    _say(desk, writer, pending)
    assert reader.heard() == lines
    assert desk.messages(listener) == packets
    assert _data_sent(kitchen) == sends


def _say(desk: Desk, writer: LinePeer, pending: list[str]) -> None:
    desk.send(writer.connection, "".join(f"{line}\n" for line in pending).encode())
    pending.clear()


def _data_sent(peer: Peer) -> list[bytes]:
    return [event.data for event in peer.heard() if type(event).__name__ == "Send"]
