"""An FMQP client: publish, subscribe, last wills, feedback; over any stream (see umotemq.link).

    from umotemq import fmqp, tcp
    client = fmqp.FmqpClient(tcp.connect("192.168.1.2", 1884), name=b"kitchen")
    client.subscribe(b"home/*/lamp", lambda topic, payload: print(topic, payload))
    client.publish(b"home/kitchen/temperature", b"21.5", cache=True)
    while True:
        client.poll(1000)

FMQP has no acknowledgement and no ping: ``ping`` measures the way to the broker and back by a
publication to this client's own topic, ``ping/NAME``.
"""

import struct

from umotemq.link import Link, LinkError, NoAnswer, WireError
from umotemq.topic import is_equivalent, is_valid, normalised

try:
    from time import ticks_add, ticks_diff, ticks_ms, ticks_us

    from micropython import const
except ImportError:
    from umotemq._cpython import const, ticks_add, ticks_diff, ticks_ms, ticks_us

__all__ = ("FmqpClient", "LinkError", "NoAnswer")

_SUBSCRIPTION = const(0x80)  # bits from the first one on (R2)
_UNSUBSCRIBE = const(0x40)
_FEEDBACK = const(0x20)
_DEBUG = const(0x10)
_WILL = const(0x08)
_CACHE = const(0x04)
_HEADER = const(6)
_SLASH = const(0x2F)
# An empty publication is received and forwarded to nobody (R18): the cheapest sign of life.
_SIGN_OF_LIFE = b"\x00\x01\x00\x00\x00\x00-"


class _Subscription:
    def __init__(self, topic: bytes, handler, flags: int, raw: bool):
        self.topic = topic
        self.handler = handler
        self.flags = flags
        self.feedback = flags & _FEEDBACK
        self.raw = raw
        self.wild = topic.find(b"*") >= 0


class FmqpClient(Link):
    """One FMQP connection. Connected as soon as the stream is.

    ``name``: makes the ping topic this client's own; must be unique on the broker.
    ``probe``: keepalives are pings, so that a silent peer is noticed ``timeout_ms`` later;
    without it they are empty publications, which nobody answers.
    ``skip_limit``: a message longer than the buffer is skipped; one longer than this is an error.
    The other arguments: see Link. Topics and payloads are bytes.
    """

    def __init__(
        self,
        stream,
        name: bytes = b"umotemq",
        rx_size: int = 1024,
        tx_size: int = 512,
        timeout_ms: int = 5000,
        keepalive_ms: int = 20000,
        probe: bool = False,
        skip_limit: int = 0x100000,
    ):
        if rx_size < _HEADER + 255 + 1:
            raise ValueError("rx_size: want at least 262, the longest topic and a byte")
        Link.__init__(self, stream, rx_size, tx_size, timeout_ms, keepalive_ms)
        self.probe = probe
        self.skip_limit = skip_limit
        self._subscriptions = []
        self._ping_topic = normalised(b"ping/" + name)
        self._ping_number = self._pong_number = 0
        self._format = ""
        self._format_topic = self._format_body = -1

    def publish(self, topic: bytes, payload: bytes, cache: bool = False, will: bool = False):
        """Send one publication, in one write.

        ``cache``: the broker retains it for later subscribers. ``will``: it publishes it when
        this connection ends, however it ends. An empty payload reaches nobody; with ``cache`` it
        clears what is retained. Raises ValueError if it does not fit ``tx_size``, LinkError.
        """
        self._send((_CACHE if cache else 0) | (_WILL if will else 0), topic, payload)

    def subscribe(
        self, topic: bytes, handler, feedback: bool = False, debug: bool = False, raw: bool = False
    ):
        """Subscribe; ``poll`` then calls ``handler(topic, payload)`` with bytes.

        A level ``*`` stands for any one level. ``feedback``: hear of subscriptions to ``topic``
        instead (payload: 8 bytes, how many there are; empty: nobody). ``debug``: publishers are
        not told of this one. ``raw``: nothing is copied or allocated; ``handler(view,
        topic_start, topic_end, body_start, body_end)`` may use the view until it returns, and
        must not poll. A second subscription to the same topic replaces the handler.
        """
        flags = _SUBSCRIPTION | (_FEEDBACK if feedback else 0) | (_DEBUG if debug else 0)
        entry = _Subscription(normalised(topic), handler, flags, raw)
        # A new list, as a handler may subscribe while the old one is being walked.
        self._subscriptions = self._without(entry.topic, entry.feedback) + [entry]
        self._send(flags, entry.topic, b"")

    def unsubscribe(self, topic: bytes, feedback: bool = False):
        """Take back ``subscribe`` of the same topic; unknown ones are told to the broker too."""
        topic = normalised(topic)
        flags = _SUBSCRIPTION | _UNSUBSCRIBE | (_FEEDBACK if feedback else 0)
        for entry in self._subscriptions:
            if entry.topic == topic and entry.feedback == flags & _FEEDBACK:
                flags |= entry.flags & _DEBUG
        self._subscriptions = self._without(topic, flags & _FEEDBACK)
        self._send(flags, topic, b"")

    def ping(self, timeout_ms: int = 5000) -> int:
        """Return the round trip to the broker in µs; everything sent before has been processed.

        Other messages are dispatched meanwhile. Raises NoAnswer after ``timeout_ms``.
        """
        self._listen_to_pings()
        start = ticks_us()  # before the write: the echo may be here when it returns
        number = self._ask()
        until = ticks_add(ticks_ms(), timeout_ms)
        while self._pong_number != number:
            left = ticks_diff(until, ticks_ms())
            if left <= 0:
                raise NoAnswer("ping: no echo from the broker within %d ms" % timeout_ms)
            self.poll(left)
        return ticks_diff(ticks_us(), start)

    def _listen_to_pings(self) -> None:
        for entry in self._subscriptions:
            if entry.topic == self._ping_topic and not entry.feedback:
                return
        self.subscribe(self._ping_topic, self._pong, debug=True, raw=True)

    def _ask(self) -> int:
        self._ping_number = (self._ping_number + 1) & 0xFFFFFF
        self._send(0, self._ping_topic, struct.pack(">I", self._ping_number))
        return self._ping_number

    def _pong(self, view, topic_start: int, topic_end: int, start: int, end: int) -> None:
        if end - start == 4:
            self._pong_number = view[start + 1] << 16 | view[start + 2] << 8 | view[start + 3]

    def _keepalive(self, now: int) -> None:
        if not self.probe:
            self._write(_SIGN_OF_LIFE)
            return
        if self._asked is None:
            self._asked = now
        self._listen_to_pings()
        self._ask()

    def _without(self, topic: bytes, feedback: int) -> list:
        return [e for e in self._subscriptions if e.topic != topic or e.feedback != feedback]

    def _send(self, flags: int, topic: bytes, payload: bytes) -> None:
        topic_length = len(topic)
        length = len(payload)
        size = _HEADER + topic_length + length
        if not 0 < topic_length < 256:
            raise ValueError("topic: want 1 to 255 bytes, not %d" % topic_length)
        if size > len(self._out):
            what = "message of %d bytes; tx_size is %d: make it larger when making the client"
            raise ValueError(what % (size, len(self._out)))
        # pack_into with a format made before copies topic and body without allocating.
        if topic_length != self._format_topic or length != self._format_body:
            self._format = ">BBI%ds%ds" % (topic_length, length)
            self._format_topic = topic_length
            self._format_body = length
        struct.pack_into(self._format, self._out, 0, flags, topic_length, length, topic, payload)
        self._send_out(size)

    def _take(self) -> int:
        buf = self._buf
        handled = 0
        while True:
            if self._skip and not self._skipped():
                return handled
            start = self._start
            have = self._end - start
            if have < _HEADER:
                return handled
            # By shifts, as unpack allocates; the top byte first, as 2**30 would be a long integer.
            length = buf[start + 3] << 16 | buf[start + 4] << 8 | buf[start + 5]
            if buf[start + 2] or length > self.skip_limit:
                self._fail(WireError("receive", "the peer announces an absurdly long message"))
            size = _HEADER + buf[start + 1] + length
            if size > len(buf):
                self._skip = size
                self.discarded += 1
                continue
            if have < size:
                return handled
            self._start = start + size
            if self._deliver(buf[start], start + _HEADER, size - _HEADER - length, start + size):
                handled += 1
            else:
                self.discarded += 1

    def _deliver(self, flags: int, start: int, topic_length: int, end: int) -> bool:
        # Call the handlers of one packet. False if it is incorrect (R4; a subscription from the
        # broker is) or nobody here subscribed to it.
        buf = self._buf
        body = stop = start + topic_length
        if flags & _SUBSCRIPTION:
            return False
        while start < stop and buf[start] == _SLASH:
            start += 1
        while start < stop and buf[stop - 1] == _SLASH:
            stop -= 1
        if start == stop:
            return False
        feedback = flags & _FEEDBACK
        wild = buf.find(b"*", start, stop) >= 0
        checked = delivered = False
        for entry in self._subscriptions:
            if entry.feedback != feedback:
                continue
            # What equals a valid topic is valid: only other matches have to be looked through.
            equal = stop - start == len(entry.topic) and buf.startswith(entry.topic, start)
            if not equal:
                if not (wild or entry.wild) or not is_equivalent(entry.topic, buf, start, stop):
                    continue
                if not checked:
                    if not is_valid(buf, start, stop):
                        return False
                    checked = True
            delivered = True
            if entry.raw:
                entry.handler(self._view, start, stop, body, end)
            else:
                topic = entry.topic if equal else bytes(self._view[start:stop])
                entry.handler(topic, bytes(self._view[body:end]))
        return delivered
