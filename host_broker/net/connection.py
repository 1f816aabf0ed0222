"""One accepted socket: reads go to the server, writes are bounded by making publishers wait."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from host_broker.net.lanes import Passage
from host_broker.net.reader import Reader
from host_broker.net.slow import Overflow, Policy
from host_broker.net.stall import Stall
from host_broker.net.stream import Stream
from host_broker.net.tuning import is_local, tune
from host_broker.outputs import Buffer, ConnectionId

if TYPE_CHECKING:
    from host_broker.net.server import Server

_log = logging.getLogger(__name__)

# Back-pressure acts between reads. Within one, 256 KiB of subscriptions can ask for all retained
# messages thousands of times; twice what fmqp.max_cached_bytes allows by default is honest.
_LARGEST_WRITE_BYTES = 128 * 1024 * 1024

# What is sent within one turn of the event loop is one write: a hundred reads of one publication
# each would otherwise be a hundred system calls. This much is worth a write of its own.
_WORTH_WRITING_BYTES = 64 * 1024


class Connection(Reader):
    """A socket of the broker.

    Back-pressure: while ``congested`` (more than the high mark waits to be sent), connections that
    publish to it are put on hold by ``hold``; they go on when it has drained below the low mark.
    With another policy than ``pause`` messages of others are dropped then, or it is disconnected;
    a connection that congests itself waits for itself.
    """

    def __init__(self, server: "Server", protocol: str, slow: Policy = "pause") -> None:
        self.id: ConnectionId = 0
        self.protocol = protocol
        self.congested = False
        self.heard = True  # since the server last looked
        self.local = True  # the peer is on this machine
        self.ended = False  # the broker was told, or never knew it
        self.left = False  # it is sent no more
        self.transport: asyncio.Transport
        self._stream: Stream | None = None  # the transport, if it is one
        self._server = server
        self._slow = slow
        self._overflow: Overflow | None = None  # what drops, if we drop
        self._drained: asyncio.Future[None] | None = None
        self._unwritten: list[Buffer] = []  # of this turn of the event loop
        self._unwritten_bytes = 0
        self._senders: set[Connection] = set()  # whose reads asked for it
        self._held_by: set[object] = set()  # what we wait for; reading is paused while not empty
        self._held_lately = False  # since somebody asked whether anything is unread
        self._holding: set[Connection] = set()  # who waits for us
        self._stall: Stall | None = None

    # ---- called by asyncio ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if isinstance(transport, Stream):
            self._stream = transport
        settings = self._server.settings
        high, low = settings.outbox_high_bytes, settings.outbox_low_bytes
        if self._slow in ("drop-oldest", "drop-newest"):
            # Half of the outbox is the transport's, half is what can give way.
            high, low = high // 2, low // 2
            oldest = self._slow == "drop-oldest"
            self._overflow = Overflow(self.protocol, high, self._server.dropped, oldest=oldest)
        self.transport.set_write_buffer_limits(high, low)
        sock = transport.get_extra_info("socket")
        tune(sock, settings, patient=self._overflow is not None)
        self.local = is_local(sock)
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        self._server.received(self, data)

    def pass_on(self, data: bytes) -> bool | None:
        """Send a read to its receivers at once, if it is one publication that all get as it is."""
        server = self._server
        if server.direct is None:
            return None
        receivers = server.direct(self.id, data)
        if receivers is None:
            return None
        self.heard = True
        connections = server.connections
        done = True
        for identity in receivers.verbatim:
            receiver = connections.get(identity)
            if receiver is not None and not receiver.put(data, self):
                done = False
        if done and server.passage is not None:
            self._learn(server.passage, data, receivers.verbatim)
        return done

    def passed(self, count: int, size: int) -> None:
        """So many publications were passed on for it."""
        self.heard = True
        self._server.passed(self.id, count, size)

    def finish(self, data: bytes, sent: int, receivers: Sequence[Reader]) -> None:
        """Send some of them to these, too."""
        for receiver in receivers:
            if isinstance(receiver, Connection):
                receiver.put(data[sent:], self)
            sent = 0

    def eof_received(self) -> None:
        # A FIN ends the connection for the broker now: wills do not wait for its outbox. What is
        # in the outbox is still sent (returning None has asyncio flush, then close).
        self._server.ended(self)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stream = None
        self._unwritten.clear()
        self._say_drained()
        if self._overflow is not None and self._overflow.dropped.messages:
            dropped = self._overflow.dropped
            text = "connection %d was slow: %d messages (%d bytes) were dropped"
            _log.warning(text, self.id, dropped.messages, dropped.bytes)
        self._cancel_stall_timer()
        self._release_all()
        self._server.lost(self)

    def pause_writing(self) -> None:
        self.congested = True
        if self._overflow is None:
            self._stall = Stall(self.transport, self._server.settings, self._stalled)

    def resume_writing(self) -> None:
        self.congested = False
        self._cancel_stall_timer()
        if self._overflow:
            self._write_overflow(self._overflow)
            if self.congested:
                return  # once more; its publishers do not wait for it
        self._release_all()
        self._say_drained()

    # ---- called by the server ----

    def send(self, buffers: list[Buffer], senders: "Sequence[Connection]") -> None:
        """Send in this turn of the event loop; ``senders`` wait if that congests this receiver."""
        if self.left:
            return
        if self.congested and self._slow != "pause" and self not in senders:
            self._too_slow(buffers)
            return
        unwritten = self._unwritten
        if not unwritten:
            self._server.flush_soon(self)
        unwritten += buffers
        for buffer in buffers:
            self._unwritten_bytes += len(buffer)
        self._senders.update(senders)
        if self._unwritten_bytes > _WORTH_WRITING_BYTES:
            self.flush()

    def put(self, data: bytes, sender: "Connection") -> bool:
        """Send now; returns whether that was all: the kernel has it, and nobody has to wait."""
        stream = self._stream
        if stream is None or self._unwritten or self.congested or self.left:
            self.send([data], (sender,))
            self.flush()
            return False
        if stream.put(data):
            return True
        self._hold_up((sender,))
        return False

    def flush(self) -> None:
        """Write what was to be sent: one write, however many buffers."""
        buffers, size = self._unwritten, self._unwritten_bytes
        if not buffers:
            return
        self._unwritten, self._unwritten_bytes = [], 0
        if size <= _LARGEST_WRITE_BYTES:
            self.transport.writelines(buffers)
        else:
            self._server.gave_up(
                self, f"one read asked for more than {_LARGEST_WRITE_BYTES >> 20} MiB of answers"
            )
        self._hold_up(self._senders)
        self._senders.clear()

    def close(self) -> None:
        """Close when everything is sent."""
        self.flush()
        self.transport.close()

    def drained(self) -> "asyncio.Future[None]":
        """Drop no more, and return a future that is done when the kernel has taken everything."""
        self.flush()
        self._slow = "pause"
        self._cancel_stall_timer()
        self._drained = asyncio.get_running_loop().create_future()
        if self.transport.is_closing():
            self._say_drained()
            return self._drained
        while self._overflow and (buffer := self._overflow.get()) is not None:
            self.transport.write(buffer)
        # From now on "congested" is "has anything left": more than the mark, but for asyncio's TLS
        # as much as the mark is too much.
        tls = self.transport.get_extra_info("sslcontext") is not None
        self.transport.set_write_buffer_limits(high=int(tls), low=0)
        if not self.congested:
            self._say_drained()
        return self._drained

    def wait_for(self, receiver: "Connection") -> None:
        """Read no more until ``receiver`` is no longer congested."""
        receiver._holding.add(self)
        self.hold(receiver)

    def hold(self, reason: object) -> None:
        """Read no more until ``release`` with the same reason."""
        if not self._held_by and not self.transport.is_closing():
            self.transport.pause_reading()
        self._held_by.add(reason)
        self._held_lately = True

    def release(self, reason: object) -> None:
        """Go on reading, unless there is another reason not to."""
        self._held_by.discard(reason)
        if not self._held_by and not self.transport.is_closing():
            self.transport.resume_reading()

    @property
    def on_hold(self) -> bool:
        """Whether it is our doing that nothing is read."""
        return bool(self._held_by)

    def perhaps_unread(self) -> bool:
        """Whether the peer may have said what we have not read, because we let it wait.

        Also once more after that is over: what was waiting is read only then.
        """
        lately, self._held_lately = self._held_lately, self.on_hold
        return lately

    def _learn(self, passage: Passage, data: bytes, receivers: Sequence[ConnectionId]) -> None:
        """Have what is like ``data`` passed on from now on, which each of these was just sent."""
        streams = []
        for identity in receivers:
            receiver = self._server.connections.get(identity)
            if receiver is None or receiver._stream is None:
                return
            streams.append(receiver._stream.fd)
        if self._stream is not None:
            passage.learn(self._stream.fd, data, streams)

    # ---- slow receivers ----

    def _hold_up(self, senders: "Iterable[Connection]") -> None:
        """Have these wait for us, if we are congested now and they are to."""
        if self.congested:
            for sender in senders:
                if self._slow == "pause" or sender is self:
                    sender.wait_for(self)

    def _too_slow(self, buffers: list[Buffer]) -> None:
        if self._overflow is None:
            if not self.transport.is_closing():
                self._server.gave_up(self, "its outbox is full (slow=disconnect)")
            return
        silent = not self._overflow.dropped.messages
        self._overflow.put(buffers)
        if silent and self._overflow.dropped.messages:
            _log.warning("connection %d is slow: messages to it are dropped", self.id)

    def _write_overflow(self, overflow: Overflow) -> None:
        while not self.congested and (buffer := overflow.get()) is not None:
            self.transport.write(buffer)

    def _say_drained(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    # ---- stalled receivers ----

    def _stalled(self, reason: str) -> None:
        self._stall = None
        self._server.gave_up(self, reason)

    def _cancel_stall_timer(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _release_all(self) -> None:
        holding, self._holding = self._holding, set()
        for publisher in holding:
            publisher.release(self)
