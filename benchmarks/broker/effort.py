"""How long a series takes: the whole one, and one for a developer's loop."""

from dataclasses import dataclass

from benchmarks.broker import idle


@dataclass(frozen=True, slots=True)
class Effort:
    """What a row may take. A round has every broker once, of latencies ``windows`` of each."""

    rounds: int
    duration_s: float  # of publishing, per measurement of throughput
    attempts: int  # measurements of which the last counts, disturbed or not
    windows: int
    window_messages: int
    idle_clients: int


WHOLE = Effort(7, 0.4, 4, 10, 3_000, idle.CLIENTS)
QUICK = Effort(2, 0.15, 1, 3, 1_000, 2_000)
