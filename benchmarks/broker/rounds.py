"""Rounds: every broker once, in turn, so that a ratio never spans a change of the machine."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.broker import burst, singles
from benchmarks.broker.peers import JOURNAL, MOSQUITTO, MOTEMQ, NATS, RELAY, Peer, running
from benchmarks.broker.workloads import Workload

PEERS = (MOTEMQ, MOSQUITTO, NATS, RELAY)
_MEASURE = {"burst": burst.deliveries_per_second, "singles": singles.deliveries_per_second}


@dataclass(slots=True)
class Result:
    """Rates of one workload: deliveries per second by broker, one per round."""

    workload: Workload
    ours: str
    rates: dict[str, list[float]] = field(default_factory=dict)

    def median(self, name: str) -> float:
        """Return the median rate of a broker."""
        return statistics.median(self.rates[name])

    def ratios(self, name: str) -> list[float]:
        """Return ours / theirs, round by round."""
        pairs = zip(self.rates[self.ours], self.rates[name], strict=True)
        return [ours / theirs for ours, theirs in pairs]


def measure(
    workload: Workload,
    peers: tuple[Peer, ...],
    rounds: int,
    duration_s: float,
    told: Callable[[str], None],
) -> Result:
    """Measure one workload; ``told`` is given a line after each round. Raises ``PeerFailed``."""
    measured: tuple[Peer, ...]
    if workload.journal:
        ours, measured = JOURNAL, (MOTEMQ, JOURNAL)
    else:
        ours, measured = MOTEMQ, peers
    result = Result(workload, ours.name, {peer.name: [] for peer in measured})
    for number in range(1, rounds + 1):
        # Who is first changes, so that nobody always follows the same neighbour.
        first = number % len(measured)
        for peer in measured[first:] + measured[:first]:
            with running(peer) as broker:
                rate = _MEASURE[workload.kind](peer, broker.port, workload.traffic, duration_s)
            result.rates[peer.name].append(rate)
        line = ", ".join(f"{name} {rates[-1] / 1e6:.3f}" for name, rates in result.rates.items())
        told(f"{workload.name} {number}/{rounds}, M/s: {line}")
    return result
