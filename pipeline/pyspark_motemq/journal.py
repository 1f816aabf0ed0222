"""What a journal offers, wherever it is."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from pyspark_motemq.blocks import Slice

PARTITIONS = 10_000  # a broker has at most so many (journal.partitions)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition: the numbers of its oldest message and of the next one, and its bytes."""

    first: int
    next: int
    size: int


class Part(Protocol):
    """What one task reads: some messages of one partition. It travels to an executor."""

    def slices(self) -> Iterator[tuple[bytes, Slice]]:
        """Yield whole blocks and what they are; raises ``JournalError``."""


class JournalClient(Protocol):
    """A journal that can be asked for messages by number, or several of them.

    The partitions of the second one have numbers from ``PARTITIONS`` on, and so forth.
    """

    def partitions(self, of: Collection[int] | None = None) -> dict[int, PartitionState]:
        """Return the partitions there are now; raises ``JournalError``.

        ``of``: only those of these journals, by partition number // ``PARTITIONS``.
        """

    def reachable(self) -> dict[int, PartitionState]:
        """Return the partitions of the journals that can be asked now, at once.

        Raises ``JournalError`` for what does not pass by itself.
        """

    def unreachable(self) -> dict[int, str]:
        """Return why journals were not in ``reachable``, by partition number // ``PARTITIONS``."""

    def identities(self) -> dict[int, str]:
        """Return the UUIDs of the journals, by partition number // ``PARTITIONS``.

        As ``partitions`` has found them; one that has no UUID yet is not among them.
        """

    def since(self, time_ns: int, of: Collection[int] | None = None) -> dict[int, int]:
        """Return, by partition, the first message read at ``time_ns`` or later.

        ``of``: only of these journals, by partition number // ``PARTITIONS``.
        """

    def split(self, partition: int, start: int, end: int) -> list[Part]:
        """Return what tasks read for messages ``start`` to ``end`` - 1, which are there."""

    def acknowledge(self, group: str, positions: dict[int, int]) -> None:
        """Tell that a consumer group needs nothing below these numbers any more."""
