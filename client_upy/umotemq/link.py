"""What FMQP and LightMQ share: one link that is opened, watched, lost and opened again.

A transport is anything with ``open()``, which returns a stream and does not wait for it. A stream
is anything non-blocking with ``readinto(buffer)`` and ``write(data)``, as MicroPython's sockets:
both return how many bytes went, or ``None`` for "not now" (also while it is being connected);
``readinto`` returns 0 at the end. Optional: the stream's ``close()`` and ``pollable``, what
``select.poll`` can wait for (the stream itself if absent; ``None`` if there is nothing: we look
every millisecond); the transport's ``where``, text for errors.

``_step`` does what can be done without waiting, and ``_due`` says until when nothing else has to
be done. The rest is one loop around them: ``poll`` here, tasks in umotemq.aio. A protocol adds
``_introduce`` (put the next thing that the peer has to be told first; False: wait for its answer),
``_take`` (dispatch the messages that have come whole, return how many), and ``_keepalive``.

Why so long: it is one state machine; each further .mpy costs a board its own table of names.
"""

import random
from select import poll
from time import sleep_ms, ticks_add, ticks_diff, ticks_ms, ticks_us

from micropython import const

_IN = const(1)
_OUT = const(4)


class LinkError(OSError):
    """The link failed or is not there; ``phase`` says during what: connect, send, receive."""

    def __init__(self, phase, what):
        super().__init__(phase + ": " + what)
        self.phase = phase


class LinkTimeout(LinkError):
    """The peer was silent, or stopped reading, for longer than ``timeout_ms``."""


class WireError(LinkError):
    """The peer sent what its protocol forbids."""


class NoAnswer(OSError):
    """One question was not answered in time; the link is still open."""


class Link:
    """One link and its two fixed buffers. The clients inherit from it.

    Every name below is an option, a keyword of the constructor. ``up`` says whether there is a
    link, ``error`` why not, ``connects`` how often it came up; ``discarded`` counts the messages
    that were too long, incorrect, or for nobody here.
    """

    rx_size = 1024  # bytes of the receive buffer; a longer message is skipped, never buffered
    tx_size = 256  # bytes of the transmit buffer; a longer message is refused
    timeout_ms = 5000  # for the peer to connect, to accept a write, to finish what it began
    keepalive_ms = 20000  # after so long without sending or receiving, the peer is asked
    retry_ms = 500  # until the second try to open a lost link; 0: never open it again
    retry_max_ms = 30000  # between any two tries
    link_up = None  # called before each try: whether there is a network at all
    alive = None  # called when bytes have come, which proves the link: feed a watchdog here
    _reads = 8  # in a row, while each fills the buffer
    _sink = None  # gets the pieces of what is too long
    outage = None  # an umotemq.outage.Ring: keeps messages while the link is down

    def __init__(self, transport, **options):
        for name in options:
            if name[0] == "_" or callable(getattr(self, name, len)):
                raise TypeError("no option " + name)
            setattr(self, name, options[name])
        self.transport = transport
        self.error = self.stream = None
        self.up = False
        self.connects = self.discarded = 0
        self._tries = self._asking = 0
        self._due = self._last_tx = self._last_rx = ticks_ms()
        self._buf = bytearray(self.rx_size)
        self._view = memoryview(self._buf)
        self._out = bytearray(self.tx_size)
        self._now = memoryview(self._out)
        self._drop()

    # ---- for programs ----

    def connect(self, timeout_ms=10000):
        """Return once the link is up. Raises the LinkError that kept it down.

        ``poll`` opens the link too, and whenever it was lost: this is to wait for it.
        """
        until = ticks_add(ticks_ms(), timeout_ms)
        while not self.up:
            left = ticks_diff(until, ticks_ms())
            if left <= 0:
                raise self.error or LinkTimeout("connect", "no link in %d ms" % timeout_ms)
            self.poll(left)

    def poll(self, ms=0):
        """Wait up to ``ms`` for messages, dispatch what came, return how many that were.

        Returns as soon as something was dispatched (answers to signs of life count), or the link
        came up or was lost. Opens the link, sends signs of life, judges the peer. Raises what
        handlers raise, and LinkError only if ``retry_ms`` is 0.
        """
        until = ticks_add(ticks_ms(), ms)
        up = self.up
        while True:
            count = 0
            try:
                count = self._step()
            except LinkError as error:
                # Another client's, used in a handler, is not ours to forgive.
                if not self.retry_ms or error is not self.error:
                    raise
            now = ticks_ms()
            left = ticks_diff(until, now)
            if count or left <= 0 or self.up != up:
                return count
            if not self._more:
                self._wait(min(left, ticks_diff(self._due, now)))

    def ping(self, timeout_ms=5000):
        """Return the round trip to the broker in µs; everything sent before has been processed.

        Other messages are dispatched meanwhile. Raises NoAnswer after ``timeout_ms``, LinkError.
        """
        until = ticks_add(ticks_ms(), timeout_ms)
        self._need_up()
        start = ticks_us()  # before the write: the answer may be here when it returns
        self._keepalive()
        self._push()
        number = self._asking
        while self._answered != number:
            self._await(until)
        return ticks_diff(ticks_us(), start)

    def close(self):
        """Close the link for good. Never raises."""
        self.retry_ms = 0
        self.error = LinkError("send", "closed here")
        self._drop()

    # ---- for drivers and protocols ----

    def _need_up(self):
        if not self.up:
            raise self.error or LinkError("send", "no link yet")

    def _await(self, until):
        # poll once while waiting for an answer.
        self._need_up()
        left = ticks_diff(until, ticks_ms())
        if left <= 0:
            raise NoAnswer("no answer in time")
        self.poll(left)

    def _step(self):
        # Do what can be done without waiting; return how many messages were dispatched.
        self._more = False
        if not self.stream:
            self._dial()
            if not self.stream:
                return 0
        if self._last or not self.up or self.outage:
            self._tell()
        count = 0
        # A stream that is being connected takes nothing, and on some ports must not be read.
        if self.up or not self._last:
            if self._start != self._end:
                count = self._take()  # what an exception in a handler left behind
            for _ in range(self._reads):
                # A full buffer means that there is more; but others want a turn too.
                if (count and self._end != self.rx_size) or not self.stream or not self._fill():
                    break
                count += self._take()
        if self.stream:
            if self._last or not self.up:
                self._tell()
            self._watch(ticks_ms())
        return count

    def _tell(self):
        while self._flush() and not self.up and self._introduce():
            pass

    def _dial(self):
        if not self.retry_ms and self.error:
            raise self.error
        now = ticks_ms()
        if ticks_diff(self._due, now) > 0:
            return
        if self.link_up and not self.link_up():
            self._due = ticks_add(now, self.retry_ms or 500)
            return
        try:
            stream = self.transport.open()
        except OSError as error:
            self._fail("connect", error)
        self.stream = stream
        self._pollable = getattr(stream, "pollable", stream)
        if self._pollable:
            self._poller = poller = poll()
            poller.register(self._pollable, _IN)
            self._ipoll = getattr(poller, "ipoll", poller.poll)  # CPython has the latter only

    def _drop(self):
        stream = self.stream
        if self.up and self._last and self.outage is not None:
            self.outage.lost(memoryview(self._out)[: self._last])
        self.up = self._asked = self._more = False
        self.stream = self._poller = self._owed = self._answered = None
        # The bytes not yet parsed, of a too long message still to come, not yet written, ...
        self._start = self._end = self._skip = self._first = self._last = 0
        self._told = 0  # ... and how much of the introduction is done
        if hasattr(stream, "close"):
            try:
                stream.close()
            except OSError:
                pass  # it is gone either way

    def _fail(self, phase, what, kind=LinkError):
        what = str(what)
        if not self.up:
            phase = "connect"
            what = getattr(self.transport, "where", "peer") + ": " + what
        self._drop()
        self.error = kind(phase, what)
        # Half of the pause is by chance, so that a fleet does not come back all at once.
        pause = min(self.retry_ms << self._tries, self.retry_max_ms)
        if pause < self.retry_max_ms:
            self._tries += 1
        self._due = ticks_add(ticks_ms(), pause // 2 + random.getrandbits(12) * pause // 8192)
        raise self.error

    def _ready(self):
        self.up = True
        self._asked = False
        self._tries = 0
        self.connects += 1
        self.error = self._owed = None
        self._last_rx = ticks_ms()

    def _watch(self, now):
        # Silence of either side; a peer that we keep telling things may have died long ago.
        quiet = self._last_tx if ticks_diff(self._last_rx, self._last_tx) > 0 else self._last_rx
        if self.up and not self._last and ticks_diff(now, quiet) >= self.keepalive_ms:
            self._last_rx = self._last_tx = quiet = now
            self._keepalive()
            self._flush()
        if self.up and self._start == self._end and not (self._skip or self._asked or self._last):
            self._owed = None
            self._due = ticks_add(quiet, self.keepalive_ms)
            return
        if self._owed is None:
            self._owed = now
        self._due = ticks_add(self._owed, self.timeout_ms + 1)
        if ticks_diff(now, self._due) >= 0:
            self._fail("receive", "nothing for %d ms" % self.timeout_ms, LinkTimeout)

    def _fill(self):
        # Read once; True if bytes came.
        self._more = False
        start = self._start
        end = self._end - start
        if start and (not end or self._end == self.rx_size):
            if end:
                self._buf[:end] = self._view[start:]
            self._start = 0
            self._end = end
        if self._end == self.rx_size:
            return False  # all of it waits until what is to be sent has gone
        try:
            # a slice costs 32 bytes of heap, so only when a message was cut
            count = self.stream.readinto(self._view[self._end :] if self._end else self._buf)
        except OSError as error:
            self._fail("receive", error)
        if count is None:
            return False
        if not count:
            self._fail("receive", "closed by the peer")
        self._end += count
        self._more = True
        if self.up:
            self._asked = False
            self._owed = None
            self._last_rx = ticks_ms()
            if self.alive:
                self.alive()
        return True

    def _skipped(self):
        # Drop what has come of a too long message; True when that was its end.
        start = self._start
        self._start = end = min(self._end, start + self._skip)
        self._skip -= end - start
        if self._sink and end != start:
            self._sink(self._skip, start, end)
        return not self._skip

    def _wait(self, ms):
        if ms <= 0:
            return
        poller = self._poller
        if not poller:
            sleep_ms(1 if self.stream else ms)
            return
        if self._last:
            poller.modify(self._pollable, _IN | _OUT)
        for _ in self._ipoll(ms):
            pass
        if self._last:
            poller.modify(self._pollable, _IN)

    def _begin(self, size, own=False):
        # Return where in self._to a message of size bytes goes. Our own are never kept for later.
        if size > self.tx_size:
            raise ValueError("%d bytes: tx_size is %d" % (size, self.tx_size))
        self._to = self._out
        last = self._last
        if self.up:
            if not last and not self.outage:
                return 0
            self._commit(0)
            last = self._last
        if (own or (self.up and not self.outage)) and last + size <= self.tx_size:
            return last
        if own or self.outage is None:
            self._need_up()
            raise LinkError("send", "no room now")
        self._to = bytearray(size)
        return 0

    def _commit(self, size):
        # Send the message that was put where _begin() said, or keep it for later.
        if self._to is not self._out:
            self.outage.put(self._to)
            return
        self._last += size
        try:
            if not self._flush():
                self._push()
        except LinkError:
            if self.outage is None:
                raise

    def _flush(self):
        # Write what is in the transmit buffer, then what was kept; True when all of it went.
        ring = self.outage
        while True:
            first = self._first
            size = self._last - first
            if size:
                data = self._now
                if first:
                    data = memoryview(self._out)[first : self._last]
                elif len(data) != size:
                    self._now = data = memoryview(self._out)[:size]
                try:
                    sent = self.stream.write(data) or 0
                except OSError as error:
                    self._fail("send", error)
                if sent != size:
                    self._first += sent
                    return False
                self._first = self._last = 0
                self._last_tx = ticks_ms()
                if ring is not None:
                    ring.sent()
            if not ring or not self.up:
                return True
            self._last = ring.get(self._out)

    def _push(self):
        until = None
        while not self._flush():
            now = ticks_ms()
            if until is None:
                until = ticks_add(now, self.timeout_ms)
            left = ticks_diff(until, now)
            if left <= 0:
                self._fail("send", "the peer stopped reading", LinkTimeout)
            self._wait(left)
