"""What is measured, as data: who publishes and subscribes to what, and what must be reached."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Traffic:
    """Publishers and subscribers, by their topics.

    Publisher ``n`` and subscriber ``n`` are in room ``n % rooms``: everybody in a room gets what
    is published in it, and nothing else.
    """

    publishers: tuple[tuple[str, ...], ...]
    subscribers: tuple[tuple[str, ...], ...]
    payload_bytes: int = 64
    rooms: int = 1

    @property
    def fan_out(self) -> int:
        """Deliveries per publication."""
        return len(self.subscribers) // self.rooms


@dataclass(frozen=True, slots=True)
class Workload:
    """One line of the result. ``must``: the least ratio of ours to a peer's, by its name."""

    name: str
    title: str
    kind: Literal["burst", "singles"]
    traffic: Traffic
    must: dict[str, float] = field(default_factory=dict)
    journal: bool = False  # against ourselves with the journal on, instead of the peers
    tls: bool = False


_ONE = ("bench/one",)
_64 = tuple(f"bench/{number:02}" for number in range(64))
_8 = tuple((f"bench/{number}",) for number in range(8))
_ROOMS = tuple((f"home/{number}/temperature",) for number in range(100, 600))
_BURST = {"nats-server": 1.0, "mosquitto": 10.0}
_SINGLES = {"nats-server": 1.0}


def _burst(name: str, title: str, traffic: Traffic) -> Workload:
    return Workload(name, title, "burst", traffic, _BURST)


def _singles(name: str, title: str, traffic: Traffic) -> Workload:
    return Workload(name, title, "singles", traffic, _SINGLES)


WORKLOADS = (
    _burst("1to1", "1→1, one topic", Traffic((_ONE,), (_ONE,))),
    _burst("64topics", "1→1, 64 topics in turn", Traffic((_64,), (_64,))),
    _burst("1to10", "1→10, 64 topics in turn", Traffic((_64,), (_64,) * 10)),
    _burst("8to8", "8→8, 8 topics", Traffic(_8, _8, rooms=8)),
    _burst("1to50", "1→50, one topic", Traffic((_ONE,), (_ONE,) * 50)),
    _burst("1KiB", "1→1, 1 KiB", Traffic((_ONE,), (_ONE,), payload_bytes=1024)),
    Workload("tls", "1→1, TLS", "burst", Traffic((_ONE,), (_ONE,)), _BURST, tls=True),
    _singles("500to1", "500→1, a frame per read", Traffic((_ONE,) * 500, (_ONE,))),
    _singles("500to5", "500→5, a frame per read", Traffic((_ONE,) * 500, (_ONE,) * 5)),
    _singles("500to1*", "500→1, by wildcard", Traffic(_ROOMS, (("home/*/temperature",),))),
    _singles("500to5*", "500→5, by wildcard", Traffic(_ROOMS, (("home/*/temperature",),) * 5)),
    Workload(
        "journal",
        "1→1, journal on/off",
        "burst",
        Traffic((_ONE,), (_ONE,)),
        {"motemq": 0.8},
        journal=True,
    ),
)
