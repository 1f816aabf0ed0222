"""Several brokers as one journal: each has ten thousand partition numbers of its own."""

from collections.abc import Sequence

from pyspark_motemq.journal import PARTITIONS, Part, PartitionState
from pyspark_motemq.remote import Broker, Remote


class Brokers:
    """The journals of ``brokers``; partition 3 of the second one is 10003 here."""

    def __init__(self, brokers: Sequence[Broker], topics: tuple[str, ...] = ()) -> None:
        """``topics``: patterns of what tasks read, empty: all."""
        self._remotes = [
            Remote(broker, number * PARTITIONS, topics) for number, broker in enumerate(brokers)
        ]

    def partitions(self) -> dict[int, PartitionState]:
        """Return the partitions there are now; raises ``JournalError``."""
        found: dict[int, PartitionState] = {}
        for remote in self._remotes:
            found.update(remote.partitions())
        return found

    def identities(self) -> dict[int, str]:
        """Return the UUIDs of the journals, in the order of the brokers."""
        return {number: remote.identity for number, remote in enumerate(self._remotes)}

    def since(self, time_ns: int) -> dict[int, int]:
        """Return, by partition, the first message read at ``time_ns`` or later."""
        found: dict[int, int] = {}
        for remote in self._remotes:
            found.update(remote.since(time_ns))
        return found

    def split(self, partition: int, start: int, end: int) -> list[Part]:
        """Return what tasks read for messages ``start`` to ``end`` - 1, which are there."""
        return self._remotes[partition // PARTITIONS].split(partition, start, end)

    def acknowledge(self, group: str, positions: dict[int, int]) -> None:
        """Tell that a consumer group needs nothing below these numbers any more."""
        for number, remote in enumerate(self._remotes):
            ours = {
                at: position for at, position in positions.items() if at // PARTITIONS == number
            }
            if ours:
                remote.acknowledge(group, ours)
