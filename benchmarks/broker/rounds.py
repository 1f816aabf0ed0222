"""Rounds: every broker once, in turn, so that a ratio never spans a change of the machine.

All brokers of a workload run during all of its rounds, so that a round takes two seconds and not
five: the machine, a neighbour's guest perhaps, has less time to become another one within it.
"""

import contextlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from benchmarks.broker import burst, singles
from benchmarks.broker.metering import Measured, settle, undisturbed
from benchmarks.broker.peers import JOURNAL, MOSQUITTO, MOTEMQ, NATS, RELAY, Peer, Running, running
from benchmarks.broker.workloads import Workload

PEERS = (MOTEMQ, MOSQUITTO, NATS, RELAY)
MEASURE = {"burst": burst.measure, "singles": singles.measure}


@dataclass(slots=True)
class Result:
    """All measurements of one workload: by broker, one per round."""

    workload: Workload
    ours: str
    measured: dict[str, list[Measured]] = field(default_factory=dict)

    def rate(self, name: str) -> float:
        """Return the median deliveries per second of a broker."""
        return statistics.median(each.deliveries_per_second for each in self.measured[name])

    def cpu_us(self, name: str) -> float:
        """Return the median processor time per delivery of a broker, microseconds."""
        return statistics.median(each.cpu_us for each in self.measured[name])

    def ratios(self, name: str) -> list[float]:
        """Return ours / theirs, round by round."""
        pairs = zip(self.measured[self.ours], self.measured[name], strict=True)
        return [ours.deliveries_per_second / theirs.deliveries_per_second for ours, theirs in pairs]


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
    with contextlib.ExitStack() as stack:
        brokers = {peer: stack.enter_context(running(peer, workload.tls)) for peer in measured}
        for number in range(1, rounds + 1):
            for peer in in_turn(measured, number):
                found = undisturbed(partial(_once, workload, peer, brokers[peer], duration_s))
                result.measured[peer.name].append(found)
            line = ", ".join(
                f"{name} {all_[-1].deliveries_per_second / 1e6:.3f}{'!' * all_[-1].disturbed}"
                for name, all_ in result.measured.items()
            )
            told(f"{workload.name} {number}/{rounds}, M/s: {line}")
    return result


def in_turn(peers: Sequence[Peer], number: int) -> list[Peer]:
    """Return who is measured when in a round: nobody always follows the same neighbour."""
    first = number % len(peers)
    return [*peers[first:], *peers[:first]]


def _once(workload: Workload, peer: Peer, broker: Running, duration_s: float) -> Measured:
    measured = MEASURE[workload.kind](peer, broker, workload.traffic, duration_s)
    settle(broker.pid)  # it forgets its clients: not at the expense of who is next
    return measured
