"""What a journal offers, wherever it is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from pyspark_motemq.records import Stretch


@dataclass(frozen=True, slots=True)
class Shelf:
    """One partition: the numbers of its oldest message and of the next one, and its bytes."""

    first: int
    next: int
    size: int


class Share(Protocol):
    """What one task reads: some messages of one partition. It travels to an executor."""

    def pieces(self) -> Iterator[tuple[bytes, Stretch]]:
        """Yield whole records and what they are; raises ``JournalError``."""


class Feed(Protocol):
    """A journal that can be asked for messages by number."""

    def shelves(self) -> dict[int, Shelf]:
        """Return the partitions there are now; raises ``JournalError``."""

    def since(self, time_ns: int) -> dict[int, int]:
        """Return, by partition, the first message read at ``time_ns`` or later."""

    def shares(self, partition: int, start: int, end: int) -> list[Share]:
        """Return what tasks read for messages ``start`` to ``end`` - 1, which are there."""

    def has_read(self, group: str, positions: dict[int, int]) -> None:
        """Tell that a consumer group needs nothing below these numbers any more."""
