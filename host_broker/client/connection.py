"""One session in an event loop with its socket, or two: bytes in and out, deadlines, the end.

Why so long: it is one state machine.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import cast

from host_broker.address import Address
from host_broker.client import dialing
from host_broker.client.first_words import stranger
from host_broker.client_errors import BadArgument, ClientError, ConnectionLost
from host_broker.client_session import Channel, ClientSession, Closed, Event, Opens

# Bytes that wait for the kernel: above it a publisher waits, so memory is never the queue.
BACKLOG_BYTES = 1024 * 1024
_TRANSPORT_BYTES = 256 * 1024
_BURST_S = 0.0002
_RST = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 s

Take = Callable[["Connection", Sequence[Event]], None]
End = Callable[["Connection", ClientError], None]


class _ChannelConnection(asyncio.Protocol):
    """One socket with one channel. ``lock`` guards the channel: commands may come from any thread.

    Who derives from it says what becomes of events (``_deliver``), and does what is to be done once
    it has ended (``_over``, called exactly once); both with the lock held, in the loop's thread.
    """

    def __init__(
        self, channel: Channel, address: Address, timeout_s: float, lock: threading.RLock
    ) -> None:
        self.ended: ClientError | None = None
        self._channel = channel
        self._address = address
        self._timeout_s = timeout_s
        self._lock = lock
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._socket: socket.socket | None = None
        self._transport: asyncio.Transport | None = None
        self._backlog: list[bytes] = []
        self._backlog_bytes = 0
        self._full = False  # the transport takes no more now
        self._write_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._secure = address.transport == "tls"
        channel.shows_no_certificate = self._secure and not address.options.get("cert")
        self._sent_at = 0.0
        self._gone = self._loop.create_future()

    def _deliver(self, events: Sequence[Event]) -> None:
        raise NotImplementedError

    def _over(self, error: ClientError) -> None:
        raise NotImplementedError

    async def _dial(self, until: float) -> None:
        """Reach the broker, shake hands for TLS, and say the channel's first words."""
        context = dialing.tls_context(self._address)
        raw = await _reached(self._address, self._timeout_s, until)
        self._socket = raw
        loop = asyncio.get_running_loop()
        try:
            if context is None:
                await loop.create_connection(lambda: self, sock=raw)
            else:
                async with asyncio.timeout(max(0.0, until - time.monotonic())):
                    await loop.create_connection(
                        lambda: self, sock=raw, ssl=context, server_hostname=self._address.host
                    )
        except (OSError, ssl.SSLError, ValueError) as error:
            raw.close()
            raise dialing.tls_failed(self._address, error, self._timeout_s) from error
        except BaseException:
            raw.close()
            raise

    @property
    def backlog_is_full(self) -> bool:
        """Whether a publisher has to wait."""
        return self._backlog_bytes >= BACKLOG_BYTES

    def collect(self, now: float) -> None:
        """Take what the channel has to send. From any thread, with the lock held.

        The first of a burst is sent at once: another thread would have to be woken for it. What
        follows within 0.2 ms is sent together, by the loop.
        """
        out = self._channel.data_to_send()
        if not self._backlog and now - self._sent_at > _BURST_S:
            out = self._sent_directly(out)
        self._sent_at = now
        for data in out:
            self._backlog.append(data)
            self._backlog_bytes += len(data)
        if self._backlog:
            self.send_soon()

    def send_soon(self) -> None:
        """Have the loop send what the channel has by then. From any thread, with the lock held."""
        if not self._write_is_due and self.ended is None:
            self._write_is_due = True
            if threading.get_ident() == self._thread:
                self._loop.call_soon(self._write_due)
            else:
                self._loop.call_soon_threadsafe(self._write_due)

    def _sent_directly(self, out: list[bytes]) -> list[bytes]:
        """Send past the transport, which has nothing to send; returns what is left."""
        transport, raw = self._transport, self._socket
        if transport is None or raw is None or self.ended is not None or self._secure:
            return out
        if transport.is_closing() or transport.get_write_buffer_size():
            return out
        data = b"".join(out)
        try:
            sent = raw.send(data)
        except OSError:
            return out  # the transport will find out what is wrong
        return [data[sent:]] if sent < len(data) else []

    def flush(self) -> None:
        """Send what the channel has to send, now. In the loop's thread, with the lock held."""
        for data in self._channel.data_to_send():
            self._backlog.append(data)
            self._backlog_bytes += len(data)
        self._write()
        self._set_timer()

    def pause(self) -> None:
        """Read no more for now."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    async def close(self, timeout_s: float) -> None:
        """Send what is waiting, then close in order; reset it if that takes longer."""
        with self._lock:
            self.flush()
            if self._transport is not None and not self._backlog:
                self._transport.close()
        if self._transport is not None and not self._gone.done():
            until = time.monotonic() + timeout_s
            while self._backlog and not self._gone.done() and time.monotonic() < until:
                await asyncio.wait([self._gone], timeout=0.01)
            self._transport.close()
            await asyncio.wait([self._gone], timeout=max(0.0, until - time.monotonic()))
        if not self._gone.done():
            self.abort(ConnectionLost(f"the connection to {self._address} was closed"))
            await asyncio.wait([self._gone], timeout=1.0)

    def abort(self, error: ClientError) -> None:
        """End it as if the program had died without its operating system: by an RST.

        What was published before is handed to the kernel first.
        """
        with self._lock:
            self.flush()
            self._finish(error)
            if self._transport is not None and self._socket is not None:
                # It fails if the peer has already gone, which is what we want anyway.
                with contextlib.suppress(OSError):
                    self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
                self._transport.abort()

    def forsake(self) -> None:
        """Give up our end without a word to the other: it belongs to the process that forked us."""
        if self._socket is not None:
            self._socket.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_TRANSPORT_BYTES)
        with self._lock:
            self._happened(self._channel.begin(time.monotonic()))
            self.flush()

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        with self._lock:
            if self.ended is not None:
                return
            channel = self._channel
            speaks = None if channel.heard else stranger(data[:16])
            if speaks not in (None, channel.begins_as):
                self.abort(channel.broken(f"what answers there speaks {speaks}").error)
                return
            had_credit = channel.credit
            self._happened(channel.receive_data(data, now))
            if channel.credit and not had_credit:
                self._deliver(())  # who waited may go on, also if nothing else has happened
            self.flush()

    def eof_received(self) -> bool:
        with self._lock:
            text = f"{self._address} closed the connection{self._channel.doubt}"
            self._finish(self._channel.receive_end(ConnectionLost(text)))
        return False

    def connection_lost(self, error: Exception | None) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            why = "it was closed" if error is None else getattr(error, "strerror", None) or error
            text = f"the connection to {self._address} was lost: {why}{self._channel.doubt}"
            self._finish(self._channel.receive_end(ConnectionLost(text)))
        if not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        with self._lock:
            self._full = False
            self._write()

    def _write_due(self) -> None:
        with self._lock:
            self._write_is_due = False
            if self.ended is None:
                self.flush()

    def _write(self) -> None:
        if self._full or not self._backlog or self._transport is None:
            return
        was_full = self.backlog_is_full
        data = b"".join(self._backlog) if len(self._backlog) > 1 else self._backlog[0]
        self._backlog.clear()
        self._backlog_bytes = 0
        if not self._transport.is_closing():
            self._transport.write(data)
        if was_full:
            self._deliver(())  # who waited may go on

    def _happened(self, events: Sequence[Event]) -> None:
        if not events:
            return
        last = events[-1]
        self._deliver(events)
        if isinstance(last, Closed):
            self.abort(last.error)

    def _finish(self, error: ClientError) -> None:
        if self.ended is not None:
            return
        self.ended = error
        self._over(error)

    def _set_timer(self) -> None:
        deadline = self._channel.next_deadline
        if deadline == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = deadline
        if deadline is not None and self.ended is None:
            delay_s = max(0.0, deadline - time.monotonic())
            self._timer = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        with self._lock:
            self._timer = self._timer_at = None
            if self.ended is None:
                self._happened(self._channel.tick(time.monotonic()))
                self.flush()


class Connection(_ChannelConnection):
    """A session with its connection to the broker, and the second one if it wants that.

    Made by ``connect``. ``take`` is called with events, ``end`` exactly once with why it ended.
    """

    def __init__(
        self,
        session: ClientSession,
        address: Address,
        timeout_s: float,
        lock: threading.RLock,
        take: Take,
        end: End,
    ) -> None:
        super().__init__(session, address, timeout_s, lock)
        self.session = session
        self._take = take
        self._end = end
        self._second: _Second | None = None
        self._dialing: asyncio.Task[None] | None = None
        self._closing = False

    @classmethod
    async def connect(
        cls,
        session: ClientSession,
        address: Address,
        timeout_s: float,
        until: float,
        lock: threading.RLock,
        take: Take,
        end: End,
    ) -> "Connection":
        """Reach the broker, shake hands for TLS, and say the session's first words.

        ``timeout_s`` is what people asked for, ``until`` (monotonic()) what is left of it.

        Raises ``ConnectFailed``, and ``BadArgument`` for files and options that cannot be.
        """
        connection = cls(session, address, timeout_s, lock, take, end)
        await connection._dial(until)
        return connection

    @property
    def backlog_is_full(self) -> bool:
        second = self._second
        return super().backlog_is_full or (second is not None and second.backlog_is_full)

    def collect(self, now: float) -> None:
        super().collect(now)
        if self._second is not None:
            self._second.collect(now)

    def send_soon(self) -> None:
        super().send_soon()
        if self._second is not None:
            self._second.send_soon()

    def flush(self) -> None:
        super().flush()
        if self._second is not None:
            self._second.flush()

    def pause(self) -> None:
        """Read no more messages for now."""
        if self._second is None:
            super().pause()
        else:
            self._second.pause()

    def resume(self) -> None:
        if self._second is None:
            super().resume()
        else:
            self._second.resume()

    async def close(self, timeout_s: float) -> None:
        """Send what is waiting, then close in order; reset it if that takes longer.

        The second connection first: a broker may give up what it has not read of that once the
        first has ended.
        """
        until = time.monotonic() + timeout_s
        self._closing = True
        if self._second is not None:
            await self._second.close_after_peer(timeout_s)
        await super().close(max(0.0, until - time.monotonic()))

    def abort(self, error: ClientError) -> None:
        with self._lock:
            if self._dialing is not None:
                self._dialing.cancel()
            if self._second is not None and self._second.ended is None:
                self._second.abort(error)
            super().abort(error)

    def forsake(self) -> None:
        super().forsake()
        if self._second is not None:
            self._second.forsake()

    def second_ended(self, error: ClientError) -> None:
        """Both end together, but in order if the program closes them. With the lock held."""
        if not self._closing:
            self.abort(error)

    def second_brought(self, events: Sequence[Event]) -> None:
        """Events of the second connection are the session's. With the lock held."""
        self._take(self, events)

    def _deliver(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Opens):
                self._second = _Second(event.channel, self._address, self._timeout_s, self)
                self._dialing = self._loop.create_task(self._open(self._second))
        self._take(self, events)

    def _over(self, error: ClientError) -> None:
        if self._dialing is not None:
            self._dialing.cancel()
        if self._second is not None and self._second.ended is None:
            self._second.abort(error)
        self._end(self, error)

    async def _open(self, second: "_Second") -> None:
        try:
            await second._dial(time.monotonic() + self._timeout_s)
        except (ClientError, BadArgument) as error:
            lost = error if isinstance(error, ClientError) else ConnectionLost(str(error))
            with self._lock:
                if self.ended is None:
                    self.abort(lost)


class _Second(_ChannelConnection):
    """The second connection of a session, whose first one is ``owner``."""

    def __init__(
        self, channel: Channel, address: Address, timeout_s: float, owner: Connection
    ) -> None:
        super().__init__(channel, address, timeout_s, owner._lock)
        self._owner = owner

    async def close_after_peer(self, timeout_s: float) -> None:
        """Close when the broker has read everything, which it shows by closing its end."""
        until = time.monotonic() + timeout_s
        with self._lock:
            self.flush()
        transport = self._transport
        while transport is not None and self._backlog and time.monotonic() < until:
            if self._gone.done():
                return
            await asyncio.wait([self._gone], timeout=0.01)
        if transport is not None and not self._gone.done() and transport.can_write_eof():
            transport.write_eof()
            await asyncio.wait([self._gone], timeout=max(0.0, until - time.monotonic()))
        await self.close(max(0.0, until - time.monotonic()))

    def _deliver(self, events: Sequence[Event]) -> None:
        self._owner.second_brought(events)

    def _over(self, error: ClientError) -> None:
        self._owner.second_ended(error)


async def _reached(address: Address, timeout_s: float, until: float) -> socket.socket:
    """Do ``dialing.reach`` in a thread of its own: a name server may take longer than we wait."""
    loop = asyncio.get_running_loop()
    reached: asyncio.Future[socket.socket] = loop.create_future()

    def settle(found: socket.socket | Exception) -> None:
        if reached.done():  # nobody waits any more
            if isinstance(found, socket.socket):
                found.close()
        elif isinstance(found, socket.socket):
            reached.set_result(found)
        else:
            reached.set_exception(found)

    def reach() -> None:
        found: socket.socket | Exception
        try:
            found = dialing.reach(address, timeout_s)
        except Exception as error:
            found = error
        try:
            loop.call_soon_threadsafe(settle, found)
        except RuntimeError:  # the loop has ended meanwhile
            if isinstance(found, socket.socket):
                found.close()

    threading.Thread(target=reach, name="motemq-dial", daemon=True).start()
    try:
        async with asyncio.timeout(max(0.0, until - time.monotonic())):
            return await reached
    except BaseException as error:
        # It may have been reached in the same turn of the loop.
        if reached.done() and not reached.cancelled() and reached.exception() is None:
            reached.result().close()
        if isinstance(error, TimeoutError):
            raise dialing.failed(address, error, timeout_s) from None
        raise
