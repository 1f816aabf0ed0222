"""A MicroMsg2 client: publish, subscribe, queues; the peer acknowledges what it has; any transport.

    from umotemq.micromsg2 import MicroMsg2Client
    from umotemq.tcp import Tcp
    client = MicroMsg2Client(Tcp("192.168.1.2", 8765), name="kitchen")
    client.subscribe("home/*/lamp", lambda topic, payload: print(topic, payload))
    client.connect()
    client.publish("home/kitchen/temperature", "21.5")
    client.ping()  # the broker has all that was sent before
    client.run()

Each message has a number of its direction; an ack of a number covers all before it. So nothing is
asked for: whoever waits for the last message's ack knows that the broker has them all. There is no
ping either. We send a message without a payload, which reaches nobody, when there is no other.

Why so long: one client is one class.
"""

from struct import pack_into

from micropython import const

from umotemq.link import Link, LinkError, encoded

_COMMAND = const(1)  # types of frames (R16); 0: a message
_EXTENSION = const(2)
_ERROR = const(4)
_LARGE = const(8)  # the payload's length has four bytes
_CONTINUED = const(16)
_ACKS = const(1)  # the index of batch-ack, which we say first (R10); pubsub has 2 and no frames
_LAST = const(65535)  # number of a message; then comes 1
_LEAST = const(
    300
)  # bytes of the receive buffer: of the longest destination, and what is around it
_TOPIC = b"topic/"
_WINDOW_NAMES = (b"max-count", b"count", b"batch-max", b"MessagesPerAck")


class MicroMsg2Client(Link):
    """One MicroMsg2 client. The options: those of Link, and

    ``name``: its identity, ASCII, at most 255 bytes. ``window``: so many messages may be without an
    ack, each way; the peer may have it smaller. ``secret``: the token or password of the broker's
    user ``name``.

    Topics, names of queues and payloads are bytes, or str, which is sent as UTF-8; handlers get
    bytes. What a handler was called for is acknowledged when it has returned, and what came before
    it, too; under umotemq.aio a queue's message when the program has finished with it.
    """

    name = secret = b""
    window = 100
    _most = 0  # messages without an ack, as agreed
    _size = _length = -1  # of payload and name of the message for which the format is
    _kind = None

    def __init__(self, transport, **options):
        # What the broker is told whenever the link comes up: tuples of a frame, the topic, whether
        # it names a queue, the handler, whether it is raw, levels of a pattern.
        self._standing = []
        self._at = self._until = 0  # where the last message's properties are
        self._name = self._topic = None  # of what was published last
        Link.__init__(self, transport, options)
        # For both reasons of Link's.
        self.secret = self.secret
        self.window = self.window
        self._where = self._view
        self._ack_part = memoryview(self._out)[:5]
        self.name = name = encoded(self.name)
        if len(name) > 255 or (name and max(name) > 127):
            from umotemq.mistakes import throw

            throw("name", name)
        if not 0 < self.window < 32768:
            from umotemq.mistakes import throw

            throw("window", self.window)
        if self.rx_size < _LEAST:
            from umotemq.mistakes import throw

            throw("rx_size", self, _LEAST)
        self._others = b"pubsub"
        self._indexes = 2
        self._login = b""
        if self.secret:
            self._others += b";x-motemq-login"
            self._indexes = 3
            secret = encoded(self.secret)
            self._login = bytes((_EXTENSION, 3, len(secret))) + secret
        self._hello()  # it must fit, or the link could never come up
        self._put(self._login)
        self._last = 0

    @property
    def properties(self):
        """Those of the message that a handler is called for, as the protocol spells them.

        Until the handler returns, or polls.
        """
        return bytes(self._where[self._at : self._until])

    def publish(self, topic, payload, *, queued=False, properties=b"", confirm=False):
        """Send one message, in one write.

        ``queued``: ``topic`` is the name of a queue; each of its messages goes to one consumer.
        ``properties``: as the protocol spells them, ``b"count:N1;unit:Tcelsius"``. ``confirm``: the
        ``outage`` keeps it until the broker has acknowledged it. A topic's message without a
        payload reaches nobody. Waits up to ``timeout_ms`` while ``window`` messages are without an
        ack, if there is no ``outage``. Raises ValueError if it does not fit ``tx_size`` or no
        broker takes the topic, LinkError while the link is down and no ``outage`` keeps it.
        """
        name = self._name
        if topic is not self._topic or name is None:
            name = self._normalised(topic)
            if isinstance(topic, bytes) or isinstance(topic, str):  # others may change
                self._topic = topic
                self._name = name
        kind = b"" if queued else _TOPIC
        if properties:
            kind += encoded(properties)
        if self.outage is None:
            left = self.timeout_ms
            while self._full:
                if self._blocking:
                    left = self._await(left, True)
                elif self._last:
                    raise LinkError("size", "%d messages without an ack" % self._most)
                else:
                    break  # umotemq.aio's: this one waits in the transmit buffer
        self._send(kind, name, encoded(payload), confirm)

    def subscribe(self, topic, handler, *, queued=False, filter=(), raw=False):
        """Subscribe; ``poll`` then calls ``handler(topic, payload)`` with bytes; it awaits nothing.

        A level ``*`` stands for any one level. ``queued``: be a consumer of the queue of that name.
        ``filter``: what properties must be like, ``"celsius>N30"``, or a tuple of such, all of
        which must hold; of a topic, and the broker's work: what another subscription here asks for
        comes to all that fit its topic. ``raw``: nothing is copied or allocated; ``handler(view,
        topic_start, topic_end, body_start, body_end)`` may use the view until it returns, and must
        not poll, ping, or publish. A second subscription to the same topic replaces handler and
        filter. The broker is told whenever the link comes up.
        """
        if not callable(handler):
            from umotemq.mistakes import throw

            throw("handler", handler)
        words = b""
        for each in filter if isinstance(filter, tuple) else (filter,):
            words += b",filter=" + _quoted(encoded(each))
        self._tell(b"subscribe", topic, words, queued, handler, raw)

    def unsubscribe(self, topic, *, queued=False):
        """Take back ``subscribe`` of the same topic."""
        self._tell(b"unsubscribe", topic, b"", queued, None, None)

    def _tell(self, command, topic, words, queued, handler, raw):
        # Tell it now, and whenever the link comes up, in place of what was told.
        topic = self._normalised(topic)
        words = b";destination=" + _quoted(topic if queued else _TOPIC + topic) + words
        frame = _framed(_COMMAND, command + words)
        self._fitting(0, len(frame))  # what never fits is not kept
        # A new list, as a handler may subscribe while the old one is being walked. Raw handlers
        # come first: what they are given is the buffer, and others may poll.
        standing = [each for each in self._standing if each[1] != topic or each[2] != queued]
        if self._greeted > 4 and not self.up:
            self._drop(self.error, 0)  # it was told some of them already: begin anew
        if handler:
            levels = b"*" in topic and topic.split(b"/")
            entry = (frame, topic, queued, handler, raw, levels)
            standing.insert(0 if raw else len(standing), entry)
        self._standing = standing
        if self.up:
            self._push()
            self._say_ack()  # before the peer gives what is not acknowledged to others
            self._put(frame)
            self._push()

    def _normalised(self, topic):
        # Return it as bytes without outer slashes, or ValueError if no broker takes it.
        topic = encoded(topic)
        stripped = topic.strip(b"/")
        # The messages of a pattern want umotemq.topic, too.
        if stripped and len(topic) < 250 and min(topic) and max(topic) < 128 and b"*" not in topic:
            return stripped
        from umotemq.topic import normalised

        stripped = normalised(topic)
        if len(stripped) > 249:
            raise ValueError("topic of %d bytes, at most 249" % len(stripped))
        return stripped

    # ---- what is sent ----

    def _hello(self):
        # The first word of a client, which is also its last one: what both must have (R9).
        name = self.name
        needs = b"batch-ack:max-count=%d;" % (self._most or self.window) + self._others
        size = len(needs)
        self._last = self._fitting(0, 8 + len(name) + size)
        text = ">BBBB%dsH%dsH" % (len(name), size)
        pack_into(text, self._out, 0, 1, 0, 0, len(name), name, size, needs, 0)

    def _greet(self):
        greeted = self._greeted
        if greeted == 1:
            return False  # the peer's answer comes first, which makes it 2
        if greeted == 0:
            self._most = self.window
            self._hello()
        elif greeted == 2:
            self._hello()
            self._put(self._login)
        elif greeted == 3:
            # Its ack says that the peer has agreed. Only if so is it told anything.
            self._ask(True)
        elif self._pong != self._ping:
            return False
        elif greeted - 4 < len(self._standing):
            self._put(self._standing[greeted - 4][0])
        else:
            self.up = True
        self._greeted = greeted + 1
        return True

    def _pack(self, kind, name, payload, more=0):
        # Put a message behind what waits to be written, under the next number. ``kind``: b"topic/"
        # unless it is for a queue, and the properties.
        size = len(payload)
        length = len(name)
        last = self._last
        if size != self._size or length != self._length or kind != self._kind:
            # pack_into copies all of it without allocating, if the format is there already.
            cut = len(_TOPIC) if kind.startswith(_TOPIC) else 0
            self._kind = None  # until there was heap for all of it
            self._prefix = kind[:cut]
            self._said = kind[cut:]
            self._flags = _LARGE if size > 255 else 0
            said = len(self._said)
            self._span = (10 if size > 255 else 7) + cut + length + said + size
            letters = (cut, length, said, "I" if size > 255 else "B", size)
            self._format = ">BHB%ds%dsH%ds%s%ds" % letters
            self._size = size
            self._length = length
            self._kind = kind
        end = self._fitting(last, last + self._span)
        prefix = self._prefix
        said = self._said
        self._ping = number = self._ping % _LAST + 1
        pack_into(
            self._format,
            self._out,
            last,
            self._flags | more,
            number,
            len(prefix) + length,
            prefix,
            name,
            len(said),
            said,
            size,
            payload,
        )
        self._last = end

    def _put(self, frame):
        # Put another frame there.
        last = self._last
        self._last = end = self._fitting(last, last + len(frame))
        self._out[last:end] = frame

    def _ask(self, next):
        # An ack is a sign of life; only if none is due is there something to ask.
        if next and not self._full:
            self._pack(_TOPIC, b"ping", b"")

    def _is_answered(self, number):
        # Whether a message was acknowledged.
        return (self._ping - number) % _LAST >= (self._ping - self._pong) % _LAST

    @property
    def _full(self):
        # Whether no message may be sent before there is an ack (R26).
        return self.up and (self._ping - self._pong) % _LAST >= self._most

    def _renumber(self, buf, start):
        # A message that is kept in ``buf`` is sent: under the next number of this connection.
        self._ping = number = self._ping % _LAST + 1
        buf[start + 1] = number >> 8
        buf[start + 2] = number & 0xFF

    def _flush(self):
        # A message that is beyond the window waits for an ack, under the number that it has.
        if self._last and not self._first and self.up:
            if (self._ping - self._pong) % _LAST > self._most:
                return False
        return Link._flush(self)

    def _step(self):
        count = Link._step(self)
        self._say_ack()
        return count

    def _say_ack(self):
        # What came is acknowledged together (R28, R29): all that was read at once, but only what
        # came before the first message that somebody still works on.
        number = self._heard
        if self._open:
            number = self._open[0] - 1 & 0xFFFF or (self._acked and _LAST)
        if number != self._acked and self.up and self._flush():
            self._acked = number
            pack_into(">BBBH", self._out, 0, _EXTENSION, _ACKS, 2, number)
            self._last = 5
            part = self._part
            self._part = self._ack_part
            self._flush()
            self._part = part

    def _refuse(self, word, text):
        # Say why before the link is given up (A25).
        if self._flush():
            try:
                self._put(_framed(_ERROR, encoded(text)))
                self._flush()
            except (LinkError, ValueError):
                pass
        self._fail(word, text)

    # ---- what comes ----

    def _drop(self, error, ms):
        self._ping = 0  # the last number that was sent
        self._heard = self._seen = (
            0  # the last that came, and how many of those before it are known
        )
        self._acked = 0  # the last that was acknowledged; -1: it has to be said again
        self._open = []  # those that came and are not finished with
        self._more = 0  # whether the last message frame is to be continued
        self._rest = -1  # flags and number of a message of which the payload's length is to come
        Link._drop(self, error, ms)

    def _take(self):
        buf = self._buf
        handled = 0
        while True:
            start = self._start
            have = self._end
            if start >= have:
                return handled
            flags = buf[start]
            rest = self._rest
            first = stop = 0
            if rest >= 0:
                flags = rest >> 16
                at = start
            kind = flags & ~_LARGE
            if self._greeted < 2 and kind != _ERROR:
                if not self._reply(start, have):
                    return handled
                continue
            if not kind & ~_CONTINUED:
                kind = 0
            if rest >= 0:
                pass
            elif not kind:
                first = start + 4
                at = first
                if have >= at:
                    stop = first + buf[start + 3]
                    at = stop + 2
                if have < at:
                    return handled
                rest = buf[start + 1] << 8 | buf[start + 2]
                at += buf[stop] << 8 | buf[stop + 1]
                if at + 4 - start > self.rx_size:
                    # Its properties do not fit; it will be skipped.
                    self._start = at
                    self._rest = flags << 16 | rest
                    continue
            elif kind == _EXTENSION:
                at = start + 2
                if have >= at and not 0 < buf[start + 1] <= self._indexes:
                    self._refuse("wire", "extension %d" % buf[start + 1])
            elif kind == _COMMAND or kind == _ERROR:
                at = start + 1
            else:
                self._refuse("wire", "flags %d" % flags)
            body = at + 4 if flags & _LARGE else at + 1
            if have < body:
                return handled
            size = buf[at]
            if flags & _LARGE:
                # By shifts, as unpack allocates; the top byte first: 2**30 would be a long integer.
                if size:
                    self._refuse("wire", "above 16 MiB")
                size = buf[at + 1] << 16 | buf[at + 2] << 8 | buf[at + 3]
            end = body + size
            fits = end - start <= self.rx_size
            if end > have and fits and self._rest < 0:
                return handled
            self._start = end  # what lies beyond the end will not be looked at
            if not kind:
                fits = fits and self._rest < 0
                self._rest = -1
                self._where = self._view
                self._at = stop + 2
                self._until = at
                number = rest & 0xFFFF
                if self._hear(number):
                    still = self._open
                    still.append(number)
                    try:
                        handled += self._message(flags & _CONTINUED, fits, first, stop, body, end)
                    finally:
                        still.remove(number)
            elif kind == _ERROR:
                self._fail("refused", _text(bytes(self._view[body : min(end, have)])))
            elif kind == _EXTENSION and buf[start + 1] == _ACKS:
                if size != 2:
                    self._refuse("wire", "ack of %d bytes" % size)
                number = buf[body] << 8 | buf[body + 1]
                # One that acknowledges nothing is ignored.
                if not self._is_answered(number):
                    self._pong = number
                    handled += 1

    def _hear(self, number):
        # Note a number that is to be acknowledged; False if it came before, and comes again.
        behind = (self._heard - number) % 65536
        if number > self._heard:
            behind -= 1  # 0 is no number
        if behind < self._seen or not number:
            self._acked = -1
            if number:
                return False
        self._heard = number
        if self._seen < self._most:
            self._seen += 1
        return True

    def _message(self, more, fits, first, stop, body, end):
        # What is in fragments (CONTINUED) is FragmentClient's.
        if more or self._more:
            self._more = more
            fits = False
        if fits:
            return self._dispatch(self._buf, self._view, first, stop, body, end)
        self.discarded += not more
        return 0

    def _dispatch(self, buf, data, first, stop, body, end):
        # Call every handler of one message, whatever the others do; return how many there were.
        is_queue = stop - first <= len(_TOPIC) or not buf.startswith(_TOPIC, first)
        if not is_queue:
            first += len(_TOPIC)
        count = 0
        failure = payload = None
        for _, name, queued, handler, raw, levels in self._standing:
            if queued != is_queue:
                continue
            if len(name) != stop - first or not buf.startswith(name, first):
                if queued or (not levels and buf.find(b"*", first, stop) < 0):
                    continue
                import umotemq.topic  # `from` would make a tuple on the heap, for each message

                if not umotemq.topic.match(levels or name, buf, first, stop, raw):
                    continue
            count += 1
            try:
                if raw:
                    handler(data, first, stop, body, end)
                    continue
                if payload is None:
                    payload = bytes(data[body:end])
                    buf = bytes(data[first:stop])
                    stop -= first
                    first = 0
                handler(buf, payload)
            except Exception as error:
                failure = failure or error
        self.discarded += not count
        if failure:
            raise failure
        return count

    def _reply(self, start, have):
        # The peer's answer to what we said first; True once all of it is here.
        buf = self._buf
        if buf[start] != 1:
            self._refuse("wire", "version %d" % buf[start])
        at = start + 4
        if have < at:
            return False
        at += buf[start + 3]
        lists = []  # what it requires, and what it suggests
        for _ in range(2):
            if have < at + 2:
                return False
            size = buf[at] << 8 | buf[at + 1]
            lists.append((at + 2, at + 2 + size))
            at += 2 + size
            if at + 2 - start > self.rx_size:
                self._refuse("wire", "handshake of %d B" % (at - start))
        if have < at:
            return False
        ours = [each.partition(b":")[0] for each in self._others.split(b";")] + [b"pub-sub"]
        for first, last in lists:
            for each in bytes(self._view[first:last]).split(b";"):
                name, _, said = each.partition(b":")
                if name == b"batch-ack":
                    self._agree(said)
                elif name and first == lists[0][0] and name not in ours:
                    self._refuse("refused", "unsupported extension: " + _text(name))
        self._start = at
        self._pong = 0
        self._greeted = 2
        return True

    def _agree(self, said):
        # The smaller window holds; the peer's name for it is one of several (A7).
        for each in said.replace(b":", b"=").split(b","):
            name, _, value = each.partition(b"=")
            if name in _WINDOW_NAMES and value.isdigit():
                self._most = max(1, min(self._most, int(value[:6])))  # of any length


def _framed(kind, text):
    # Return a frame that has nothing but its text.
    size = len(text)
    if size > 255:
        return bytes((kind | _LARGE, 0, 0, size >> 8, size & 0xFF)) + text
    return bytes((kind, size)) + text


def _quoted(text):
    # URL-encode all but letters, digits and -_.~ (A22).
    out = b""
    for byte in text:
        one = bytes((byte,))
        plain = one.isalpha() or one.isdigit() or one in b"-_.~"
        out += one if plain else b"%%%02X" % byte
    return out


def _text(said):
    # What a peer says, in an error.
    try:
        return said.decode()
    except ValueError:
        return repr(said)
