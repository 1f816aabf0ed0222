"""Runs the pure broker: what sockets say goes in, what it returns is done."""

import asyncio
import logging
import time

from host_broker.broker import Broker
from host_broker.net.connection import Connection
from host_broker.net.journal import Journal
from host_broker.outputs import Close, ConnectionId, Outputs
from host_broker.settings import NetSettings

_log = logging.getLogger(__name__)


class Server:
    """The broker's connections. One event loop, no task per connection.

    Publications are lossless: a connection that publishes to a receiver above
    ``net.outbox_high_bytes``, or while the journal is ``full``, is read no further until that is
    over. A receiver that stalls for ``net.stalled_receiver_s`` is disconnected.
    """

    def __init__(self, broker: Broker, settings: NetSettings, journal: Journal | None) -> None:
        self.settings = settings
        self._broker = broker
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._connections: dict[ConnectionId, Connection] = {}
        self._last_id = 0
        self._full = False  # said so already
        self._held_by_journal: set[Connection] = set()
        self._unflushed: list[Connection] = []
        self._timer: asyncio.TimerHandle | None = None
        self._all_gone = asyncio.Event()
        self._all_gone.set()
        self._stopping = False

    # ---- called by connections ----

    def opened(self, connection: Connection) -> None:
        """Take a new connection, or close it when there are too many."""
        if self._stopping or len(self._connections) >= self.settings.max_connections:
            connection.ended = True
            connection.transport.abort()
            if not self._full and not self._stopping:
                self._full = True
                _log.warning(
                    "refusing connections: %d are open, net.max_connections allows no more",
                    len(self._connections),
                )
            return
        self._last_id += 1
        connection.id = self._last_id
        self._connections[connection.id] = connection
        self._all_gone.clear()
        try:
            self._run(self._broker.opened(connection.id, connection.protocol, self._now()), None)
        except Exception:
            # asyncio closes a connection whose read failed, but not one that failed to begin.
            connection.transport.abort()
            raise

    def received(self, connection: Connection, data: bytes) -> None:
        """Hand one read to the broker."""
        if not connection.ended:
            self._run(self._broker.received(connection.id, data, self._now()), connection)

    def ended(self, connection: Connection) -> None:
        """Tell the broker, once, that a connection is over: wills run now."""
        if not connection.ended:
            connection.ended = True
            self._run(self._broker.closed(connection.id, self._now()), None)

    def lost(self, connection: Connection) -> None:
        """Forget a connection whose socket is closed."""
        self.ended(connection)
        self._held_by_journal.discard(connection)
        self._connections.pop(connection.id, None)
        self._full = False
        if not self._connections:
            self._all_gone.set()

    def flush_soon(self, connection: Connection) -> None:
        """Have a connection write when all reads that are there now were handled."""
        if not self._unflushed:
            self._loop.call_soon(self._flush)
        self._unflushed.append(connection)

    def gave_up(self, connection: Connection, reason: str) -> None:
        """Disconnect a receiver that holds its publishers up."""
        _log.warning("connection %d is closed: %s", connection.id, reason)
        connection.transport.abort()

    def _flush(self) -> None:
        connections, self._unflushed = self._unflushed, []
        for connection in connections:
            connection.flush()

    # ---- called by the service ----

    def journal_drained(self) -> None:
        """Go on reading from those who waited for the journal."""
        held, self._held_by_journal = self._held_by_journal, set()
        for connection in held:
            connection.release(self._journal)

    async def stop(self, deadline_s: float) -> None:
        """Read no more, run all wills, send what is waiting, close.

        What is not taken by its receiver within ``deadline_s`` is dropped.
        """
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        connections = list(self._connections.values())
        for connection in connections:
            connection.hold(self)
        for connection in connections:
            connection.ended = True
        self._run(self._broker.stop(self._now()), None)
        for connection in connections:
            connection.close()
        try:
            await asyncio.wait_for(self._all_gone.wait(), deadline_s)
        except TimeoutError:
            self.abort()
            await self._all_gone.wait()

    def abort(self) -> None:
        """Reset every connection, sending nothing more."""
        connections = list(self._connections.values())
        if connections:
            _log.warning("%d connections were reset, unsent messages are lost", len(connections))
        for connection in connections:
            connection.transport.abort()

    # ---- the broker's outputs ----

    def _now(self) -> float:
        return self._loop.time()

    def _run(self, outputs: Outputs, sender: Connection | None) -> None:
        """Do what the broker wants: records, sends, closes.

        ``sender`` is the connection whose bytes caused it; it waits for receivers it has congested.
        """
        journal = self._journal
        if outputs.records and journal is not None:
            journal.append(time.time_ns(), outputs.records)
            if journal.full and sender is not None:
                sender.hold(journal)
                self._held_by_journal.add(sender)
        for identity, buffers in outputs.sends.items():
            receiver = self._connections.get(identity)
            if receiver is not None:
                receiver.send(buffers, sender)
        for close in outputs.closes:
            self._close(close)
        self._schedule()

    def _close(self, close: Close) -> None:
        connection = self._connections.get(close.connection)
        if connection is None:
            return
        _log.info("connection %d is closed: %s", close.connection, close.reason)
        if close.abort:
            connection.transport.abort()
        else:
            connection.close()

    def _schedule(self) -> None:
        """Keep one timer, at or before the broker's next deadline.

        A timer that comes too early costs one tick; moving it at every read would cost more.
        """
        deadline = self._broker.next_deadline()
        if deadline is None or self._stopping:
            return
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._run(self._broker.tick(self._now()), None)
