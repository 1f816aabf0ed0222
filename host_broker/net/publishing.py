"""Publications of programs that have no connection of their own: the HTTP site's.

They are those of one client of the broker, which subscribes to nothing and is never closed.
"""

from host_broker.broker import Broker
from host_broker.net.journal.writer import Journal
from host_broker.net.server import Server
from host_broker.outputs import Record

_READ_BYTES = 256 * 1024
_WRITE_S = 20.0


class Busy(Exception):
    """The journal has more to write than it may; try again soon."""


class Publishing:
    """Publishes on behalf of programs that are not connected."""

    def __init__(self, server: Server, broker: Broker, journal: Journal | None) -> None:
        self._server = server
        self._broker = broker
        self._journal = journal
        self._client = 0

    def publish(self, packets: bytes, name: str = "") -> int:
        """Publish FMQP packets, at most 8 MiB; returns how many were accepted.

        All others were discarded, as those of any client would be. With a ``name`` they are one
        record of the journal, which has it as its client: whole, or not there. Raises ``Busy``.
        """
        if self._journal is not None and self._journal.full:
            raise Busy
        before = self._broker.stats.publications
        records: list[Record] = []
        for at in range(0, len(packets), _READ_BYTES):
            read = packets[at : at + _READ_BYTES]
            self._client = self._server.inside(self._client, read, records)
        if records:
            self._server.keep([_joined(records, name)] if name else records, ())
        return self._broker.stats.publications - before

    async def on_file(self) -> None:
        """Wait until the journal has on file what was published until now.

        Raises ``Busy`` if the disk does not answer.
        """
        if self._journal is None:
            return
        try:
            await self._journal.on_file(_WRITE_S)
        except TimeoutError:
            raise Busy from None

    def wanted(self, topics: list[str]) -> list[bool]:
        """Return, by topic, whether anybody would get a publication."""
        return [self._broker.wanted(topic.encode()) for topic in topics]


def _joined(records: list[Record], name: str) -> Record:
    count = sum(record.count for record in records)
    first = records[0]
    body = b"".join(record.body for record in records)
    return Record(first.connection, first.protocol, name, count, body)
