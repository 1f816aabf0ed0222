"""What FMQP and LightMQ share: one stream, one fixed receive buffer, deadlines, errors.

A stream is anything non-blocking with ``readinto(buffer)`` and ``write(data)``, as MicroPython's
sockets and UARTs: both return how many bytes went, or ``None`` for "not now"; ``readinto`` returns
0 at the end. Optional: ``close()``, and ``pollable``, what ``select.poll`` can wait for (the
stream itself if absent; ``None`` if there is nothing: then the link looks every millisecond).

Time comes from ``ticks_ms``; no call waits longer than it was told to.
"""

try:
    from select import poll as Poller
    from time import sleep_ms, ticks_add, ticks_diff, ticks_ms

    from micropython import const
except ImportError:
    from umotemq._cpython import Poller, const, sleep_ms, ticks_add, ticks_diff, ticks_ms

_POLLIN = const(1)
_POLLOUT = const(4)


class LinkError(OSError):
    """The link failed and is closed now; ``phase`` says during what. Reconnect, on a new stream."""

    def __init__(self, phase: str, what: str):
        super().__init__(phase + ": " + what)
        self.phase = phase


class LinkClosed(LinkError):
    """The peer closed or reset the link, or it was closed here before."""


class LinkTimeout(LinkError):
    """The peer was silent, or stopped reading, for longer than ``timeout_ms``."""


class WireError(LinkError):
    """The peer sent what its protocol forbids."""


class NoAnswer(OSError):
    """One question was not answered in time; the link is still open."""


class Link:
    """One stream and its buffer. The clients inherit from it.

    ``rx_size``: bytes of the receive buffer; a longer message is skipped, never buffered.
    ``timeout_ms``: how long the peer may take to accept a write, to finish a message that it
    began, and to answer a keepalive. ``keepalive_ms``: after so long without sending, ``poll``
    sends a keepalive; 0 = never. ``discarded`` counts the messages that were thrown away.
    """

    def __init__(self, stream, rx_size: int, tx_size: int, timeout_ms: int, keepalive_ms: int):
        self.stream = stream
        self.timeout_ms = timeout_ms
        self.keepalive_ms = keepalive_ms
        self.discarded = 0
        self.down = None  # why the link is closed, as text
        self._buf = bytearray(rx_size)
        self._view = memoryview(self._buf)
        self._start = self._end = 0  # the bytes not yet parsed
        self._skip = 0  # bytes of a too long message still to come
        self._out = bytearray(tx_size)
        self._out_view = memoryview(self._out)
        self._out_now = self._out_view  # its slice of the last length: equal lengths reuse it
        self._last_rx = self._last_tx = ticks_ms()
        self._asked = None  # ticks of the first keepalive since the peer was last heard
        self._pollable = getattr(stream, "pollable", stream)
        self._poller = None
        if self._pollable is not None:
            self._poller = Poller()
            self._poller.register(self._pollable, _POLLIN)

    def poll(self, ms: int = 0) -> int:
        """Wait up to ``ms`` for messages, dispatch what came, return how many that were.

        Returns as soon as something was dispatched. Sends keepalives when due. Raises LinkError.
        """
        until = ticks_add(ticks_ms(), ms)
        handled = self._take()  # what an exception in a handler left behind
        while True:
            if self._fill(0 if handled else self._patience(until)):
                handled += self._take()
            now = ticks_ms()
            self._watch(now)
            if handled or ticks_diff(until, now) <= 0:
                return handled

    def close(self) -> None:
        """Close the stream. Never raises."""
        if self.down is None:
            self.down = "closed here"
            self._close_stream()

    # For the clients: _take() parses and dispatches what is buffered and returns how many
    # messages that were; _keepalive() sends one.

    def _fail(self, error: LinkError):
        self.down = str(error)
        self._start = self._end = self._skip = 0
        self._close_stream()
        raise error

    def _close_stream(self) -> None:
        close = getattr(self.stream, "close", None)
        if close:
            try:
                close()
            except OSError:
                return  # it is gone either way

    def _patience(self, until: int) -> int:
        # How long poll may sleep: until its end, the next keepalive, or a verdict on the peer.
        now = ticks_ms()
        wait = ticks_diff(until, now)
        if self.keepalive_ms:
            wait = min(wait, self.keepalive_ms - ticks_diff(now, self._last_tx))
            if self._asked is not None:
                wait = min(wait, self.timeout_ms - ticks_diff(now, self._asked) + 1)
        if self._start != self._end or self._skip:
            wait = min(wait, self.timeout_ms - ticks_diff(now, self._last_rx) + 1)
        return max(wait, 0)

    def _watch(self, now: int) -> None:
        if self._start != self._end or self._skip:
            if ticks_diff(now, self._last_rx) > self.timeout_ms:
                self._fail(LinkTimeout("receive", "the peer stopped in the middle of a message"))
        if self.keepalive_ms:
            if self._asked is not None and ticks_diff(now, self._asked) > self.timeout_ms:
                self._fail(LinkTimeout("keepalive", "the peer does not answer any more"))
            if ticks_diff(now, self._last_tx) >= self.keepalive_ms:
                self._keepalive(now)

    def _fill(self, wait_ms: int) -> bool:
        """Read once, after waiting up to ``wait_ms`` if nothing is there; True if bytes came."""
        if self.down is not None:
            raise LinkClosed("receive", "the link is down (" + self.down + ")")
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == len(self._buf):
            # bytes(): the two places may overlap
            self._buf[: self._end - self._start] = bytes(self._view[self._start : self._end])
            self._end -= self._start
            self._start = 0
        # a slice costs 32 bytes of heap, so only when a message was cut
        room = self._view[self._end :] if self._end else self._buf
        try:
            count = self.stream.readinto(room)
            if count is None and wait_ms > 0:
                self._wait(_POLLIN, wait_ms)
                count = self.stream.readinto(room)
        except OSError as error:
            self._fail(LinkClosed("receive", "reset by the peer: " + str(error)))
        if count is None:
            return False
        if count == 0:
            self._fail(LinkClosed("receive", "closed by the peer"))
        self._end += count
        self._last_rx = ticks_ms()
        self._asked = None
        return True

    def _skipped(self) -> bool:
        # Drop what has come of a too long message; True when that was its end.
        step = min(self._end - self._start, self._skip)
        self._start += step
        self._skip -= step
        return self._skip == 0

    def _wait(self, event: int, ms: int) -> None:
        if self._poller is None:
            sleep_ms(1)
            return
        if event != _POLLIN:
            self._poller.modify(self._pollable, event)
        for _ in self._poller.ipoll(ms):
            pass
        if event != _POLLIN:
            self._poller.modify(self._pollable, _POLLIN)

    def _send_out(self, size: int) -> None:
        # The first size bytes of the transmit buffer, in one write.
        if len(self._out_now) != size:
            self._out_now = self._out_view[:size]
        self._write(self._out_now)

    def _write(self, data) -> None:
        if self.down is not None:
            raise LinkClosed("send", "the link is down (" + self.down + ")")
        try:
            sent = self.stream.write(data) or 0
            if sent != len(data):
                self._write_rest(data, sent)
        except LinkError:
            raise
        except OSError as error:
            self._fail(LinkClosed("send", "reset by the peer: " + str(error)))
        self._last_tx = ticks_ms()

    def _write_rest(self, data, sent: int) -> None:
        until = ticks_add(ticks_ms(), self.timeout_ms)
        view = memoryview(data)
        while sent < len(data):
            left = ticks_diff(until, ticks_ms())
            if left <= 0:
                what = "the peer took %d of %d bytes in %d ms"
                self._fail(LinkTimeout("send", what % (sent, len(data), self.timeout_ms)))
            self._wait(_POLLOUT, left)
            count = self.stream.write(view[sent:])
            if count:
                sent += count
            else:
                sleep_ms(1)  # the ESP32's UART claims to be writable when it is not
