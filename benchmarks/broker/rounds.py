"""Rounds: every broker once, in turn, so that a ratio never spans a change of the machine.

All brokers of a workload run during all of its rounds, so that a round takes two seconds and not
five: the machine, a neighbour's guest perhaps, has less time to become another one within it.
"""

import contextlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from benchmarks.broker import burst, singles
from benchmarks.broker.effort import Effort
from benchmarks.broker.generator import Load
from benchmarks.broker.metering import Measured, settle, touch_memory, undisturbed
from benchmarks.broker.peers import BY_NAME, JOURNAL, RELAY, WRITTEN_RELAY, Peer, Running, running
from benchmarks.broker.workloads import Goal, Workload

_T = TypeVar("_T")
_MOST_BYTES_EACH = 256  # of a publication in the journal
_MOST_BYTES_PER_S = 2_000_000_000


@dataclass(slots=True)
class Result:
    """All measurements of one workload: by broker, one per round."""

    workload: Workload
    fan_out: int  # deliveries per publication
    measured: dict[str, list[Measured]] = field(default_factory=dict)

    def rate(self, name: str) -> float:
        """Return the median deliveries per second of a broker."""
        return statistics.median(each.deliveries_per_second for each in self.measured[name])

    def cpu_us(self, name: str) -> float:
        """Return the median processor time per delivery of a broker, microseconds."""
        return statistics.median(each.cpu_us for each in self.measured[name])

    def ratios(self, goal: Goal) -> list[float]:
        """Return ours / theirs, round by round; empty if one of them was not measured."""
        ours, theirs = self._rates(goal.ours), self._rates(goal.theirs)
        return [a / b for a, b in zip(ours, theirs, strict=True)] if ours and theirs else []

    def _rates(self, of: str | int) -> list[float]:
        if isinstance(of, int):
            return [float(of)] * max(len(all_) for all_ in self.measured.values())
        return [each.deliveries_per_second for each in self.measured.get(of, [])]


def measure(
    workload: Workload,
    left_out: Sequence[str],
    seed: int,
    effort: Effort,
    told: Callable[[str], None],
) -> Result:
    """Measure one workload; ``told`` is given a line after each round. Raises ``PeerFailed``.

    ``left_out``: brokers, by their names, that are not measured.
    """
    measured = [BY_NAME[name] for name in workload.brokers if name not in left_out]
    traffic = workload.traffic(seed)
    loads = {peer: Load(peer.wire, peer.hearing, traffic) for peer in measured}
    result = Result(workload, traffic.fan_out, {peer.name: [] for peer in measured})
    with contextlib.ExitStack() as stack:
        takes = {
            peer: _take(workload, peer, loads[peer], effort.duration_s, stack) for peer in measured
        }
        for number in range(1, effort.rounds + 1):
            for peer in in_turn(measured, number):
                result.measured[peer.name].append(undisturbed(takes[peer], effort.attempts))
            line = ", ".join(
                f"{name} {all_[-1].deliveries_per_second / 1e6:.3f}{'!' * all_[-1].disturbed}"
                for name, all_ in result.measured.items()
            )
            told(f"{workload.name} {number}/{effort.rounds}, M/s: {line}")
    return result


def _take(
    workload: Workload, peer: Peer, load: Load, duration_s: float, stack: contextlib.ExitStack
) -> Callable[[], Measured]:
    """Return what measures a broker once; the broker runs until the stack ends."""
    if workload.publications:
        # What was written before shall not count: one broker for each measurement.
        return partial(_started_for_it, workload, peer, load, duration_s)
    broker = stack.enter_context(running(peer, workload.tls))
    # The relay does not know where a publication ends, so it cuts those of several publishers.
    if peer not in (RELAY, WRITTEN_RELAY) or len(load.traffic.publishers) == 1:
        burst.check(peer, broker, load)
    return partial(_once, workload, peer, broker, load, duration_s)


def in_turn(peers: Sequence[_T], number: int) -> list[_T]:
    """Return who is measured when in a round: nobody always follows the same neighbour."""
    first = number % len(peers)
    turn = [*peers[first:], *peers[:first]]
    # Backwards every second time round, else each would always follow the same one.
    return turn[::-1] if number // len(peers) % 2 else turn


def _once(
    workload: Workload, peer: Peer, broker: Running, load: Load, duration_s: float
) -> Measured:
    if JOURNAL.name in workload.brokers:
        # More than it writes; before the others, too, or they would have another machine.
        touch_memory(
            workload.publications * _MOST_BYTES_EACH or int(duration_s * _MOST_BYTES_PER_S)
        )
    if workload.kind == "singles":
        measured = singles.measure(peer, broker, load, duration_s)
    else:
        measured = burst.measure(peer, broker, load, duration_s, workload.publications)
    settle(broker.pid)  # it forgets its clients: not at the expense of who is next
    return measured


def _started_for_it(workload: Workload, peer: Peer, load: Load, duration_s: float) -> Measured:
    with running(peer, workload.tls) as broker:
        return _once(workload, peer, broker, load, duration_s)
