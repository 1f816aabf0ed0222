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

from random import getrandbits
from struct import pack_into

from micropython import const

from umotemq.link import Link, LinkError, ticks_ms

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

    name = _size = _skip = None

    def __init__(self, transport, **options):
        # (flags, topic, payload, ...): what the broker is told whenever the link comes up.
        self._all = []
        Link.__init__(self, transport, options)
        if self.name is None:
            self.name = bytes(str(getrandbits(28)), "utf-8")
        self._own = self._normalised(b"ping/" + self.name)  # of our pings

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
        lengths = flags << 26 ^ topic_size << 20 ^ size
        if lengths == self._fit:
            # As long as the one before, and nothing is in the way: without detours.
            if topic is self._said:
                pack_into(self._tail, self._out, topic_size + _HEADER, payload)
            else:
                self._said = None
                pack_into(self._fmt, self._out, 0, flags, topic_size, size, topic, payload)
            try:
                sent = self.stream.write(self._now)
            except OSError as error:
                self._fail(None, error)
            size += topic_size + _HEADER
            if sent != size:
                self._first = sent or 0
                self._last = size
                self._push()
        elif self.outage is not None:
            self.outage.send(self, flags, topic, payload)
        else:
            self._push()
            self._pack(flags, topic, payload)
            self._push()
            if not self._last:
                self._fit = lengths
                self._said = bytes(topic)  # the same object, unless it may change
                self._tail = "%ds" % size

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
        topic = self._normalised(topic)
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
            levels = b"*" in topic and topic.split(b"/")
            standing.append(
                (flags, topic, payload, handler and flags & _FEEDBACK, handler, raw, levels)
            )
        self._all = standing
        self._like = None
        if self.up:
            self._push()
            self._pack(flags, topic, payload)
            self._push()

    def _normalised(self, topic):
        # Return it without outer slashes, or ValueError if it is not 1 to 255 bytes of UTF-8, or
        # has a NUL.
        stripped = topic.strip(b"/")
        if stripped and len(topic) < 256 and min(topic) and max(topic) < 128:
            return stripped
        from umotemq.topic import normalised

        return normalised(topic)

    def _pack(self, flags, topic, payload, *_):
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
            self._ask(True)
        elif self._pong != self._ping and self.name:
            return False
        elif told <= len(self._all):
            self._pack(*self._all[told - 1])
        else:
            self._rise()
        self._told = told + 1
        return True

    def _ask(self, new):
        # To nobody (an empty publication is legal), or to ourselves if we want to hear it.
        if self.name:
            self._ping = self._ping + new & 255
        self._pack(0, self._own, self.name and bytes((self._ping,)))

    def _take(self):
        buf = self._buf
        view = self._view
        startswith = self._has
        handled = 0
        while True:
            start = self._start
            like = self._like
            if like:
                # The topic and length of the last ones again, for the same one handler.
                have = self._end
                span = self._span
                size = len(like)
                handler = self._call
                while startswith(like, start):
                    end = start + span
                    if end > have:
                        break
                    self._start = end
                    body = start + size
                    handler(view, start + _HEADER, body, body, end)
                    handled += 1
                    start = self._start
                    if self._like is not like:
                        break
            have = self._end
            if have - start < _HEADER:
                return handled
            # By shifts, as unpack allocates; the top byte first, as 2**30 would be a long integer.
            body = start + _HEADER + buf[start + 1]
            size = buf[start + 3] << 16 | buf[start + 4] << 8 | buf[start + 5]
            end = body + size
            if buf[start + 2]:
                self._fail("wire", None)
            if end > have:
                if end - start > self.rx_size and (not self._skip or self._skip(start, body, end)):
                    self._start = end  # what lies beyond the end will not be looked at
                    self.discarded += 1
                return handled
            self._start = end
            kind = buf[start] & (_SUBSCRIPTION | _FEEDBACK)
            span = end - start
            start += _HEADER
            stop = body
            while start < stop and buf[start] == _SLASH:
                start += 1
            while start < stop and buf[stop - 1] == _SLASH:
                stop -= 1
            done = 0
            for _, topic, _, wanted, handler, raw, levels in self._all:
                if kind != wanted:
                    continue
                like = raw
                if len(topic) != stop - start or not startswith(topic, start):
                    if not levels and buf.find(b"*", start, stop) < 0:
                        continue
                    from umotemq.topic import is_like

                    # What equals a valid topic is valid; others are looked through, if copied.
                    if not is_like(levels or topic.split(b"/"), buf, start, stop, raw):
                        continue
                    like = None
                if done:
                    self._like = b""
                # Twice the same length, and without slashes around the topic.
                elif like and self._like is None and size == self._size:
                    if len(topic) + size + _HEADER == span:
                        self._like = bytes(view[start - _HEADER : body])
                        self._span = span
                        self._call = handler
                done = 1
                if raw:
                    handler(view, start, stop, body, end)
                else:
                    handler(bytes(view[start:stop]), bytes(view[body:end]))
            self._size = size
            if size == 1 and stop - start == len(self._own) and startswith(self._own, start):
                self._pong = buf[body]
                done = 1
            if not done:
                self.discarded += 1
            handled += done
