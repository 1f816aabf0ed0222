"""What is measured, as data: who publishes and subscribes to what, and what must be reached.

The mixed workloads are drawn from a seed (``mixture``); the uniform ones, where all packets are of
one length, are kept for comparison.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

from benchmarks.broker.mixture import MAX_LEVELS, Mixture, Publication
from benchmarks.broker.wires import LIGHTMQ_SINK, LIGHTMQ_SOURCE

_ONE_PUBLISHER = 16_384  # publications that a publisher repeats: some 1.7 MB at a median of 64 B
_EIGHT_PUBLISHERS = 4_096  # of each
_UNIFORM_BYTES = 256 * 1024  # of payload in a block
_KIB = 1024


@dataclass(frozen=True)
class Traffic:
    """Publishers by what they publish again and again, subscribers by their topic patterns.

    A topic fits at most one pattern of a subscriber. ``rooms`` is for the byte relay, which knows
    no topics: publisher ``n`` and subscriber ``n`` are in room ``n % rooms``, and everybody in a
    room gets what is published in it.
    """

    publishers: tuple[tuple[Publication, ...], ...]
    subscribers: tuple[tuple[str, ...], ...]
    rooms: int = 1

    @cached_property
    def fan_out(self) -> int:
        """Deliveries per publication."""
        topic = self.publishers[0][0][0]
        return sum(Matching(patterns).number(topic) is not None for patterns in self.subscribers)


class Matching:
    """Tells which of a subscriber's patterns a topic fits."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._exact = {pattern: n for n, pattern in enumerate(patterns) if "*" not in pattern}
        self._wild = [(p.split("/"), n) for n, p in enumerate(patterns) if "*" in p]

    def number(self, topic: str) -> int | None:
        """Return the pattern's place in the subscriber's list; None = it does not get the topic."""
        number = self._exact.get(topic)
        if number is not None or not self._wild:
            return number
        levels = topic.split("/")
        for pattern, number in self._wild:
            if len(pattern) == len(levels) and all(
                wanted in ("*", level) for wanted, level in zip(pattern, levels, strict=True)
            ):
                return number
        return None


@dataclass(frozen=True, slots=True)
class Goal:
    """The least ratio of the rates of two brokers, by their names.

    ``theirs`` may also be a rate, in deliveries per second. ``at_least``: None = there is no goal,
    the ratio is only told.
    """

    ours: str
    theirs: str | int
    at_least: float | None


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of the result. ``traffic`` draws it from a seed; ``brokers``: who is measured.

    ``publications``: how many are sent, 0 = as many as the measurement's time allows; the brokers
    then start anew for each measurement. ``on_request``: only measured when it is named.
    """

    name: str
    title: str
    kind: Literal["burst", "singles"]
    traffic: Callable[[int], Traffic]
    brokers: tuple[str, ...]
    goals: tuple[Goal, ...] = ()
    tls: bool = False
    publications: int = 0
    on_request: bool = False


# A publisher of "a frame a read" is told by the end of its payload.
_NUMBER = "#%04d;"
NUMBERED = re.compile(rb"#(\d{4});")
NUMBERED_BYTES = 6


def numbered(publisher: int, body: bytes) -> bytes:
    """Return the body with the publisher's number as its end, and no such number before."""
    marker = (_NUMBER % publisher).encode()
    return NUMBERED.sub(b"-" * NUMBERED_BYTES, body)[: -len(marker)] + marker


def _mixed(seed: int, topics: int, subscribers: int, median_bytes: int = 64) -> Traffic:
    """One publisher; every subscriber gets all of it."""
    mixture = Mixture(seed, f"1 to {subscribers}, {topics}, {median_bytes}")
    names = mixture.topics(topics)
    count = _ONE_PUBLISHER if median_bytes < _KIB else _EIGHT_PUBLISHERS
    return Traffic((mixture.publications(names, count, median_bytes),), (names,) * subscribers)


def _mixed_8_to_8(seed: int, topics: int) -> Traffic:
    """Eight publishers, each under any topic; eight subscribers get all of it."""
    mixture = Mixture(seed, f"8 to 8, {topics}")
    names = mixture.topics(topics)
    publishers = [mixture.publications(names, _EIGHT_PUBLISHERS, 64) for _ in range(8)]
    return Traffic(tuple(publishers), (names,) * 8)


def _mixed_own(seed: int, topics: int, subscribers: int) -> Traffic:
    """One publisher; each topic has one subscriber, each subscriber as many topics."""
    mixture = Mixture(seed, f"1 to {subscribers}, own, {topics}")
    names = mixture.topics(topics)
    shares = tuple(names[number::subscribers] for number in range(subscribers))
    return Traffic((mixture.publications(names, _ONE_PUBLISHER, 64),), shares)


def _mixed_singles(seed: int, publishers: int, wildcard: bool) -> Traffic:
    """Publishers with one publication each, one subscriber."""
    mixture = Mixture(seed, f"{publishers} singles, {wildcard}")
    names = mixture.topics(publishers, "fleet" if wildcard else "")
    publications = tuple(
        ((name, numbered(number, mixture.payload(64, NUMBERED_BYTES))),)
        for number, name in enumerate(names)
    )
    patterns = tuple("fleet" + "/*" * levels for levels in range(1, MAX_LEVELS))
    return Traffic(publications, (patterns if wildcard else names,))


def _mixed_bridge(seed: int, topic: str) -> Traffic:
    """One publisher, one subscriber, the topic under which the bus knows a LightMQ client."""
    mixture = Mixture(seed, topic)
    return Traffic((mixture.publications((topic,), _ONE_PUBLISHER, 64),), ((topic,),))


def _uniform(
    publishers: Sequence[Sequence[str]],
    subscribers: Sequence[Sequence[str]],
    payload_bytes: int = 64,
    rooms: int = 1,
) -> Callable[[int], Traffic]:
    """Publishers that have their topics in turn, with payloads of one length."""
    body = b"x" * payload_bytes
    least = _UNIFORM_BYTES // payload_bytes
    traffic = Traffic(
        tuple(
            tuple((topic, body) for topic in topics) * max(1, least // len(topics))
            for topics in publishers
        ),
        tuple(tuple(topics) for topics in subscribers),
        rooms,
    )
    return lambda seed: traffic


def _uniform_singles(topics: Sequence[str], patterns: Sequence[Sequence[str]]) -> Traffic:
    body = b"x" * 64
    publications = tuple(((topic, numbered(n, body)),) for n, topic in enumerate(topics))
    return Traffic(publications, tuple(tuple(each) for each in patterns))


_PEERS = ("nats-server", "mosquitto", "byte relay")
_OURS = ("motemq", "motemq, pure Python")
_JOURNAL = ("motemq, --data", "motemq")
_WRITTEN_RELAY = "byte relay, written"
_ACL = ("motemq, 1,000 rules", "motemq")


def _burst_goals(nats: float, mosquitto: float, relay: float | None) -> tuple[Goal, ...]:
    goals = [
        Goal("motemq", "nats-server", nats),
        Goal("motemq", "mosquitto", mosquitto),
        Goal("motemq, pure Python", "nats-server", 0.7),
    ]
    if relay is not None:
        goals.append(Goal("motemq", "byte relay", relay))
    return tuple(goals)


def _mixed_burst(
    name: str,
    title: str,
    traffic: Callable[[int], Traffic],
    relay: float | None = None,
    nats: float = 3,
    brokers: tuple[str, ...] = (*_OURS, *_PEERS),
    tls: bool = False,
) -> Workload:
    goals = _burst_goals(nats, 20, relay)
    return Workload(f"mixed-{name}", f"mixed {title}", "burst", traffic, brokers, goals, tls)


def _journal(
    name: str, title: str, traffic: Callable[[int], Traffic], publications: int = 0
) -> Workload:
    """Ours with a journal against ours without; and a relay that writes what it relays."""
    return Workload(
        f"mixed-{name}",
        f"mixed {title}",
        "burst",
        traffic,
        (*_JOURNAL, _WRITTEN_RELAY),
        (Goal(*_JOURNAL, 0.75), Goal(_WRITTEN_RELAY, "motemq", None)),
        publications=publications,
        on_request=publications > 0,
    )


def _acl(name: str, title: str, traffic: Callable[[int], Traffic]) -> Workload:
    """Ours with users and an ACL against ours without."""
    goals = (Goal(*_ACL, 0.95),)
    return Workload(f"mixed-{name}", f"mixed {title}", "burst", traffic, _ACL, goals)


def _bridge(direction: str, topic: str, least_rate: int | None = None) -> Workload:
    """From one protocol to the other, which only our broker can; the relay is for scale."""
    ours = f"motemq, {direction}"
    goals = () if least_rate is None else (Goal(ours, least_rate, 1),)
    name = direction.lower().replace("→", "-")
    return Workload(
        name,
        f"mixed {direction}",
        "burst",
        partial(_mixed_bridge, topic=topic),
        (ours, f"{ours}, pure Python", "byte relay"),
        (*goals, Goal(ours, "byte relay", None)),
    )


def _singles(name: str, title: str, traffic: Callable[[int], Traffic]) -> Workload:
    goals = (
        Goal("motemq", "nats-server", 1),
        Goal("motemq, pure Python", "nats-server", 0.7),
    )
    return Workload(name, title, "singles", traffic, (*_OURS, *_PEERS), goals)


def _uniform_burst(
    name: str, title: str, traffic: Callable[[int], Traffic], tls: bool = False
) -> Workload:
    goals = (Goal("motemq", "nats-server", 1), Goal("motemq", "mosquitto", 10))
    brokers = ("motemq", *_PEERS)
    return Workload(f"uniform-{name}", f"uniform {title}", "burst", traffic, brokers, goals, tls)


_ONE = ("bench/one",)
_64 = tuple(f"bench/{number:02}" for number in range(64))
_8 = tuple((f"bench/{number}",) for number in range(8))
_HOMES = tuple(f"home/{number}/temperature" for number in range(100, 600))
_NO_RELAY = (*_OURS, "nats-server", "mosquitto")
_64_MIXED = partial(_mixed, topics=64, subscribers=1)

WORKLOADS = (
    _mixed_burst("1-1-one", "1→1, 1 topic", partial(_mixed, topics=1, subscribers=1), 0.5),
    _mixed_burst("1-1", "1→1, 64 topics", _64_MIXED, 0.5),
    _mixed_burst("1-1-2000", "1→1, 2,000 topics", partial(_mixed, topics=2000, subscribers=1), 0.4),
    _mixed_burst("1-1-1KiB", "1→1, 64 topics, 1 KiB", partial(_64_MIXED, median_bytes=_KIB), 0.5),
    _mixed_burst("1-10", "1→10, 64 topics", partial(_mixed, topics=64, subscribers=10)),
    _mixed_burst("8-8", "8→8, 500 topics", partial(_mixed_8_to_8, topics=500), 0.6),
    # The relay cannot tell topics apart, so it has no figure where each has its own receiver.
    _mixed_burst(
        "own-8",
        "1→8, a topic has one receiver",
        partial(_mixed_own, topics=64, subscribers=8),
        nats=1.4,
        brokers=_NO_RELAY,
    ),
    _mixed_burst(
        "own-64",
        "1→64, a topic has one receiver",
        partial(_mixed_own, topics=64, subscribers=64),
        nats=1.4,
        brokers=_NO_RELAY,
    ),
    _mixed_burst("tls", "1→1, 64 topics, TLS", _64_MIXED, tls=True),
    _singles(
        "mixed-500",
        "mixed 500→1, a frame a read",
        partial(_mixed_singles, publishers=500, wildcard=False),
    ),
    _singles(
        "mixed-500-wildcard",
        "mixed 500→1, a frame a read, by wildcard",
        partial(_mixed_singles, publishers=500, wildcard=True),
    ),
    _acl("acl", "1→1, 64 topics, 1,000 rules", _64_MIXED),
    _acl(
        "acl-2000",
        "1→1, 2,000 topics, 1,000 rules",
        partial(_mixed, topics=2000, subscribers=1),
    ),
    _journal("data", "1→1, 64 topics, journal", _64_MIXED),
    _journal("data-8-8", "8→8, 500 topics, journal", partial(_mixed_8_to_8, topics=500)),
    Workload(
        "mixed-data-500",
        "mixed 500→1, a frame a read, journal",
        "singles",
        partial(_mixed_singles, publishers=500, wildcard=False),
        _JOURNAL,
        (Goal(*_JOURNAL, None),),
    ),
    Workload(
        "mixed-auto",
        "mixed 1→1, 64 topics, one port for all protocols",
        "burst",
        _64_MIXED,
        ("motemq, auto://", "motemq, fmqp://"),
        (Goal("motemq, auto://", "motemq, fmqp://", None),),
    ),
    _bridge("FMQP→LightMQ", LIGHTMQ_SINK, 100_000),
    _bridge("LightMQ→FMQP", LIGHTMQ_SOURCE),
    _journal(
        "sustained",
        "1→1, 64 topics, journal, 10 M messages",
        _64_MIXED,
        publications=10_000_000,
    ),
    _uniform_burst("1-1", "1→1, one topic", _uniform([_ONE], [_ONE])),
    _uniform_burst("64topics", "1→1, 64 topics in turn", _uniform([_64], [_64])),
    _uniform_burst("1-10", "1→10, 64 topics in turn", _uniform([_64], [_64] * 10)),
    _uniform_burst("8-8", "8→8, 8 topics in pairs", _uniform(_8, _8, rooms=8)),
    _uniform_burst("1-50", "1→50, one topic", _uniform([_ONE], [_ONE] * 50)),
    _uniform_burst("1KiB", "1→1, 1 KiB", _uniform([_ONE], [_ONE], payload_bytes=_KIB)),
    _uniform_burst("tls", "1→1, TLS", _uniform([_ONE], [_ONE]), tls=True),
    _singles(
        "uniform-500-1",
        "uniform 500→1, a frame a read",
        lambda seed: _uniform_singles(_ONE * 500, [_ONE]),
    ),
    _singles(
        "uniform-500-5",
        "uniform 500→5, a frame a read",
        lambda seed: _uniform_singles(_ONE * 500, [_ONE] * 5),
    ),
    _singles(
        "uniform-500-1-wildcard",
        "uniform 500→1, by wildcard",
        lambda seed: _uniform_singles(_HOMES, [("home/*/temperature",)]),
    ),
    _singles(
        "uniform-500-5-wildcard",
        "uniform 500→5, by wildcard",
        lambda seed: _uniform_singles(_HOMES, [("home/*/temperature",)] * 5),
    ),
    Workload(
        "uniform-data",
        "uniform 1→1, one topic, journal",
        "burst",
        _uniform([_ONE], [_ONE]),
        _JOURNAL,
        (Goal(*_JOURNAL, 0.8),),
    ),
)
