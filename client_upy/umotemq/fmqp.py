"""An FMQP client: publish, subscribe, last wills, feedback; over any transport.

    from umotemq.fmqp import FmqpClient
    from umotemq.tcp import Tcp
    client = FmqpClient(Tcp("192.168.1.2", 8765))
    client.subscribe(b"home/*/lamp", lambda topic, payload: print(topic, payload))
    client.connect()
    client.publish(b"home/kitchen/temperature", b"21.5", cache=True)
    while True:
        client.poll(1000)

FMQP has no acknowledgement and no ping. A client with a ``name`` publishes to a topic of its own,
``ping/NAME``, to learn that the broker is alive and has processed all that was sent before.
"""

import random
import struct
from time import ticks_ms

from micropython import const

from umotemq.link import Link, WireError
from umotemq.topic import is_equivalent, is_valid, normalised

_SUBSCRIPTION = const(0x80)  # bits from the first one on (R2)
_UNSUBSCRIBE = const(0x40)
_FEEDBACK = const(0x20)
_DEBUG = const(0x10)
_WILL = const(0x08)
_CACHE = const(0x04)
_HEADER = const(6)
_SLASH = const(0x2F)


class FmqpClient(Link):
    """One FMQP client. Topics and payloads are bytes. The options: those of Link, and

    ``name``: makes the ping topic this client's own, must be unique on the broker (default: by
    chance). b"": no pings; then a silent broker is not noticed.
    ``skip_limit``: a message longer than ``rx_size`` is skipped; one longer than this is an error.
    """

    name = None
    skip_limit = 0x100000

    def __init__(self, transport, **options):
        Link.__init__(self, transport, **options)
        # (flags, topic, payload, handler, raw, wild): what the broker is told whenever it is up.
        self._standing = []
        self._lengths = self._format = None
        if self.name is None:
            self.name = hex(random.getrandbits(28)).encode()
        self._own = normalised(b"ping/" + self.name)  # of our pings

    def publish(self, topic, payload, cache=False, will=False, again=False):
        """Send one publication, in one write.

        ``cache``: the broker retains it for later subscribers. ``will``: it publishes it when
        this connection ends, however it ends. ``again``: it is sent once more whenever the link
        comes up, until another takes its place; so is every will. An empty payload reaches
        nobody; with ``cache`` it clears what is retained. Raises ValueError if it does not fit
        ``tx_size``, LinkError while the link is down and no ``outage`` keeps it.
        """
        flags = _CACHE * cache | _WILL * will
        if again or will:
            self._stand(flags, normalised(topic), payload, None, False, False)
            return
        topic_size = len(topic)
        size = len(payload)
        plain = self.up and not self._last and self.outage is None
        if not plain or topic_size << 20 ^ size != self._lengths:
            self._commit(self._pack(flags, topic, payload, False))
            return
        # The usual case without detours: as long as the one before, and nothing is in the way.
        struct.pack_into(self._format, self._out, 0, flags, topic_size, size, topic, payload)
        try:
            sent = self.stream.write(self._now)
        except OSError as error:
            self._fail("send", error)
        if sent == _HEADER + topic_size + size:
            self._last_tx = ticks_ms()
        else:
            self._first = sent or 0
            self._last = _HEADER + topic_size + size
            self._push()

    def subscribe(self, topic, handler, feedback=False, debug=False, raw=False):
        """Subscribe; ``poll`` then calls ``handler(topic, payload)`` with bytes.

        A level ``*`` stands for any one level. ``feedback``: hear of subscriptions to ``topic``
        instead (payload: 8 bytes, how many there are; empty: nobody). ``debug``: publishers are
        not told of this one. ``raw``: nothing is copied or allocated; ``handler(view,
        topic_start, topic_end, body_start, body_end)`` may use the view until it returns, and
        must not poll. A second subscription to the same topic replaces the handler. The broker
        is told whenever the link comes up.
        """
        flags = _SUBSCRIPTION | _FEEDBACK * feedback | _DEBUG * debug
        topic = normalised(topic)
        self._stand(flags, topic, b"", handler, raw, b"*" in topic)

    def unsubscribe(self, topic, feedback=False):
        """Take back ``subscribe`` of the same topic."""
        self._stand(_SUBSCRIPTION | _UNSUBSCRIBE | _FEEDBACK * feedback, normalised(topic), b"")

    def _stand(self, flags, topic, payload, *rest):
        # Tell it now, and with ``rest`` whenever the link comes up, in place of what was told.
        if _HEADER + len(topic) + len(payload) > self.tx_size:
            raise ValueError("tx_size is %d" % self.tx_size)
        # A new list, as a handler may subscribe while the old one is being walked.
        standing = []
        for entry in self._standing:
            if entry[1] != topic or (entry[0] ^ flags) & (_SUBSCRIPTION | _FEEDBACK | _WILL):
                standing.append(entry)
            elif flags & _UNSUBSCRIBE:
                flags |= entry[0] & _DEBUG
        if not self.up and self._told and len(standing) != len(self._standing):
            self._drop()  # what it is being told has changed: begin anew
            self._due = self._last_tx
        if rest:
            standing.append((flags, topic, payload) + rest)
        self._standing = standing
        if self.up:
            self._commit(self._pack(flags, topic, payload, False))

    def _pack(self, flags, topic, payload, own=True):
        # Put a packet where there is room; return its size.
        topic_size = len(topic)
        size = len(payload)
        at = self._begin(_HEADER + topic_size + size, own)
        lengths = topic_size << 20 ^ size
        if lengths != self._lengths:
            if not 0 < topic_size < 256:
                raise ValueError("topic: 1 to 255 bytes")
            # pack_into with a format made before copies topic and body without allocating.
            self._lengths = lengths
            self._format = ">BBI%ds%ds" % (topic_size, size)
        struct.pack_into(self._format, self._to, at, flags, topic_size, size, topic, payload)
        return _HEADER + topic_size + size

    def _introduce(self):
        told = self._told
        if self._answered is None:
            # Is there a broker at all? Only if so is it told anything.
            self._answered = -1 if self.name else self._asking
            if self.name:
                self._last += self._pack(_SUBSCRIPTION | _DEBUG, self._own, b"")
            self._keepalive()
        elif self._answered != self._asking:
            return False
        elif told < len(self._standing):
            entry = self._standing[told]
            self._last += self._pack(entry[0], entry[1], entry[2])
            self._told += 1
        else:
            self._ready()
        return True

    def _keepalive(self):
        # To nobody (an empty publication is legal), or to ourselves if we want to hear it.
        body = b""
        if self.name:
            self._asking = (self._asking + 1) & 0xFFFFFF
            self._asked = True
            body = struct.pack(">I", self._asking)
        self._last += self._pack(0, self._own, body)

    def _take(self):
        buf = self._buf
        handled = 0
        if self._skip and not self._skipped():
            return 0
        while True:
            start = self._start
            have = self._end - start
            if have < _HEADER:
                return handled
            # By shifts, as unpack allocates; the top byte first, as 2**30 would be a long integer.
            size = buf[start + 3] << 16 | buf[start + 4] << 8 | buf[start + 5]
            if buf[start + 2] or size > have:
                if buf[start + 2] or size > self.skip_limit:
                    self._fail("receive", "an absurdly long message", WireError)
            stop = start + _HEADER + buf[start + 1]
            size += stop - start
            if size > have:
                if size > self.rx_size and self._is_let_go(start, stop, size):
                    self._skipped()  # all that is here
                return handled
            self._start = end = start + size
            flags = buf[start]
            start += _HEADER
            body = stop
            while start < stop and buf[start] == _SLASH:
                start += 1
            while start < stop and buf[stop - 1] == _SLASH:
                stop -= 1
            size = stop - start
            done = star = None
            # Incorrect (R4) is what has no topic, or is a subscription: they are for nobody.
            for kind, pattern, _, handler, raw, wild in self._standing:
                if not handler or (kind ^ flags) & (_SUBSCRIPTION | _FEEDBACK) != _SUBSCRIPTION:
                    continue
                # What equals a valid topic is valid: only other matches are looked through.
                if size != len(pattern) or not buf.startswith(pattern, start):
                    if star is None:
                        star = buf.find(b"*", start, stop) >= 0
                    if not (star or wild) or not is_equivalent(pattern, buf, start, stop):
                        continue
                    if not done and not (size and is_valid(buf, start, stop)):
                        break
                done = True
                if raw:
                    handler(self._view, start, stop, body, end)
                else:
                    handler(bytes(self._view[start:stop]), bytes(self._view[body:end]))
            if end - body == 4 and size == len(self._own) and buf.startswith(self._own, start):
                self._answered = buf[body + 1] << 16 | buf[body + 2] << 8 | buf[body + 3]
                done = True
            if done:
                handled += 1
            else:
                self.discarded += 1

    def _is_let_go(self, start, stop, size):
        # Of a message that is too long. False: more of its head is wanted.
        self._skip = size
        self.discarded += 1
        return True
