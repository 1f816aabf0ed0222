"""A line that breaks: served as a program would serve it; and measured without a protocol."""

from select import poll
from time import sleep_ms, ticks_add, ticks_diff, ticks_ms, ticks_us

_LOOK_MS = 10  # how often a link is served
_MAX_CHANGES = 32  # of a link
_MAX_KEPT = 256  # payloads
_AHEAD = 1024  # bytes under way


class Kept:
    """Texts, and when they came, in ms since this was made."""

    def __init__(self):
        self.texts = []
        self.came_ms = []
        self.start = ticks_ms()

    def hear(self, _topic, payload):
        if len(self.texts) < _MAX_KEPT:
            self.texts.append(bytes(payload).decode())
            self.came_ms.append(ticks_diff(ticks_ms(), self.start))


def live(client, kept, ms, count=0, until_down=False):
    """Serve the link for ``ms``, or until ``count`` texts came or, if so asked, it is down.

    Note when it went down and up, why, and for how long nothing had been heard then.
    """
    start = heard = kept.start = ticks_ms()
    changes = []
    overslept = 0

    def alive():
        nonlocal heard
        heard = ticks_ms()

    client.alive = alive
    up = client.up
    print("AGENT-READY")
    while True:
        now = ticks_ms()
        left = ms - ticks_diff(now, start)
        if left <= 0 or (count and len(kept.texts) >= count) or (until_down and not client.up):
            break
        try:
            client.poll(0)
            # Not in poll(left): where a UART is polled an RP2 never sleeps, and an emulator of it
            # on a busy machine would live in slow motion.
            nap = min(left, _LOOK_MS)
            now = ticks_ms()
            sleep_ms(nap)
            overslept += max(ticks_diff(ticks_ms(), now) - nap, 0)
        except OSError:
            if not client.up and client.retry_ms == 0:
                left = 0  # it stays down
        now = ticks_ms()
        if client.up != up:
            up = client.up
            why = "" if up else str(client.error.args[0])
            changes.append([ticks_diff(now, start), up, why, ticks_diff(now, heard)])
            if len(changes) == _MAX_CHANGES or not left:
                break
    return {
        "ms": ticks_diff(ticks_ms(), start),
        "up": client.up,
        "changes": changes,
        "payloads": kept.texts,
        "came_ms": kept.came_ms,
        "overslept_ms": overslept,  # what a busy machine took from a board that it runs
    }


def echo(stream, size=16, count=50, total=0, timeout_ms=5000):
    """Time ``count`` round trips of ``size`` bytes, then ``total`` bytes there and back.

    Raises OSError.
    """
    line = _Line(stream, timeout_ms)
    line.echo(size)  # until it stands, and through what is the first of its kind
    rtt_us = []
    for _ in range(count):
        start = ticks_us()
        line.echo(size)
        rtt_us.append(ticks_diff(ticks_us(), start))
    start = ticks_us()
    line.echo(total)
    return {"rtt_us": rtt_us, "us": ticks_diff(ticks_us(), start)}


class _Line:
    # Bytes there and back, at most one buffer of them under way.

    def __init__(self, stream, timeout_ms):
        self._stream = stream
        self._timeout_ms = timeout_ms
        self._poll = None
        pollable = getattr(stream, "pollable", stream)
        if pollable:
            self._poll = poll()
            self._poll.register(pollable, 1)
        self._buffer = bytearray(_AHEAD)

    def echo(self, total):
        sent = got = 0
        until = ticks_add(ticks_ms(), self._timeout_ms)
        view = memoryview(self._buffer)
        while got < total:
            room = min(total - sent, _AHEAD - (sent - got))
            if room:
                sent += self._stream.write(view[:room]) or 0
            count = self._stream.readinto(view)
            if count == 0:
                raise OSError("the line was closed after %d of %d bytes" % (got, total))
            got += count or 0
            if not count:
                left = ticks_diff(until, ticks_ms())
                if left <= 0:
                    raise OSError("%d of %d bytes came back" % (got, total))
                # As the client waits: a reliable stream has nothing to be polled, and deadlines.
                if not self._poll:
                    sleep_ms(1)
                    continue
                for _ in self._poll.ipoll(min(left, 2 if sent < total else left)):
                    pass
