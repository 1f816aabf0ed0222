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

from struct import pack_into

from micropython import const

from umotemq.link import Link, encoded

_SUBSCRIPTION = const(0x80)  # bits from the first one on (R2)
_UNSUBSCRIBE = const(0x40)
_FEEDBACK = const(0x20)
_DEBUG = const(0x10)
_WILL = const(0x08)
_RETAIN = const(0x04)  # the specification's "cache"
_HEADER = const(6)
_SLASH = const(0x2F)
_RECENT = const(16)  # so many kinds of publications, by topic and length, are not looked into again


class FmqpClient(Link):
    """One FMQP client. The options: those of Link, and

    ``name``: makes the ping topic this client's own, must be unique on the broker (default: by
    chance). b"": no pings; then a silent broker is not noticed.

    Topics and payloads are bytes, or str, which is sent as UTF-8; handlers get bytes.
    """

    name = None
    _skip = None  # ChunkClient's, for a message that is longer than the buffer: True to skip it
    _format = 0, None  # of what was packed last: the lengths of its topic and payload, for struct

    def __init__(self, transport, **options):
        # What the broker is told whenever the link comes up: tuples of flags, topic, payload, the
        # handler, whether it is raw, the levels if it is a pattern.
        self._standing = []
        # The kinds of publications of lately, and the last one's: tuples of the packet and its
        # length; the payload's format; the topic as it is sent, and as it was given; the payload's
        # length, all bits of it inverted if the broker retains it.
        self._recent = []
        self._latest = [None] * 6
        Link.__init__(self, transport, options)
        # The size of the message before, and an umotemq.alike.Alike once a raw handler's repeat.
        self._size = self._alike = None
        if self.name is None:
            import random

            self.name = str(random.getrandbits(28))
        self._own = self._normalised(b"ping/-/-/-/-/-/-/" + encoded(self.name))
        self._ask(False)  # it must fit, as must its echo, or the link could never come up
        if self._last > self.rx_size:
            import umotemq.mistakes

            umotemq.mistakes.throw("rx_size", self, self._last)
        self._last = 0

    def publish(
        self, topic, payload, flags=..., retain=False, will=False, again=False, confirm=False
    ):
        """Send one publication, in one write.

        ``retain``: the broker keeps it for later subscribers. ``will``: it publishes it when
        this connection ends, however it ends. ``again``: it is sent once more whenever the link
        comes up, until another takes its place; so is every will. ``confirm``: the ``outage``
        keeps it until the broker has answered; not with the two before. An empty payload reaches
        nobody; with ``retain`` it clears what is retained. Raises ValueError if it does not fit
        ``tx_size`` or no broker takes the topic, LinkError while the link is down and no
        ``outage`` keeps it.
        """
        if payload.__class__ is not bytes:  # type() is a name that takes long to be found
            payload = encoded(payload)
        outage = self.outage
        kind = size = len(payload)
        if retain:
            kind = ~size  # below 0: of another kind
        # They are given by name: ``flags`` takes what is not. With a ``*`` in its place each of
        # them would be looked up for every message.
        if will or again or flags is not ...:
            if flags is ... and not confirm:
                return self._tell(_RETAIN * (kind < 0) | _WILL * will, topic, payload, None, False)
            import umotemq.mistakes

            umotemq.mistakes.throw("flags", flags)
        packet, end, tail, name, known, like = self._latest
        if not (known is topic and like == kind):
            for latest in self._recent:
                packet, end, tail, name, known, like = latest
                if known is topic and like == kind:
                    self._latest = latest
                    break
            else:
                # All the heap that it takes is taken before anything is sent.
                name = self._normalised(topic)
                letters = len(name)
                end = self._fitting(0, _HEADER + letters + size)
                packet = bytearray(end)
                tail = "%ds" % size
                pack_into(
                    ">BBI%ds%ds" % (letters, size),
                    packet,
                    0,
                    _RETAIN * (kind < 0),
                    letters,
                    size,
                    name,
                    payload,
                )
                if topic.__class__ in (bytes, str):  # others may change
                    self._latest = packet, end, tail, name, topic, kind
                    self._recent.append(self._latest)
                    del self._recent[:-_RECENT]
        if self.up and not self._last:
            # Like one before, but for its payload.
            pack_into(tail, packet, -size, payload)
            # A ring says whether others come first; without one, nothing can be confirmed.
            if not confirm if outage is None else outage.register(packet, end, confirm):
                try:
                    sent = self.stream.write(packet)
                except OSError as error:
                    if outage is None:
                        self._fail(None, error)
                    sent = error
                if sent == end:
                    return
                self._last = end
                # A slice would take heap. Without it the rest could not be sent, after a part was.
                while end:
                    end -= 1
                    self._out[end] = packet[end]
                if outage is None:
                    self._first = sent or 0
                    return self._push()
                return outage.write(self, confirm, sent)
        return self._send(packet[0], name, payload, confirm)

    def subscribe(self, topic, handler, *, feedback=False, debug=False, raw=False):
        """Subscribe; ``poll`` then calls ``handler(topic, payload)`` with bytes; it awaits nothing.

        A level ``*`` stands for any one level. ``feedback``: hear of subscriptions to ``topic``
        instead (payload: 8 bytes, how many there are; empty: nobody). ``debug``: publishers are
        not told of this one. ``raw``: nothing is copied or allocated; ``handler(view,
        topic_start, topic_end, body_start, body_end)`` may use the view until it returns, and
        must not poll, ping, or publish with ``confirm``. A second subscription to the same topic
        replaces the handler. The broker is told whenever the link comes up.
        """
        if not callable(handler):
            import umotemq.mistakes

            umotemq.mistakes.throw("handler", handler)
        if raw:
            # Now, and not when messages begin to repeat, where nothing is to take heap.
            from umotemq.alike import note

            self._note = note
        self._tell(_SUBSCRIPTION | _FEEDBACK * feedback | _DEBUG * debug, topic, b"", handler, raw)

    def unsubscribe(self, topic, *, feedback=False):
        """Take back ``subscribe`` of the same topic."""
        self._tell(_FEEDBACK * feedback | (_SUBSCRIPTION | _UNSUBSCRIBE), topic, b"", None, None)

    def _tell(self, flags, topic, payload, handler, raw):
        # Tell it now, and whenever the link comes up, in place of what was told.
        topic = self._normalised(topic)
        self._fitting(0, _HEADER + len(topic) + len(payload))  # what never fits is not kept
        # A new list, as a handler may subscribe while the old one is being walked. Raw handlers
        # come first: what they are given is the buffer, and others may poll.
        standing = []
        for entry in self._standing:
            if entry[1] != topic or (entry[0] ^ flags) & (_SUBSCRIPTION | _FEEDBACK | _WILL):
                standing.append(entry)
            elif flags & _UNSUBSCRIBE:
                flags |= entry[0] & _DEBUG
        if not flags & _UNSUBSCRIBE:
            told = [(flags, topic, payload, handler, raw, b"*" in topic and topic.split(b"/"))]
            standing = told + standing if raw else standing + told
        self._standing = standing
        self._alike = self._size = None
        if self.up:
            self._send(flags, topic, payload, None)
        elif self._greeted > 2:
            self._drop(self.error, 0)  # it was told some of them already: begin anew

    def _normalised(self, topic):
        # Return it as bytes without outer slashes, or ValueError if it is not 1 to 255 bytes of
        # UTF-8, or has a NUL. The messages of a pattern want umotemq.topic, too.
        topic = encoded(topic)
        stripped = topic.strip(b"/")
        # bytes(1) is a NUL. To look for the least byte takes 0.5 µs longer.
        if stripped and len(topic) < 256 and bytes(1) not in topic and max(topic) < 128:
            if b"*" not in topic:
                return stripped
        from umotemq.topic import normalised

        return normalised(topic)

    def _pack(self, flags, topic, payload, *_):
        # Put a packet behind what waits to be written. The topic is one that ``_normalised`` gave.
        topic_size = len(topic)
        size = len(payload)
        last = self._last
        end = self._fitting(last, last + _HEADER + topic_size + size)
        lengths = size << 8 | topic_size
        known, format = self._format
        if known != lengths:
            # pack_into copies topic and body without allocating, if the format is there already.
            format = ">BBI%ds%ds" % (topic_size, size)
            self._format = lengths, format
        pack_into(format, self._out, last, flags, topic_size, size, topic, payload)
        self._last = end

    def _greet(self):
        greeted = self._greeted
        number = greeted - 2
        if not greeted and self.name:
            self._pack(_SUBSCRIPTION | _DEBUG, self._own, b"")
        elif greeted < 2:
            # Is there a broker at all? Only if so is it told anything.
            self._ask(True)
            greeted = 1
        elif self._pong != self._ping and self.name:
            return False
        elif number < len(self._standing):
            self._pack(*self._standing[number])
        else:
            self.up = True
        self._greeted = greeted + 1
        return True

    def _ask(self, next):
        # To nobody (an empty publication is legal), or to ourselves if we want to hear it.
        payload = b""
        if self.name:
            self._ping = self._ping + next & 255
            payload = bytes((self._ping,))
        self._pack(0, self._own, payload)

    def _take(self):
        buf = self._buf
        view = self._view
        handled = 0
        while True:
            if self._alike:
                handled += self._alike.poll(self)
            start = self._start
            if self._end - start < _HEADER:
                return handled
            # By shifts, as unpack allocates; the top byte first, as 2**30 would be a long integer.
            first = start + _HEADER
            body = first + buf[start + 1]
            size = buf[start + 3] << 16 | buf[start + 4] << 8 | buf[start + 5]
            end = body + size
            if buf[start + 2]:
                self._fail("wire", ">= 16 MiB")
            if end > self._end:
                if end - start > self.rx_size and (not self._skip or self._skip(start, body, end)):
                    self._start = end  # what lies beyond the end will not be looked at
                    self.discarded += 1
                return handled
            self._start = end
            # The topic is without outer slashes from ``first`` to ``stop``.
            stop = body
            while first < stop and buf[first] == _SLASH:
                first += 1
            while first < stop and buf[stop - 1] == _SLASH:
                stop -= 1
            if size == 1 and stop - first == len(self._own) and buf.startswith(self._own, first):
                self._pong = buf[body]
                handled += 1
                continue
            # Call every handler of the message, whatever the others do. A subscription, which is
            # nothing that a broker says, has none: its sum is of nine bits.
            kind = (buf[start] & (_SUBSCRIPTION | _FEEDBACK)) + _SUBSCRIPTION
            count = 0
            failure = alone = None
            topic = buf
            for flags, pattern, _, handler, raw, levels in self._standing:
                if flags & (_SUBSCRIPTION | _FEEDBACK) != kind:
                    continue
                if len(pattern) != stop - first or not topic.startswith(pattern, first):
                    if not levels and topic.find(b"*", first, stop) < 0:
                        continue
                    import umotemq.topic  # `from` would make a tuple on the heap, for each message

                    # What equals a valid topic is valid; others are looked through, if copied.
                    if not umotemq.topic.match(levels or pattern, topic, first, stop, raw):
                        continue
                count += 1
                try:
                    if raw:
                        alone = handler
                        handler(view, first, stop, body, end)
                    else:
                        if topic is buf:
                            payload = bytes(view[body:end])
                            topic = bytes(view[first:stop])
                            stop -= first
                            first = 0
                        handler(topic, payload)
                except Exception as error:
                    failure = failure or error
            if alone and count == 1 and size == self._size:
                self._note(self, start, body, end, alone)
            self._size = size
            if failure:
                raise failure
            if count:
                handled += 1
            else:
                self.discarded += 1
