"""What FMQP, LightMQ and MicroMsg2 share: one link that is opened, watched, lost and opened again.

A transport is anything with ``where``, which names it in errors, and ``open()``, which returns a
stream and does not wait for it. A stream is anything non-blocking with ``readinto(buffer)``,
``write(data)`` and ``close()``, as MicroPython's sockets: the first two return how many bytes
went, or ``None`` for "not now" (also while it is being connected); ``readinto`` returns 0 at the
end. Optional: ``pollable``, what ``select.poll`` can wait for (the stream itself if absent;
``None`` if there is nothing: we look every millisecond).

``_step`` does what can be done without waiting, and ``_due`` says until when nothing else has to
be done (``None``: nothing ever, the link is closed). The rest is one loop around them: ``poll``
here, tasks in umotemq.aio. A protocol adds:

- ``_greet()``: put the next thing that the peer has to be told first into the transmit buffer, or
  set ``up`` if it was told all; False if its answer has to come before that;
- ``_take()``: dispatch the messages that have come whole, return how many;
- ``_ask(next)``: put a sign of life, the next one or the last again; the answer makes ``_pong``
  equal ``_ping``.

Why so long: one link is one state machine.
"""

import select
from random import getrandbits
from time import ticks_add, ticks_diff, ticks_ms


class LinkError(OSError):
    """What failed, by ``args[0]`` (a table in the README), and ``args[1]``: why, or where."""


def encoded(data):
    """Return ``data`` as UTF-8 if it is a str, or the bytes that it is. Raises TypeError."""
    if isinstance(data, str):
        return data.encode()
    if hasattr(data, "decode"):  # bytes, or a bytearray
        return data
    return bytes(memoryview(data))  # an array has fewer items than bytes


class Link:
    """One link and its two fixed buffers. The clients inherit from it.

    Every name below is an option, a keyword of the constructor. ``up`` says whether there is a
    link, ``error`` why not, ``connects`` how often it came up; ``discarded`` counts the messages
    that were too long, incorrect, or for nobody here.

    Times are milliseconds below 2 ** 29, and not looked at. With a ``timeout_ms`` below 1 every
    link is lost at once, with "timeout". A ``keepalive_ms`` below 1 asks at each poll, without
    rest; if nobody is to answer (FMQP's name b""), one below 0 is a "timeout", too.
    """

    rx_size = 1024  # bytes of the receive buffer; a longer message is skipped, never buffered
    tx_size = 256  # bytes of the transmit buffer; a longer message is refused
    timeout_ms = 5000  # for the peer to connect, to accept a write, to finish what it began
    keepalive_ms = 20000  # so often the peer is asked for a sign of life
    retry_ms = 500  # until the second try to open a lost link; 0 or less: only connect() does
    # Between any two tries; 0: always ``retry_ms``; less: after the second only connect() tries.
    retry_max_ms = 30000
    # ``link_up()`` is called before each try: whether there is a network at all. ``alive()``: when
    # bytes have come, which proves the link. ``on_up()``, ``on_down()``: when it came up, and when
    # it was lost or closed. ``outage``: an umotemq.outage.Ring.
    link_up = alive = on_up = on_down = outage = None

    def __init__(self, transport, options):
        if not hasattr(transport, "open"):
            from umotemq.mistakes import throw

            throw("open", transport)
        for name in options:
            if name[0] == "_" or not hasattr(self, name) or callable(getattr(self, name)):
                raise TypeError("no option " + name)
            setattr(self, name, options[name])
        # Each poll or publication asks for these, and a class is slow to tell. They are so many,
        # too, that no choice of options fills MicroPython's table of attributes: all of a full one
        # is looked through for each method.
        self.alive = self.alive
        self.keepalive_ms = self.keepalive_ms
        self.outage = self.outage
        self.rx_size = self.rx_size
        self.timeout_ms = self.timeout_ms
        self.tx_size = self.tx_size
        self.transport = transport
        self.stream = None
        self.up = False
        self._blocking = True  # umotemq.aio: whoever sends must not wait
        # ``_backoff``: the pause before the next try, in ms; 0: the first one. ``_ping``: the last
        # sign of life that was asked for; its answer makes ``_pong`` equal.
        self.connects = self.discarded = self._backoff = self._ping = self._last = 0
        self._on_drop = []  # functions of this package, called when the stream was closed
        self._buf = bytearray(self.rx_size)
        self._view = memoryview(self._buf)
        self._out = self._part = bytearray(self.tx_size)
        # or a view of what was written last: its like needs no new one
        self._drop(None, 0)

    # ---- for programs ----

    def connect(self, *, timeout_ms=10000):
        """Return once the link is up; also after ``close``. Raises the LinkError that kept it down.

        ``poll`` opens the link too, and whenever it was lost: this is to wait for it.
        """
        if self._due is None:
            self._drop(None, 0)
        while not self.up:
            timeout_ms = self._await(timeout_ms, False)

    def poll(self, ms=0):
        """Wait up to ``ms`` for messages, dispatch what came, return how many that were.

        Returns as soon as something was dispatched (answers to signs of life count), or the link
        came up or was lost. Opens the link, sends signs of life, judges the peer. Raises what
        handlers raise; LinkError only once ``close`` was called, or if ``retry_ms`` is 0.
        """
        start = ticks_ms()
        up = self.up
        while True:
            count = 0
            last = self.error
            try:
                count = self._step()
            except LinkError:
                # One that did not end our link is a handler's, of another client for example.
                if self.error is last or self._due is None:
                    raise
            if count or self.up != up:
                return count
            now = ticks_ms()
            left = ms - ticks_diff(now, start)
            if left <= 0:
                return 0
            # Room to write is looked for every millisecond, as is whatever nobody can wait for.
            if self.stream and (self._last or not self._fd):
                left = 1
            left = min(left, ticks_diff(self._due or now, now))
            if left > 0:
                for _ in self._poll.ipoll(left):
                    pass

    def run(self, ms=None):
        """Serve the link for ``ms``, whatever arrives (``None``: for ever). Raises as ``poll``."""
        while ms is None:
            self.poll(self.keepalive_ms)
        while ms > 0:
            ms = self._await(ms, self.up)

    def ping(self, timeout_ms=5000):
        """Return the round trip to the broker in µs; everything sent before has been processed.

        Other messages are dispatched meanwhile. Raises LinkError: "timeout" while the link stays
        up if there was no answer within ``timeout_ms`` of writing it.
        """
        import umotemq.ping  # `from` would make a tuple on the heap

        return umotemq.ping.ping(self, timeout_ms)

    def close(self):
        """Close the link; ``connect`` opens it again, with the same buffers."""
        self._backoff = 0
        self._drop(LinkError("closed"), -1)

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
        up = self.up
        if not self.stream:
            # Open one, if it is time to.
            if self._due is None:
                raise self.error
            now = ticks_ms()
            if ticks_diff(self._due, now) > 0:
                return 0
            if self.link_up and not self.link_up():
                self._due = ticks_add(now, 500)  # no network, or not yet
                return 0
            try:
                self.stream = stream = self.transport.open()
            except OSError as error:
                self._fail(None, error)
            self._fd = pollable = getattr(stream, "pollable", stream)
            if pollable:
                self._poll.register(pollable, 1)
        # A stream that is being connected takes nothing, and on some ports must not be read.
        elif up or not self._last:
            if self._start < self._end:
                count = self._take()  # what an exception in a handler left behind
            for _ in range(8):
                # A full buffer means that there is more; but others want a turn too.
                start = self._start
                end = self._end
                if count and end != self.rx_size:
                    break
                view = self._view
                if start >= end:
                    self._start = start - end
                    self._end = end = 0
                elif end == self.rx_size:
                    if not start:
                        break  # all of it waits until what is to be sent has gone
                    end -= start
                    self._buf[:end] = view[start:]
                    self._start = 0
                    self._end = end
                if end:
                    # A message was cut: 32 bytes of heap. They are taken here, and in no function
                    # that returns before handlers are called: MicroPython looks for room for each
                    # call from the first free piece on, which would be that function's.
                    view = view[end:]
                if not self._fill(view):
                    break
                count += self._take()
            if not self.stream:
                return count  # closed by a handler
        while self._flush() and not self.up and self._greet():
            pass
        now = ticks_ms()
        left = self.keepalive_ms
        came_up = self.up and not up
        if came_up:
            self.connects += 1
            self.error = None
            self._silent = 0
            self._pong = self._ping
            self._asks = ticks_add(now, left)
        # Ask for signs of life, judge the peer, and note when that has to be done again.
        if self.up and not self._last:
            left = ticks_diff(self._asks, now)
            if left <= 0:
                left = self.keepalive_ms
                self._asks = ticks_add(now, left)
                self._backoff = 0  # the link has lasted
                # One still unanswered again: ``ping`` waits for its number, and may see the last.
                self._ask(self._pong == self._ping)
                self._flush()
            if self.outage is not None:
                self.outage.drain(self)
        if not self.up or self._start != self._end or self._pong != self._ping:
            # It has to say something: an answer, or the rest of a message.
            self._silent = self._silent or now
            left = self.timeout_ms - ticks_diff(now, self._silent)
        if self._last:
            # It has to read, and nothing that it says excuses it.
            self._stuck = self._stuck or now
            left = min(left, self.timeout_ms - ticks_diff(now, self._stuck))
        if left < 0:
            self._fail("timeout", None)
        self._due = ticks_add(now, left)
        if came_up and self.on_up:
            self.on_up()
        return count

    def _drop(self, error, ms):
        # Close the stream, and tell the program, which finds everything settled. ``error``: why;
        # ``ms``: until the next one may be opened (below 0: only by connect()).
        up = self.up
        stream = self.stream
        if stream:
            try:
                stream.close()
            except OSError:
                pass  # it is gone either way
        self.error = error
        self._due = None if ms < 0 else ticks_add(ticks_ms(), ms)
        self.up = False
        self.stream = self._pong = None
        self._poll = select.poll()  # waits for nothing: it sleeps
        # Since when the peer owes us a byte, and since when it has taken none (0: it does not); how
        # much of the introduction is done; the bytes not yet parsed (beyond the end: to skip), and
        # those not yet written.
        waiting = self._last
        self._silent = self._stuck = self._greeted = 0
        self._start = self._end = self._first = self._last = 0
        if self.outage is not None:
            self.outage.lost(waiting)
        for function in self._on_drop:
            function()
        if up and self.on_down:
            self.on_down()

    def _fail(self, name, error):
        # Give the link up, plan the next try, and raise why.
        failed = LinkError(
            name or ("lost" if self.up else "connect"),
            error or self.transport.where,
        )
        pause = self._backoff or self.retry_ms
        self._backoff = min(2 * pause, self.retry_max_ms)
        # Half of it is by chance, so that a fleet does not come back all at once.
        pause -= pause * getrandbits(8) >> 9
        self._drop(failed, pause or -1)
        raise failed

    def _fill(self, buffer):
        # Read once; true if bytes came, and the link is still there.
        try:
            count = self.stream.readinto(buffer)
        except OSError as error:
            self._fail(None, error)
        if count is None:
            return False
        if not count:
            self._fail("closed", None)
        self._end = self._end + count
        if self.up:
            self._silent = 0
            if self.alive:
                self.alive()
        return self.stream

    def _flush(self):
        # Write what is in the transmit buffer; True when all of it went.
        last = self._last
        if last:
            first = self._first
            data = self._part
            if first or len(data) != last:
                data = memoryview(self._out)[first:last]
                if not first:
                    self._part = data
            try:
                count = self.stream.write(data)
            except OSError as error:
                self._fail(None, error)
            if count:
                self._stuck = 0
                first += count
            if first != last:
                self._first = first
                return False
            self._first = self._last = 0
        return True

    def _fitting(self, start, end):
        # Return ``end`` if the transmit buffer has room for a message from ``start`` to there.
        # Raises ValueError if it never fits, LinkError if it does not now.
        if end <= self.tx_size:
            return end
        from umotemq.mistakes import throw

        return throw("tx_size", self, start, end)

    def _send(self, type, name, data, confirm):
        # Send one message, or have the ``outage`` keep it if ``confirm`` is True or False.
        if confirm is not None and self.outage is not None:
            return self.outage.send(self, confirm, type, name, data)
        if confirm:
            from umotemq.mistakes import throw

            throw("outage")
        self._push()
        self._pack(type, name, data)
        self._push()

    def _push(self):
        # Have all of it written: there is a link, and room for a message.
        if not self.up:
            raise self.error or LinkError("down", self.transport.where)
        start = ticks_ms()
        while not self._flush() and self._blocking:  # umotemq.aio's: the rest goes by itself
            if ticks_diff(ticks_ms(), start) >= self.timeout_ms:
                self._fail("timeout", None)
            for _ in self._poll.ipoll(1):
                pass
