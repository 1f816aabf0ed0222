"""Several brokers as one journal: each has ten thousand partition numbers of its own.

They are asked side by side. One that does not answer delays the others once, by a second: after
that, nobody waits for it until it has answered.
"""

from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from pyspark_motemq.blocks import JournalError
from pyspark_motemq.journal import PARTITIONS, Part, PartitionState
from pyspark_motemq.remote import Broker, BrokerUnavailable, Remote

_WAIT_S = 1.0  # for brokers that have answered last time
_PATIENCE_S = 3.0  # a broker that is just being started
_States = dict[int, PartitionState]


class Brokers:
    """The journals of ``brokers``; partition 3 of the second one is 10003 here."""

    def __init__(self, brokers: Sequence[Broker], topics: tuple[str, ...] = ()) -> None:
        """``topics``: patterns of what tasks read, empty: all."""
        self._brokers = tuple(brokers)
        self._topics = topics
        self._remotes = [
            Remote(broker, number * PARTITIONS, topics) for number, broker in enumerate(brokers)
        ]
        self._pool: ThreadPoolExecutor | None = None
        self._asked: dict[int, Future[_States]] = {}  # questions without an answer yet
        self._away: dict[int, str] = {}  # why

    def __reduce__(self) -> tuple[object, ...]:
        """Travel to executors as what it was made of: threads do not travel."""
        return Brokers, (self._brokers, self._topics)

    def partitions(self, of: Collection[int] | None = None) -> _States:
        """Return the partitions of all brokers, or those numbered ``of``; raises ``JournalError``.

        A broker that does not answer is waited for.
        """
        wanted = [each for at, each in enumerate(self._remotes) if of is None or at in of]
        found: _States = {}
        with ThreadPoolExecutor(len(self._remotes)) as pool:
            for states in pool.map(Remote.partitions, wanted):
                found.update(states)
        return found

    def reachable(self) -> _States:
        """Return the partitions of those that answer now; raises what another one refuses."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(len(self._remotes), "motemq-broker")
        for number, remote in enumerate(self._remotes):
            if number not in self._asked:
                self._asked[number] = self._pool.submit(remote.partitions, 0.0)
        wait([asked for at, asked in self._asked.items() if at not in self._away], _WAIT_S)
        found: _States = {}
        for number, broker in enumerate(self._brokers):
            if not self._asked[number].done():
                late = f"the broker at {broker.url} has not answered within {_WAIT_S:g} s"
                self._away.setdefault(number, late)
                continue
            try:
                found.update(self._asked.pop(number).result())
                self._away.pop(number, None)
            except BrokerUnavailable as error:
                self._away[number] = str(error)
        return found

    def unreachable(self) -> dict[int, str]:
        """Return why brokers, by their number, were missing from ``reachable`` last time."""
        return dict(self._away)

    def check(self) -> None:
        """Raise ``JournalError`` if no broker answers within seconds, or one refuses."""
        with ThreadPoolExecutor(len(self._remotes)) as pool:
            asked = [pool.submit(remote.partitions, _PATIENCE_S) for remote in self._remotes]
        refused = [each.exception() for each in asked]
        for error in refused:
            if error is not None and not isinstance(error, BrokerUnavailable):
                raise error
        if all(refused):
            raise JournalError(str(refused[0]))

    def identities(self) -> dict[int, str]:
        """Return the UUIDs of the journals that were asked, in the order of the brokers."""
        found = {number: remote.identity for number, remote in enumerate(self._remotes)}
        return {number: identity for number, identity in found.items() if identity}

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
        """Tell that a consumer group needs nothing below these numbers any more.

        Who does not answer is told with the next batch.
        """
        for number, remote in enumerate(self._remotes):
            ours = {
                at: position for at, position in positions.items() if at // PARTITIONS == number
            }
            if ours and number not in self._away:
                try:
                    remote.acknowledge(group, ours, 0.0)
                except BrokerUnavailable as error:
                    self._away[number] = str(error)
