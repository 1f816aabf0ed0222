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
from struct import pack_into
from time import ticks_ms

from micropython import const

from umotemq.link import Link, LinkError
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
    """

    name = None

    def __init__(self, transport, **options):
        # (flags, topic, payload, ...): what the broker is told whenever the link comes up.
        self._all = []
        Link.__init__(self, transport, options)
        if self.name is None:
            self.name = b"%x" % random.getrandbits(28)
        self._own = normalised(b"ping/" + self.name)  # of our pings

    def publish(self, topic, payload, cache=False, will=False, again=False):
        """Send one publication, in one write.

        ``cache``: the broker retains it for later subscribers. ``will``: it publishes it when
        this connection ends, however it ends. ``again``: it is sent once more whenever the link
        comes up, until another takes its place; so is every will. An empty payload reaches
        nobody; with ``cache`` it clears what is retained. Raises ValueError if it does not fit
        ``tx_size``, LinkError while the link is down and no ``outage`` keeps it.
        """
        flags = _CACHE * cache
        if will or again:
            return self._tell(flags | _WILL * will, topic, payload, None, None)
        topic_size = len(topic)
        size = len(payload)
        lengths = topic_size << 20 ^ size
        if lengths == self._fit:
            # As long as the one before, and nothing is in the way: without detours.
            pack_into(self._fmt, self._out, 0, flags, topic_size, size, topic, payload)
            try:
                self._first = self.stream.write(self._now) or 0
            except OSError as error:
                self._fail(None, error)
            size += topic_size + _HEADER
            if self._first != size:
                self._last = size
                self._push()
            else:
                self._first = 0
        elif self.outage is not None:
            self.outage.send(self, flags, topic, payload)
        else:
            self._push()
            self._pack(flags, topic, payload)
            self._push()
            if not self._last:
                self._fit = lengths

    def subscribe(self, topic, handler, feedback=False, debug=False, raw=False):
        """Subscribe; ``poll`` then calls ``handler(topic, payload)`` with bytes.

        A level ``*`` stands for any one level. ``feedback``: hear of subscriptions to ``topic``
        instead (payload: 8 bytes, how many there are; empty: nobody). ``debug``: publishers are
        not told of this one. ``raw``: nothing is copied or allocated; ``handler(view,
        topic_start, topic_end, body_start, body_end)`` may use the view until it returns, and
        must not poll. A second subscription to the same topic replaces the handler. The broker
        is told whenever the link comes up.
        """
        self._tell(_SUBSCRIPTION | _FEEDBACK * feedback | _DEBUG * debug, topic, b"", handler, raw)

    def unsubscribe(self, topic, feedback=False):
        """Take back ``subscribe`` of the same topic."""
        self._tell(_SUBSCRIPTION | _UNSUBSCRIBE | _FEEDBACK * feedback, topic, b"", None, None)

    def _tell(self, flags, topic, payload, handler, raw):
        # Tell it now, and whenever the link comes up, in place of what was told.
        topic = normalised(topic)
        # A new list, as a handler may subscribe while the old one is being walked.
        standing = []
        for entry in self._all:
            if entry[1] != topic or (entry[0] ^ flags) & (_SUBSCRIPTION | _FEEDBACK | _WILL):
                standing.append(entry)
            elif flags & _UNSUBSCRIBE:
                flags |= entry[0] & _DEBUG
        if self._told and not self.up and len(standing) != len(self._all):
            self._drop()  # what it is being told has changed: begin anew
            self._due = ticks_ms()
        if not flags & _UNSUBSCRIBE:
            wanted = handler and flags & _FEEDBACK
            levels = topic.split(b"/")
            standing.append((flags, topic, payload, wanted, handler, raw, levels, len(topic)))
        self._all = standing
        if self.up:
            self._push()
            self._pack(flags, topic, payload)
            self._push()

    def _pack(self, flags, topic, payload):
        # Put a packet behind what waits to be written.
        topic_size = len(topic)
        size = len(payload)
        last = self._last
        self._last = end = last + _HEADER + topic_size + size
        if end > self.tx_size or not 0 < topic_size < 256:
            self._last = last
            raise (LinkError if last else ValueError)("size")
        # pack_into copies topic and body without allocating, if the format is there already.
        self._fmt = ">BBI%ds%ds" % (topic_size, size)
        pack_into(self._fmt, self._out, last, flags, topic_size, size, topic, payload)

    def _greet(self):
        told = self._told
        if not told:
            # Is there a broker at all? Only if so is it told anything.
            if self.name:
                self._pack(_SUBSCRIPTION | _DEBUG, self._own, b"")
            self._ask()
        elif self._pong != self._ping and self.name:
            return False
        elif told <= len(self._all):
            self._pack(*self._all[told - 1][:3])
        else:
            self._rise()
        self._told += 1
        return True

    def _ask(self, new=True):
        # To nobody (an empty publication is legal), or to ourselves if we want to hear it.
        body = b""
        if self.name:
            self._ping = (self._ping + new) & 255
            body = bytes((self._ping,))
        self._pack(0, self._own, body)

    def _take(self):
        buf = self._buf
        view = self._view
        startswith = self._has
        handled = 0
        while True:
            start = self._start
            have = self._end
            if have - start < _HEADER:
                return handled
            # By shifts, as unpack allocates; the top byte first, as 2**30 would be a long integer.
            body = start + _HEADER + buf[start + 1]
            end = body + (buf[start + 3] << 16 | buf[start + 4] << 8 | buf[start + 5])
            if buf[start + 2] or end > have:
                if buf[start + 2]:
                    self._fail("wire")
                if end - start > self.rx_size:
                    self._skip(start, body, end)
                return handled
            self._start = end
            kind = buf[start] & (_SUBSCRIPTION | _FEEDBACK)
            start += _HEADER
            stop = body
            if buf[stop - 1] == _SLASH or buf[start] == _SLASH:
                while start < stop and buf[start] == _SLASH:
                    start += 1
                while start < stop and buf[stop - 1] == _SLASH:
                    stop -= 1
            done = 0
            size = stop - start
            # Incorrect (R4) is what has no topic, or is a subscription: they are for nobody.
            for _, topic, _, wanted, handler, raw, levels, length in self._all:
                if kind != wanted:
                    continue
                if size != length or not startswith(topic, start):
                    if not (size and is_equivalent(levels, buf, start, stop)):
                        continue
                    # What equals a valid topic is valid; others are looked through, if copied.
                    if not (raw or is_valid(bytes(view[start:stop]))):
                        continue
                done = 1
                if raw:
                    handler(view, start, stop, body, end)
                else:
                    handler(bytes(view[start:stop]), bytes(view[body:end]))
            if end - body == 1 and size == len(self._own) and startswith(self._own, start):
                self._pong = buf[body]
                done = 1
            if done:
                handled += 1
            else:
                self.discarded += 1

    def _skip(self, start, body, end):
        # Of a message that is too long. What lies beyond the end will not be looked at.
        self._start = end
        self.discarded += 1
