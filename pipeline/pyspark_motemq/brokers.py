"""Several brokers as one journal: each has ten thousand partition numbers of its own."""

from collections.abc import Sequence

from pyspark_motemq.remote import Broker, Remote
from pyspark_motemq.shelf import Share, Shelf

_PARTITIONS = 10_000  # a broker has at most so many (journal.partitions)


class Brokers:
    """The journals of ``brokers``; partition 3 of the second one is 10003 here."""

    def __init__(self, brokers: Sequence[Broker]) -> None:
        self._remotes = [
            Remote(broker, number * _PARTITIONS) for number, broker in enumerate(brokers)
        ]

    def shelves(self) -> dict[int, Shelf]:
        """Return the partitions there are now; raises ``JournalError``."""
        found: dict[int, Shelf] = {}
        for remote in self._remotes:
            found.update(remote.shelves())
        return found

    def since(self, time_ns: int) -> dict[int, int]:
        """Return, by partition, the first message read at ``time_ns`` or later."""
        found: dict[int, int] = {}
        for remote in self._remotes:
            found.update(remote.since(time_ns))
        return found

    def shares(self, partition: int, start: int, end: int) -> list[Share]:
        """Return what tasks read for messages ``start`` to ``end`` - 1, which are there."""
        return self._remotes[partition // _PARTITIONS].shares(partition, start, end)

    def has_read(self, group: str, positions: dict[int, int]) -> None:
        """Tell that a consumer group needs nothing below these numbers any more."""
        for number, remote in enumerate(self._remotes):
            ours = {
                at: position for at, position in positions.items() if at // _PARTITIONS == number
            }
            if ours:
                remote.has_read(group, ours)
