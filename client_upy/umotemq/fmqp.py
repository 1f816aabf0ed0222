"""An FMQP client: publish, subscribe, last wills, feedback; over any transport.

    from umotemq.fmqp import FmqpClient
    from umotemq.tcp import Tcp
    client = FmqpClient(Tcp("192.168.1.2", 8765))
    client.subscribe("home/*/lamp", lambda topic, payload: print(topic, payload))
    client.connect()
    client.publish("home/kitchen/temperature", "21.5", retain=True)
    client.run()

FMQP has no acknowledgement and no ping. A client with a ``name`` publishes to a topic of its own
to learn that the broker is alive and has processed all that was sent before. That topic has eight
levels, so that nobody's ``*/*`` sees it.

Why so long: one client is one class, and half of this says what it does.
"""

from random import getrandbits
from struct import pack_into

from micropython import const

from umotemq.link import Link, encoded, ticks_ms

_SUBSCRIPTION = const(0x80)  # bits from the first one on (R2)
_UNSUBSCRIBE = const(0x40)
_FEEDBACK = const(0x20)
_DEBUG = const(0x10)
_WILL = const(0x08)
_RETAIN = const(0x04)  # the specification's "cache"
_HEADER = const(6)
_SLASH = const(0x2F)


class FmqpClient(Link):
    """One FMQP client. The options: those of Link, and

    ``name``: makes the ping topic this client's own, must be unique on the broker (default: by
    chance). b"": no pings; then a silent broker is not noticed.

    Topics and payloads are bytes, or str, which is sent as UTF-8; handlers get bytes.
    """

    name = None
    _body = None  # bytes of the last publication's payload
    _skip = None  # ChunkClient's, for a message that is longer than the buffer: True to skip it

    def __init__(self, transport, **options):
        # What the broker is told whenever the link comes up: tuples of flags, topic, payload, the
        # kind of packets that a handler wants, the handler, whether it is raw, levels of a pattern.
        self._standing = []
        self._size = None  # of the last message that came
        self._lengths = None  # of the topic and payload that _format is for
        Link.__init__(self, transport, options)
        if self.name is None:
            self.name = b"%d" % getrandbits(28)
        # The topic of our pings; it must fit, or the link could never come up.
        self._own = b"ping"
        if self.name:
            self._own = self._normalised(b"ping/-/-/-/-/-/-/" + encoded(self.name))
        self._pack(0, self._own, b"1")
        self._last = 0

    def publish(self, topic, payload, *, retain=False, will=False, again=False, confirm=False):
        """Send one publication, in one write.

        ``retain``: the broker keeps it for later subscribers. ``will``: it publishes it when
        this connection ends, however it ends. ``again``: it is sent once more whenever the link
        comes up, until another takes its place; so is every will. ``confirm``: the ``outage``
        keeps it until the broker has answered. An empty payload reaches nobody; with ``retain``
        it clears what is retained. Raises ValueError if it does not fit ``tx_size``, LinkError
        while the link is down and no ``outage`` keeps it.
        """
        if isinstance(payload, str):
            payload = payload.encode()
        if topic is self._topic and len(payload) == self._body and retain is self._retain:
            if not (will or again or (confirm and self.outage is None)):
                # Like the one before, which is still in the transmit buffer but for its payload.
                out = self._part
                size = len(out)
                pack_into(self._tail, self._out, size - self._body, payload)
                if self.outage is not None:
                    return self.outage.send_packed(self, confirm)
                try:
                    sent = self.stream.write(out)
                except OSError as error:
                    self._fail(None, error)
                if sent != size:
                    self._first = sent or 0
                    self._last = size
                    self._topic = None
                    self._push()
                return
        flags = _RETAIN * retain
        if will or again:
            return self._tell(flags | _WILL * will, topic, payload, None, None)
        topic = encoded(topic)
        if self.outage is not None:
            alone = self.outage.send(self, confirm, flags, topic, payload)
        elif confirm:
            raise ValueError("confirm without outage")
        else:
            self._push()
            alone = not self._last
            self._pack(flags, topic, payload)
            self._push()
        if alone and not self._last and self.up:
            self._topic = bytes(topic)  # the same object, unless it may change
            self._body = len(payload)
            self._retain = retain
            self._tail = "%ds" % self._body

    def subscribe(self, topic, handler, *, feedback=False, debug=False, raw=False):
        """Subscribe; ``poll`` then calls ``handler(topic, payload)`` with bytes.

        A level ``*`` stands for any one level. ``feedback``: hear of subscriptions to ``topic``
        instead (payload: 8 bytes, how many there are; empty: nobody). ``debug``: publishers are
        not told of this one. ``raw``: nothing is copied or allocated; ``handler(view,
        topic_start, topic_end, body_start, body_end)`` may use the view until it returns, and
        must not poll, ping, or publish with ``confirm``. A second subscription to the same topic
        replaces the handler. The broker is told whenever the link comes up.
        """
        if not callable(handler):
            raise TypeError("handler")
        self._tell(_SUBSCRIPTION | _FEEDBACK * feedback | _DEBUG * debug, topic, b"", handler, raw)

    def unsubscribe(self, topic, *, feedback=False):
        """Take back ``subscribe`` of the same topic."""
        self._tell(_SUBSCRIPTION | _UNSUBSCRIBE | _FEEDBACK * feedback, topic, b"", None, None)

    def _tell(self, flags, topic, payload, handler, raw):
        # Tell it now, and whenever the link comes up, in place of what was told.
        topic = self._normalised(topic)
        self._end_of(0, _HEADER + len(topic) + len(payload))  # what never fits is not kept
        # A new list, as a handler may subscribe while the old one is being walked.
        standing = []
        for entry in self._standing:
            if entry[1] != topic or (entry[0] ^ flags) & (_SUBSCRIPTION | _FEEDBACK | _WILL):
                standing.append(entry)
            elif flags & _UNSUBSCRIBE:
                flags |= entry[0] & _DEBUG
        if self._greeted and not self.up and len(standing) != len(self._standing):
            self._drop(self.error, ticks_ms())  # what it is being told has changed: begin anew
        if not flags & _UNSUBSCRIBE:
            wanted = flags & _FEEDBACK if handler else None
            levels = topic.split(b"/") if b"*" in topic else None
            standing.append((flags, topic, payload, wanted, handler, raw, levels))
        self._standing = standing
        self._alike = None
        if self.up:
            self._push()
            self._pack(flags, topic, payload)
            self._push()

    def _normalised(self, topic):
        # Return it as bytes without outer slashes, or ValueError if it is not 1 to 255 bytes of
        # UTF-8, or has a NUL.
        topic = encoded(topic)
        stripped = topic.strip(b"/")
        if stripped and len(topic) < 256 and min(topic) and max(topic) < 128:
            return stripped
        from umotemq.topic import normalised

        return normalised(topic)

    def _pack(self, flags, topic, payload, *_):
        # Put a packet behind what waits to be written.
        topic_size = len(topic)
        size = len(payload)
        if not 0 < topic_size < 256:
            raise ValueError("topic of %d bytes" % topic_size)
        last = self._last
        end = self._end_of(last, _HEADER + topic_size + size)
        self._topic = None
        lengths = size << 8 | topic_size
        if lengths != self._lengths:
            # pack_into copies topic and body without allocating, if the format is there already.
            self._lengths = lengths
            self._format = ">BBI%ds%ds" % (topic_size, size)
        pack_into(self._format, self._out, last, flags, topic_size, size, topic, payload)
        self._last = end

    def _greet(self):
        greeted = self._greeted
        if not greeted and self.name:
            self._pack(_SUBSCRIPTION | _DEBUG, self._own, b"")
        elif greeted < 2:
            # Is there a broker at all? Only if so is it told anything.
            self._ask(True)
            greeted = 1
        elif self._pong != self._ping and self.name:
            return False
        elif greeted - 2 < len(self._standing):
            self._pack(*self._standing[greeted - 2])
        else:
            self._rise()
        self._greeted = greeted + 1
        return True

    def _ask(self, new):
        # To nobody (an empty publication is legal), or to ourselves if we want to hear it.
        payload = b""
        if self.name:
            self._ping = self._ping + new & 255
            payload = bytes((self._ping,))
        self._pack(0, self._own, payload)

    def _take(self):
        buf = self._buf
        view = self._view
        startswith = self._startswith
        handled = 0
        while True:
            start = self._start
            alike = self._alike
            if alike:
                # The header and topic of the last ones again, for the same one raw handler.
                have = self._end
                span = self._span
                size = len(alike)
                handler = self._raw
                while startswith(alike, start):
                    end = start + span
                    if end > have:
                        break
                    self._start = end
                    body = start + size
                    handler(view, start + _HEADER, body, body, end)
                    handled += 1
                    start = self._start
                    if self._alike is not alike:
                        break
            have = self._end
            if have - start < _HEADER:
                return handled
            # By shifts, as unpack allocates; the top byte first, as 2**30 would be a long integer.
            body = start + _HEADER + buf[start + 1]
            size = buf[start + 3] << 16 | buf[start + 4] << 8 | buf[start + 5]
            end = body + size
            if buf[start + 2]:
                self._fail("wire", "above 16 MiB")
            if end > have:
                if end - start > self.rx_size and (not self._skip or self._skip(start, body, end)):
                    self._start = end  # what lies beyond the end will not be looked at
                    self.discarded += 1
                return handled
            self._start = end
            first = start + _HEADER
            stop = body
            while first < stop and buf[first] == _SLASH:
                first += 1
            while first < stop and buf[stop - 1] == _SLASH:
                stop -= 1
            if size == 1 and stop - first == len(self._own) and startswith(self._own, first):
                self._pong = buf[body]
                handled += 1
            elif self._dispatch(start, first, stop, body, end):
                handled += 1
            else:
                self.discarded += 1
            self._size = size

    def _dispatch(self, start, first, stop, body, end):
        # Call every handler of one message; return how many there were. Each of them gets it,
        # whatever the others do: those that are given copies may poll, so they come last.
        buf = self._buf
        view = self._view
        kind = buf[start] & (_SUBSCRIPTION | _FEEDBACK)
        standing = self._standing
        count = 0
        copying = ()
        only_raw = failure = None
        for _, topic, _, wanted, found, raw, levels in standing:
            if kind != wanted:
                continue
            is_same = len(topic) == stop - first and buf.startswith(topic, first)
            if not is_same:
                if not levels and buf.find(b"*", first, stop) < 0:
                    continue
                from umotemq.topic import is_like

                # What equals a valid topic is valid; others are looked through, if copied.
                if not is_like(levels or topic.split(b"/"), buf, first, stop, raw):
                    continue
            count += 1
            if raw:
                only_raw = found if is_same and count == 1 else None
                try:
                    found(view, first, stop, body, end)
                except Exception as error:
                    failure = failure or error
            else:
                copying += (found,)
        if copying:
            topic = bytes(view[first:stop])
            payload = bytes(view[body:end])
            for found in copying:
                try:
                    found(topic, payload)
                except Exception as error:
                    failure = failure or error
        elif only_raw and count == 1 and self._alike is None and standing is self._standing:
            # Twice the same length, and without slashes around the topic.
            if end - body == self._size and stop - first == buf[start + 1]:
                self._alike = bytes(view[start:body])
                self._span = end - start
                self._raw = only_raw
        if failure:
            raise failure
        return count
