"""Publications of programs that have no connection of their own: the HTTP site's.

They are those of one connection to the broker for each principal, which subscribes to nothing and
is never closed. A request that makes the broker search for long is done in steps; others are served
in between.
"""

import asyncio
from collections.abc import Iterator, Mapping

from host_broker.access.principal import Principal
from host_broker.broker import STEPS_AT_ONCE, Broker
from host_broker.bus.publication import HEADER
from host_broker.net.journal.scan import JournalError
from host_broker.net.journal.writer import Journal, Level
from host_broker.net.server import Server
from host_broker.net.statistics import statistics
from host_broker.net.storage.message_store import MessageStoreError
from host_broker.outputs import ConnectionId, Record
from host_broker.registry import STORED_FORM, protocols

_STEP_BYTES = 64 * 1024  # of a request, at once
_AHEAD_BYTES = 32 * 1024  # of a request, that wait for the journal
_STEP_S = 0.001  # that a step may take, with the turn that it is part of; then the next is smaller
_FEWEST_PACKETS, _MOST_PACKETS = 16, 1024  # of a step
_WRITE_S = 20.0


class Busy(Exception):
    """It cannot be taken now; trying again soon helps. Says why."""

    def __init__(self, why: str = "the journal has more to write than it may") -> None:
        super().__init__(why)


class Publishing:
    """Publishes on behalf of programs that are not connected, one request after the other."""

    def __init__(
        self, server: Server, broker: Broker, journal: Journal | None, max_steps_per_s: int
    ) -> None:
        """``max_steps_per_s``: through the index, for the publications of all programs together,
        and as many for their questions."""
        self._server = server
        self._broker = broker
        self._journal = journal
        self.rest_s = STEPS_AT_ONCE / max_steps_per_s  # until as many may be made again
        self._connections: dict[Principal | None, ConnectionId] = {}
        self._connection: ConnectionId = 0  # of the request under way
        self._turn = asyncio.Lock()
        self._questions = asyncio.Lock()

    @property
    def is_full(self) -> bool:
        """Whether the journal has more to write than it may."""
        return self._journal is not None and self._journal.full

    async def publish(
        self, packets: bytes, name: str = "", principal: Principal | None = None
    ) -> int:
        """Publish FMQP packets, at most 8 MiB, for ``principal`` (None: the broker itself);
        returns how many were accepted.

        All others were discarded, as those of any client would be. With a ``name`` they are one
        record of the journal, which has it as its client: whole, or not there. Raises ``Busy``;
        nothing is published then. A queue that has its publishers wait is a reason, too: here
        nobody has a connection that could be held. So is a broker that is stopping, which may have
        published a part; with a ``name`` the journal has nothing of it.
        """
        async with self._turn:
            self._refuse_at_the_end()
            if self.is_full:
                raise Busy
            if self._broker.makes_publishers_wait:
                await self._refuse_to_wait(packets)
            self._connection = self._connection_of(principal)
            before = self._broker.published(self._connection)
            if name:
                with self._server.withheld(self._connection) as withheld:
                    await self._publish(packets)
                    await asyncio.sleep(0)  # the turn in which the last of them come
                self._refuse_at_the_end()
                records = withheld.records
                joined = [_joined(records, name)] if records else []
                self._server.keep(joined, withheld.retained)
            else:
                await self._publish(packets)
                self._refuse_at_the_end()
            return self._broker.published(self._connection) - before

    def _refuse_at_the_end(self) -> None:
        """Raise ``Busy`` if the broker is stopping: it takes nothing more, from anybody."""
        if self._broker.is_ending:
            raise Busy("the broker is stopping")

    def _connection_of(self, principal: Principal | None) -> ConnectionId:
        """Return the connection of a principal; who is at which address makes no difference."""
        connection = self._connections.get(principal)
        if connection is None:
            spec = protocols()[STORED_FORM]
            connection = self._server.open_internal(spec, principal)
            self._connections[principal] = connection
        return connection

    async def keep(self, *, sync: bool = False) -> None:
        """Wait until all that was published until now is kept as ``journal.ack`` says, or is on
        the disk (``sync``).

        Raises ``Busy`` if the disk does not answer, or is full.
        """
        await asyncio.sleep(0)  # the turn in which the last of it comes
        await self._reach("synced" if sync else "kept")

    async def wanted(self, topics: list[bytes]) -> list[bool]:
        """Return, by topic, whether anybody would get a publication."""
        answers: list[bool] = []
        async with self._questions:
            for answer in self._broker.wanted(topics, STEPS_AT_ONCE):
                if answer is not None:
                    answers.append(answer)
                else:
                    await asyncio.sleep(self.rest_s)
        return answers

    def statistics(self) -> Mapping[str, object]:
        """Return the counts of the broker since its start."""
        return statistics(self._broker, self._journal, self._server.disconnected)

    async def _refuse_to_wait(self, packets: bytes) -> None:
        start = 0
        while start < len(packets):
            end = _end_of_step(packets, start, _MOST_PACKETS)
            reason = self._broker.waits_for(_topics(packets, start, end))
            if reason:
                raise Busy(reason)
            start = end
            await asyncio.sleep(0)

    async def _reach(self, level: Level) -> None:
        if self._journal is None:
            return
        try:
            await self._journal.reach(self._journal.appended, _WRITE_S, level)
        except (TimeoutError, JournalError, MessageStoreError):
            raise Busy from None

    async def _publish(self, packets: bytes) -> None:
        loop = asyncio.get_running_loop()
        position, most, kept = 0, _FEWEST_PACKETS, 0
        while position < len(packets):
            self._refuse_at_the_end()
            end = _end_of_step(packets, position, most)
            began = loop.time()
            self._server.received(self._connection, packets[position:end])
            position = end
            await asyncio.sleep(0)
            long = loop.time() - began > _STEP_S
            most = max(most // 2, _FEWEST_PACKETS) if long else min(most * 2, _MOST_PACKETS)
            if position - kept >= _AHEAD_BYTES:
                # Or others' answers would wait for the journal to write all of it before theirs.
                kept = position
                try:
                    await self._reach("written")
                except Busy:
                    kept = len(packets)  # all is published or nothing: it goes on without waiting
            while self._broker.is_suspended(self._connection):
                await asyncio.sleep(self.rest_s)
                self._server.proceed_internal(self._connection)


def _end_of_step(packets: bytes, position: int, most: int) -> int:
    """Return where the packets end that are published at once, from ``position`` on."""
    end = position
    for _ in range(most):
        _, topic_length, body_length = HEADER.unpack_from(packets, end)
        end += HEADER.size + topic_length + body_length
        if end >= len(packets) or end - position >= _STEP_BYTES:
            break
    return end


def _topics(packets: bytes, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        _, topic_length, body_length = HEADER.unpack_from(packets, start)
        start += HEADER.size + topic_length
        yield packets[start - topic_length : start]
        start += body_length


def _joined(records: list[Record], name: str) -> Record:
    count = sum(record.count for record in records)
    first = records[0]
    body = b"".join(record.body for record in records)
    return Record(first.connection, first.protocol, name, count, body)
