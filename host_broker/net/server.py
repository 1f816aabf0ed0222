"""Runs the pure broker: what sockets say goes in, what it returns is done."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from host_broker.broker import Broker
from host_broker.net.alarm import Alarm
from host_broker.net.connection import Connection
from host_broker.net.idleness import Idleness
from host_broker.net.journal.writer import Journal
from host_broker.net.poller import Poller
from host_broker.net.retained_store import RetainedStore
from host_broker.net.slow import Dropped
from host_broker.outputs import Close, ConnectionId, Outputs, Record
from host_broker.settings import NetSettings

_log = logging.getLogger(__name__)

_RESTING = "fmqp.max_discards_per_s"  # why a connection is not read
_FEW_BUFFERS = 4  # more, of reads of one turn, are joined
_GOODBYE_S = 5.0  # for TLS peers to say that they have read our last word


class Server:
    """The broker's connections. One event loop, no task per connection.

    Publications are lossless, unless a listener's policy for slow receivers says otherwise: a
    connection that publishes to a receiver above ``net.outbox_high_bytes``, or while the journal is
    ``full``, is read no further until that is over. A receiver that stalls for
    ``net.stalled_receiver_s`` is disconnected. ``dropped`` counts what slow ones were not sent.
    """

    def __init__(
        self,
        broker: Broker,
        settings: NetSettings,
        poller: Poller,
        journal: Journal | None,
        store: RetainedStore | None = None,
        on_signal: Callable[[str], None] | None = None,
    ) -> None:
        """``on_signal`` is called when a client asks for the end: ``stop`` or ``terminate``."""
        self.settings = settings
        self.dropped = Dropped()
        self._store = store
        self._on_signal = on_signal
        self._broker = broker
        self._journal = journal
        # With a journal nothing is passed on before it is recorded.
        self.direct = broker.direct if journal is None else None
        self._loop = asyncio.get_running_loop()
        self.connections: dict[ConnectionId, Connection] = {}
        self._last_id = 0
        self._full = False  # said so already
        self._held_by_journal: set[Connection] = set()
        self._unflushed: list[Connection] = []
        self._in_turn = False  # of the poller
        self._turn_began = 0.0
        poller.turns(self._begin_turn, self._end_turn, self._loop.call_exception_handler)
        if journal is None:
            poller.pass_on(broker.max_body, lambda: broker.routes)
        self.passage = poller.passage
        self.passed = broker.passed  # what was passed on (``Passage``)
        self._alarm = Alarm(self._loop, self._tick)
        self._all_gone = asyncio.Event()
        self._all_gone.set()
        self._closing = False  # all connections, for good

    # ---- called by connections ----

    def opened(self, connection: Connection) -> None:
        """Take a new connection, or close it when there are too many."""
        if self._closing or len(self.connections) >= self.settings.max_connections:
            connection.ended = True
            connection.transport.abort()
            if not self._full and not self._closing:
                self._full = True
                text = "refusing connections: %d are open, net.max_connections allows no more"
                _log.warning(text, len(self.connections))
            return
        self._last_id += 1
        connection.id = self._last_id
        self.connections[connection.id] = connection
        self._all_gone.clear()
        if self._in_turn:
            self._forward()  # it came by an auto listener, in the middle of the reads of others
        try:
            now, local = self._now(), connection.local
            self._run(self._broker.opened(connection.id, connection.protocol, now, local))
        except Exception:
            # asyncio closes a connection whose read failed, but not one that failed to begin.
            connection.transport.abort()
            raise

    def received(self, connection: Connection, data: bytes) -> None:
        """Hand one read to the broker."""
        connection.heard = True
        if connection.ended:
            return
        if not self._in_turn:
            self._run(self._broker.received(connection.id, data, self._now()), (connection,))
            return
        outputs = self._broker.gather(connection.id, data, self._turn_began)
        if outputs is not None:
            self._forward()
            self._run(outputs, (connection,))

    def ended(self, connection: Connection) -> None:
        """Tell the broker, once, that a connection is over: wills run now."""
        if not connection.ended:
            connection.ended = True
            self._forward()
            connection.left = True
            self._run(self._broker.closed(connection.id, self._now()))

    def lost(self, connection: Connection) -> None:
        """Forget a connection whose socket is closed."""
        self.ended(connection)
        self._held_by_journal.discard(connection)
        self.connections.pop(connection.id, None)
        self._full = False
        if not self.connections:
            self._all_gone.set()

    def inside(self, connection: ConnectionId, data: bytes, kept: list[Record]) -> ConnectionId:
        """Take FMQP of a client of this process (0: a new one); ``kept`` is given its records."""
        self._forward()
        if not connection:
            connection = self._last_id = self._last_id + 1
            self._run(self._broker.opened(connection, "fmqp", self._now(), loopback=False))
        outputs = self._broker.received(connection, data, self._now())
        kept += outputs.records
        outputs.records = []
        self._run(outputs)
        return connection

    def flush_soon(self, connection: Connection) -> None:
        """Have a connection write when all reads that are there now were handled."""
        if not self._unflushed and not self._in_turn:
            self._loop.call_soon(self._flush)
        self._unflushed.append(connection)

    def gave_up(self, connection: Connection, reason: str) -> None:
        """Disconnect a receiver that holds its publishers up."""
        _log.warning("connection %d is closed: %s", connection.id, reason)
        connection.transport.abort()

    def _begin_turn(self) -> None:
        self._in_turn = True
        self._turn_began = time.monotonic()

    def _end_turn(self) -> None:
        self._forward()
        self._in_turn = False
        if self._unflushed:
            self._flush()

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

    def watch_idleness(self, protocol: str, timeout_s: float) -> None:
        """From now on close connections of ``protocol`` from which nothing comes that long."""
        Idleness(self.connections, protocol, timeout_s, self._close).start(self._loop)

    async def stop(self, drain_s: float, close_listeners: Callable[[], None]) -> None:
        """End as FMQP R33 to R38 say; those listeners are closed already that answer nobody (R33).

        Read no more (R34), wait until all is sent (R35), run all wills (R36), wait until they are
        sent (R37), ``close_listeners``, close (R38). Each wait is at most ``drain_s``; what was not
        taken by then is dropped with its connection.
        """
        self._broker.stopping()
        self._alarm.cancel()
        for connection in self.connections.values():
            connection.hold(self)
        if not await self._drain(drain_s):
            self.abort()  # or the next wait would be for the same sleepers
            await asyncio.sleep(0)  # their wills run when asyncio has closed them
        remaining = list(self.connections.values())
        for connection in remaining:
            connection.ended = True
        self._run(self._broker.stop(self._now()))
        if not await self._drain(drain_s):
            self.abort()
        close_listeners()
        self._closing = True
        for connection in list(self.connections.values()):
            connection.close()
        try:
            await asyncio.wait_for(self._all_gone.wait(), _GOODBYE_S)
        except TimeoutError:
            self.abort()
            await self._all_gone.wait()

    async def terminate(self) -> None:
        """End at once: no wills, nothing more is sent (FMQP R31)."""
        self._closing = True
        self._alarm.cancel()
        for connection in self.connections.values():
            connection.ended = True
            connection.transport.abort()
        await self._all_gone.wait()

    async def _drain(self, deadline_s: float) -> bool:
        """Wait until the kernel has taken everything; False if some was left at the deadline."""
        waits = [connection.drained() for connection in self.connections.values()]
        if not waits:
            return True
        _, late = await asyncio.wait(waits, timeout=deadline_s)
        return not late

    def abort(self) -> None:
        """Reset every connection that has something left, sending nothing more."""
        connections = [each for each in self.connections.values() if each.congested]
        if connections:
            _log.warning("%d connections were reset, unsent messages are lost", len(connections))
        for connection in connections:
            connection.transport.abort()

    # ---- the broker's outputs ----

    def _now(self) -> float:
        return time.monotonic()  # the loop's clock, too

    def _run(self, outputs: Outputs, senders: Sequence[Connection] = ()) -> None:
        """Do what the broker wants; ``senders`` caused it, and wait for receivers they congest."""
        if outputs.records:
            self.keep(outputs.records, senders)
        if outputs.retained and self._store is not None:
            self._store.put(outputs.retained)
        for identity, buffers in outputs.sends.items():
            receiver = self.connections.get(identity)
            if receiver is not None:
                receiver.send(buffers, senders)
        for close in outputs.closes:
            self._close(close)
        if outputs.rest_s:
            for sender in senders:
                sender.hold(_RESTING)
                self._loop.call_later(outputs.rest_s, sender.release, _RESTING)
        if outputs.signal and self._on_signal is not None:
            self._on_signal(outputs.signal)
        self._alarm.set(self._broker.next_deadline())

    def _forward(self) -> None:
        """Send what the reads of this turn have for others, so far."""
        gathered = self._broker.gathered()
        if gathered is None:
            return
        connections = self.connections
        of = connections.__getitem__
        if gathered.records:
            self.keep(gathered.records, [of(record.connection) for record in gathered.records])
        for forward in gathered.forwards:
            senders = list(map(of, forward.senders))
            buffers = forward.buffers
            if len(buffers) > _FEW_BUFFERS:  # joined once, for all receivers
                buffers = [b"".join(buffers)]
            for identity in forward.receivers:
                receiver = connections.get(identity)
                if receiver is not None:
                    receiver.send(buffers, senders)

    def keep(self, records: list[Record], senders: Sequence[Connection]) -> None:
        """Hand records to the journal; ``senders`` wait while it is full."""
        journal = self._journal
        if journal is not None:
            journal.append(time.time_ns(), records)
            if journal.full:
                for sender in senders:
                    sender.hold(journal)
                self._held_by_journal.update(senders)

    def _close(self, close: Close) -> None:
        connection = self.connections.get(close.connection)
        if connection is None:
            return
        _log.info("connection %d is closed: %s", close.connection, close.reason)
        connection.left = True  # of many subscriptions it is taken off the bus step by step
        (connection.transport.abort if close.abort else connection.close)()

    def _tick(self) -> None:
        self._run(self._broker.tick(self._now(), self._perhaps_unread))

    def _perhaps_unread(self, identity: ConnectionId) -> bool:
        connection = self.connections.get(identity)
        return connection is not None and connection.perhaps_unread()
