"""How much one micro-batch takes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark_motemq.journal import PartitionState


@dataclass(frozen=True, slots=True)
class Limits:
    """At most ``max_rows`` and about ``max_bytes``; nothing below ``min_rows``. 0 = no limit.

    After ``max_delay_s`` a batch may have fewer than ``min_rows``.
    """

    max_rows: int = 0
    max_bytes: int = 0
    min_rows: int = 0
    max_delay_s: float = 900.0

    def without_minimum(self) -> "Limits":
        """Return the same for a query that is to end."""
        return replace(self, min_rows=0)

    def end(
        self, start: Mapping[int, int], partitions: Mapping[int, PartitionState]
    ) -> dict[int, int]:
        """Return up to where a batch that begins at ``start`` goes, by partition.

        Partitions share what is allowed by what waits in them, so none is starved. Bytes are
        counted by the mean of a partition's messages. Never more than ``max_rows`` in all.
        """
        waiting = {number: state.next - start[number] for number, state in partitions.items()}
        total = sum(waiting.values())
        if total < self.min_rows:
            return {number: start[number] for number in partitions}
        share = 1.0
        if self.max_rows and total:
            share = min(share, self.max_rows / total)
        if self.max_bytes and total:
            size = sum(waiting[number] * _mean(state) for number, state in partitions.items())
            share = min(share, self.max_bytes / max(size, 1))
        left = self.max_rows or total
        found = {}
        for number in sorted(waiting, key=lambda each: -waiting[each]):
            # Rounded up: otherwise the last message would wait for ever.
            rows = min(waiting[number], math.ceil(waiting[number] * share), left)
            left -= rows
            found[number] = start[number] + rows
        return found


def _mean(state: PartitionState) -> float:
    return state.size / max(1, state.next - state.first)
