"""What FMQP and LightMQ share: one link that is opened, watched, lost and opened again.

A transport is anything with ``where``, which names it in errors, and ``open()``, which returns a
stream and does not wait for it. A stream is anything non-blocking with ``readinto(buffer)``,
``write(data)`` and ``close()``, as MicroPython's sockets: the first two return how many bytes
went, or ``None`` for "not now" (also while it is being connected); ``readinto`` returns 0 at the
end. Optional: ``pollable``, what ``select.poll`` can wait for (the stream itself if absent;
``None`` if there is nothing: we look every millisecond).

``_step`` does what can be done without waiting, and ``_due`` says until when nothing else has to
be done (``None``: never again). The rest is one loop around them: ``poll`` here, tasks in
umotemq.aio. A protocol adds ``_greet`` (put the next thing that the peer has to be told
first; False: wait for its answer), ``_take`` (dispatch the messages that have come whole, return
how many), and ``_ask`` (put a sign of life, a new one or the last one again; the answer makes
``_pong`` equal ``_ping``).
"""

import sys
from random import getrandbits
from time import sleep_ms, ticks_add, ticks_diff, ticks_ms, ticks_us

if sys.implementation.name != "micropython":
    from umotemq._cpython import Poll as poll
else:
    from select import poll


class LinkError(OSError):
    """What failed, by ``args[0]`` (a table in the README), and ``args[1]``: why, or where."""


class Link:
    """One link and its two fixed buffers. The clients inherit from it.

    Every name below is an option, a keyword of the constructor. ``up`` says whether there is a
    link, ``error`` why not, ``connects`` how often it came up; ``discarded`` counts the messages
    that were too long, incorrect, or for nobody here.
    """

    rx_size = 1024  # bytes of the receive buffer; a longer message is skipped, never buffered
    tx_size = 256  # bytes of the transmit buffer; a longer message is refused
    timeout_ms = 5000  # for the peer to connect, to accept a write, to finish what it began
    keepalive_ms = 20000  # so often the peer is asked for a sign of life
    retry_ms = 500  # until the second try to open a lost link; 0: never open it again
    retry_max_ms = 30000  # between any two tries
    # ``link_up()`` is called before each try: whether there is a network at all. ``alive()``: when
    # bytes have come, which proves the link. ``outage``: an umotemq.outage.Ring.
    link_up = alive = outage = None

    def __init__(self, transport, options):
        for name in options:
            if callable(getattr(self, name, len)):
                raise TypeError(name)
            setattr(self, name, options[name])
        self.transport = transport
        self.error = self.stream = None
        self._now = b""  # what was written last, so that its like needs no new view
        # The pause that comes next, in ms; 0: the first one.
        self.connects = self.discarded = self._ping = self._pause = 0
        self._due = self._then = ticks_ms()
        # Two bytes more, so that a protocol may look at a header of which only the first has come.
        self._buf = bytearray(self.rx_size + 2)
        self._view = memoryview(self._buf)[: self.rx_size]
        self._has = self._buf.startswith  # to bind it takes 16 bytes of heap
        self._out = bytearray(self.tx_size)
        self._drop()

    # ---- for programs ----

    def connect(self, timeout_ms=10000):
        """Return once the link is up. Raises the LinkError that kept it down.

        ``poll`` opens the link too, and whenever it was lost: this is to wait for it.
        """
        while not self.up:
            timeout_ms = self._await(timeout_ms, False)

    def poll(self, ms=0):
        """Wait up to ``ms`` for messages, dispatch what came, return how many that were.

        Returns as soon as something was dispatched (answers to signs of life count), or the link
        came up or was lost. Opens the link, sends signs of life, judges the peer. Raises what
        handlers raise, and LinkError only if ``retry_ms`` is 0.
        """
        start = ticks_ms()
        up = self.up
        while True:
            count = 0
            last = self.error
            try:
                count = self._step()
            except LinkError:
                # Another client's, used in a handler, is not ours to forgive.
                if self.error is last or self._due is None:
                    raise
            now = ticks_ms()
            left = ms - ticks_diff(now, start)
            if count or left <= 0 or self.up != up:
                return count
            self._wait(min(left, ticks_diff(self._due or now, now)))

    def ping(self, timeout_ms=5000):
        """Return the round trip to the broker in µs; everything sent before has been processed.

        Other messages are dispatched meanwhile. Raises LinkError: "timeout" while the link stays
        up if there was no answer within ``timeout_ms`` of writing it.
        """
        start = ticks_us()  # before the write: the answer may be here when it returns
        self._push()
        self._ask(True)
        self._push()
        number = self._ping
        while self._pong != number:
            timeout_ms = self._await(timeout_ms, True)
        return ticks_diff(ticks_us(), start)

    def close(self):
        """Close the link for good. Never raises."""
        self.error = LinkError("closed")
        self._due = None
        self._drop()

    # ---- for drivers and protocols ----

    def _await(self, ms, up):
        # poll once while waiting for an answer, or for the link; return what is left of ``ms``.
        if ms <= 0 or self.up != up:
            raise self.error or LinkError("timeout")
        start = ticks_ms()
        self.poll(ms)
        return ms - ticks_diff(ticks_ms(), start)

    def _step(self):
        # Do what can be done without waiting; return how many messages were dispatched.
        count = 0
        if not self.stream:
            if self._due is None:
                raise self.error
            now = ticks_ms()
            if ticks_diff(self._due, now) > 0:
                return 0
            if self.link_up and not self.link_up():
                self._due = ticks_add(now, self.retry_ms or 500)
                return 0
            try:
                self.stream = stream = self.transport.open()
            except OSError as error:
                self._fail(None, error)
            self._fd = getattr(stream, "pollable", stream)
            self._poll = poll()
            if self._fd:
                self._poll.register(self._fd, 1)  # once: it takes heap
        # A stream that is being connected takes nothing, and on some ports must not be read.
        elif not self._last or self.up:
            count = self._take()  # what an exception in a handler left behind
            for _ in range(8):
                # A full buffer means that there is more; but others want a turn too.
                if (count and self._end != self.rx_size) or not self._fill():
                    break
                count += self._take()
        if not self.stream:
            return count  # closed by a handler
        while self._flush() and not self.up and self._greet():
            pass
        now = ticks_ms()
        if self.up and not self._last:
            if ticks_diff(now, self._then) >= self.keepalive_ms:
                self._then = now
                # One still unanswered again: ``ping`` waits for its number, and may see the last.
                self._ask(self._pong == self._ping)
                self._flush()
            if self.outage:
                self.outage.drain(self)
        due = ticks_add(self._then, self.keepalive_ms)
        if not self.up or self._last or self._start != self._end or self._pong != self._ping:
            # The peer has to do something: answer, send the rest, or read.
            if self._owed is None:
                self._owed = now
            due = ticks_add(self._owed, self.timeout_ms)
            if ticks_diff(now, due) > 0:
                self._fail("timeout", None)
        self._due = due
        return count

    def _drop(self):
        stream = self.stream
        self.up = False
        # ``_poll`` too, as it may keep the stream from being freed.
        self.stream = self._fd = self._poll = self._owed = self._pong = self._like = None
        # The bytes not yet parsed (beyond the end: to be skipped), not yet written, ...
        self._start = self._end = self._first = self._last = 0
        self._told = 0  # ... and how much of the introduction is done
        self._fit = 0  # a protocol's, 0 if anything may be in the way of the next message
        if stream:
            try:
                stream.close()
            except OSError:
                pass  # it is gone either way

    def _fail(self, name, error):
        error = LinkError(name or ("lost" if self.up else "connect"), error or self.transport.where)
        self._drop()
        self.error = error
        pause = self._pause or self.retry_ms
        self._pause = min(2 * pause, self.retry_max_ms)
        self._due = None
        if pause:
            # Half of it is by chance, so that a fleet does not come back all at once.
            self._due = ticks_add(ticks_ms(), pause - (pause * getrandbits(8) >> 9))
        raise error

    def _rise(self):
        self.up = True
        self.connects += 1
        self._pause = 0
        self.error = self._owed = None
        self._pong = self._ping
        self._then = ticks_ms()

    def _fill(self):
        # Read once; true if bytes came, and the link is still there.
        start = self._start
        end = self._end
        if start >= end:
            start -= end
            end = 0
        elif end == self.rx_size:
            end -= start
            self._buf[:end] = self._view[start:]
            start = 0
        self._start = start
        self._end = end
        if end == self.rx_size:
            return False  # all of it waits until what is to be sent has gone
        view = self._view
        if end:
            view = view[end:]  # costs 32 bytes of heap, so only when a message was cut
        try:
            count = self.stream.readinto(view)
        except OSError as error:
            self._fail(None, error)
        if count is None:
            return False
        if not count:
            self._fail("closed", None)
        self._end = end + count
        if self.up:
            self._owed = None
            if self.alive:
                self.alive()
        return self.stream

    def _wait(self, ms):
        if ms <= 0:
            return
        fd = self._fd
        if fd:
            wait = self._poll
            last = self._last
            if last:
                wait.modify(fd, 5)  # takes heap where addresses are large
            for _ in wait.ipoll(ms):
                pass
            if last:
                wait.modify(fd, 1)
        else:
            sleep_ms(1 if self.stream else ms)

    def _flush(self):
        # Write what is in the transmit buffer; True when all of it went.
        last = self._last
        if last:
            data = self._now
            first = self._first
            self._fit = 0
            if first or len(data) != last:
                data = memoryview(self._out)[first:last]
                if not first:
                    self._now = data
            try:
                first += self.stream.write(data) or 0
            except OSError as error:
                self._fail(None, error)
            if first != last:
                self._first = first
                return False
            self._first = self._last = 0
        return True

    def _push(self):
        # Have all of it written: there is a link, and room for a message.
        if not self.up:
            raise self.error or LinkError("down")
        start = ticks_ms()
        while not self._flush():
            left = self.timeout_ms - ticks_diff(ticks_ms(), start)
            if left <= 0:
                self._fail("timeout", None)
            if self._wait(left):
                return True  # umotemq.aio's: the rest goes by itself
