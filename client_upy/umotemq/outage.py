"""Messages that are kept: while the link is down, and with ``confirm`` until the broker's answer.

    ring = Ring(2048)  # in RAM
    ring = Ring(1024, store=FileStore("/outage"))  # while the link is down, in flash
    client = FmqpClient(transport, outage=ring)
    client.publish("meter", "1", confirm=True)

What the link has not taken yet waits in the ring; what was published with ``confirm`` stays until
the broker has answered: FMQP's by the echo of a ping that was sent behind it, LightMQ's by its
SENDRESP, MicroMsg2's by its ack. A link that is lost sends what is left once more: each message
arrives in order, and at least once; it may arrive twice.

For a protocol that acknowledges messages itself: its client has a method ``_renumber``, which gives
a frame that is sent from here a new number. It calls ``answered`` for each acknowledgement; or, if
one is for all up to its number, it has ``_full``, which says whether no message may be sent now.

Why so long: the ring in RAM and its store are one queue.
"""

from struct import pack_into
from time import ticks_diff, ticks_ms, time

from micropython import const

from umotemq.link import LinkError

_HEAD = const(11)  # bytes before each message: sequence number, when it came, size, state
_SIZE = const(8)  # where they are
_STATE = const(10)
_CONFIRM = const(1)  # a state: it waits for the broker's answer
_ANSWERED = const(2)
_LEAST = const(17)  # bytes of the shortest message of any protocol, and what is before it


class Ring:
    """At most ``size`` bytes of whole messages (each takes eleven more), the option ``outage``.

    Full: the oldest give way, or with ``newest`` the new one does; ``dropped`` counts them, and
    ``count`` those that are kept.

    ``store``: an umotemq.store.FileStore or RtcStore; messages are there as long as the link is
    down, those that it left unconfirmed too, and those for which the ring has no room. With
    ``always`` all that are to be confirmed are, before they are sent: then not even a power cut
    loses one. ``stamp(payload, sequence, seconds)``: returns the payload that is sent instead;
    numbers go on after a reset if there is a store.
    """

    def __init__(self, size, newest=False, store=None, always=False, stamp=None):
        if size < _LEAST:
            from umotemq.mistakes import throw

            throw("size", size, _LEAST)
        self.newest = newest
        self.store = store
        self.stamp = stamp
        self.sequence = 1 + (store.last if store else 0)  # the next message's number
        self._always = always
        self._lost = 0
        self._buf = bytearray(size)
        self._view = memoryview(self._buf)
        self._size = None  # of messages for which the format is
        self.register = self.register  # each publication asks, and a class is slow to tell
        self._clear()
        self._loaded = self._done = 0  # the newest that came into the ring, and that went
        self._asked = self._number = 0  # how many records the ping of this number confirms
        self._ahead = None  # what was read of the store, and found no room here yet
        self._writing = 0  # bytes of the message that is being written, and kept nowhere else
        self._out = None  # the buffer where it is

    def __getattr__(self, name):
        # No properties: with one in a class, MicroPython looks for others whenever an attribute is
        # set, and that would cost a message more than to be copied.
        if name == "count":  # how many messages are kept
            return len(self)
        if name == "dropped":  # how many gave way
            return self._lost + (self.store.dropped if self.store else 0)
        raise AttributeError(name)

    def __len__(self):
        store = self.store
        if not store:
            return self._here
        only_here = 0
        at = self._first
        for _ in range(self._here):
            at = _at(self._buf, at)
            only_here += _number(self._buf, at) > store.last
            at += _HEAD + _size(self._buf, at)
        return store.count + only_here

    # ---- for clients ----

    def send(self, client, confirm, kind, name, data):
        """Have ``client`` pack a message; it is sent behind those that are here.

        Raises ValueError if it does not fit the client's ``tx_size``, or nothing can confirm it.
        """
        if confirm and not hasattr(client, "_renumber") and not client.name:
            raise ValueError("confirm needs a name")
        if self.stamp:
            data = self.stamp(data, self.sequence, int(time()))
        if confirm and client._blocking:
            self._make_room(client)
        if client.up and client._last:
            try:
                client._push()
            except LinkError:
                pass  # it is kept
        number = client._ping
        if client._last:  # nowhere else is room while something is on its way
            out = client._out
            last = client._last
            client._out = packed = bytearray(client.tx_size)
            client._last = 0
            try:
                client._pack(kind, name, data)
                size = client._last
            finally:
                client._out = out
                client._last = last
        else:
            client._pack(kind, name, data)
            size = client._last
            client._last = 0
            packed = client._out
            if client.up and not self._unsent and not _full(client) and not self._is_behind():
                # Nothing comes before it.
                if not confirm:
                    self.sequence += 1
                elif self._put(packed, size, _CONFIRM):
                    self._unsent = 0
                    self._measure()
                else:
                    size = 0  # the store has it
                if size:
                    client._last = size
                    self.write(client, confirm, None)
                    return
        client._ping = number  # it has not gone under the next one
        if size:
            self._put(packed, size, _CONFIRM if confirm else 0, client.up)
        if client.up:
            try:
                self.drain(client)
                client._push()
                self.drain(client)
            except LinkError:
                pass  # it is here

    def register(self, packet, size, confirm):
        """Say whether the message ``packet`` may be written now; with ``confirm``, keep it first.

        Not if something comes before it; nor, to be kept, if it is not as long as the last one
        here, or there is no room behind that: then the client has to ``send`` it.
        """
        if not confirm:
            return not (self._unsent or self.stamp or (self.store and self._is_behind()))
        end = self._end + _HEAD + size
        if end > self._limit or size != self._size:
            return False
        # The last four bytes of its head: one of the time, the size, the state. A number and a time
        # are for a store, and for stamps.
        pack_into(self._brief, self._buf, end - size - 4, size << 8 | _CONFIRM, packet)
        self._end = end
        self._here += 1
        return True

    def write(self, client, confirm, sent):
        """Have the message written that is in the transmit buffer.

        ``sent``: how many of its bytes went, or the OSError that is why none did. If the link
        fails, it stays here, also if it only waits now, as under umotemq.aio.
        """
        self._writing = 0 if confirm else client._last
        self._out = client._out
        try:
            if isinstance(sent, OSError):
                client._fail(None, sent)
            client._first = sent or 0
            client._push()
        except LinkError:
            pass

    def drain(self, client):
        """Send what is here, as far as the stream of ``client`` takes it, and ask for answers."""
        while client.up:
            if client._last:
                client._flush()
                if client._last:
                    return
            self._settle(client)
            if _full(client) or (not self._unsent and not self._load()):
                break
            self._send_next(client)
        if client.up and self._here and not self._asked and not hasattr(client, "_renumber"):
            # Its echo comes after the broker has processed all that is here.
            client._ask(True)
            self._asked = self._here
            self._number = client._ping
            client._flush()

    def is_full(self, client):
        """Say whether the next message may take the place of one that is not confirmed."""
        return self._here > 0 and not self.store and self._place(client.tx_size) is None

    async def wait_for_room(self, link):
        """Wait for answers to what is here, under asyncio; if none come, the oldest gives way."""
        client = link.client
        start = ticks_ms()
        try:
            while self.is_full(client) and ticks_diff(ticks_ms(), start) < client.timeout_ms:
                await link._await(4, True)  # as above
                self.drain(client)
        except LinkError:
            pass

    def answered(self, number):
        """Note that the broker has answered the message to which the client gave ``number``."""
        buf = self._buf
        at = self._first
        for _ in range(self._here - self._unsent):
            at = _at(self._buf, at)
            start = at + _HEAD + 3
            if buf[at + _STATE] & _CONFIRM and buf[start] << 8 | buf[start + 1] == number:
                if buf[at + _STATE] & _ANSWERED:
                    return False
                buf[at + _STATE] |= _ANSWERED
                return True
            at += _HEAD + _size(buf, at)
        return False

    def lost(self, waiting):
        """The link was lost: what was not answered is sent again on the next one.

        ``waiting``: how many bytes were in the transmit buffer.
        """
        self._asked = self._limit = 0
        self._unsent = self._here
        self._next = self._first
        if self.store and self._spill():
            # The store gives them again, from the oldest on.
            self._clear()
            self._ahead = None
            self._loaded = self._done
        if waiting and waiting == self._writing:
            # Now, as what ``on_down`` publishes is packed where it stands. What was half sent is
            # sent whole again.
            self._put(self._out, waiting, 0, False)
        self._writing = 0

    # ---- inside ----

    def _clear(self):
        self._limit = 0  # where the room behind ``_end`` ends, for ``register``
        self._here = self._unsent = 0  # records here, and how many of them were not sent yet
        self._first = self._next = self._end = 0  # of the oldest, of the first unsent, of the room

    def _is_behind(self):
        # Whether the store has messages that were not here yet, and so come before a new one.
        return self.store and self.store.last > self._loaded and self.store.count

    def _make_room(self, client):
        # Wait for answers, while there are any to come.
        left = client.timeout_ms
        while client.up and self.is_full(client) and left > 0:
            start = ticks_ms()
            client.poll(min(left, 4))  # what the stream takes makes room, and nothing tells
            left -= ticks_diff(ticks_ms(), start)

    def _put(self, packed, size, state, up=True):
        # Keep a new message; true if it is in the ring, and not only in the store.
        store = self.store
        if store:
            if not up or self._is_behind() or self._place(size) is None:
                if self._spill():
                    self._write(self.sequence, int(time()), state, packed, size)
                    self.sequence += 1
                return False
            if self._always and state:
                self._write(self.sequence, int(time()), state, packed, size)
        return self._keep(packed, size, state, self.sequence)

    def _write(self, sequence, seconds, state, packed, size):
        # Add a message to the store; true if it is there.
        try:
            self.store.append(sequence, seconds, state, memoryview(packed)[:size])
            return True
        except OSError:  # no room in flash, or a broken one
            self._lost += 1
            return False

    def _keep(self, packed, size, state, sequence):
        # Keep a message in the ring; true if it is there.
        at = self._place(size)
        while at is None:
            if not self._here:
                self._lost += 1
                return False
            # One that was sent, and waits for no answer, is no loss.
            oldest = _at(self._buf, self._first)
            if self._unsent == self._here or self._buf[oldest + _STATE] & _CONFIRM:
                self._lost += 1
                if self.newest:
                    return False
            self._remove()
            at = self._place(size)
        buf = self._buf
        if at != self._end:  # from the start again
            end = self._end + _SIZE
            if end + 2 <= len(buf):
                buf[end] = buf[end + 1] = 255
        start = at + _HEAD
        if not self._unsent:
            self._next = at
        self._end = start + size
        if size != self._size:
            # To assign a slice of a bytearray would move all that is behind it, and take heap.
            format = ">IIHB%ds" % size
            self._brief = ">I%ds" % size
            self._format = format
            self._size = size  # when there was heap for both
        pack_into(self._format, buf, at, sequence, ticks_ms(), size, state, packed)
        self._here += 1
        self._unsent += 1
        if self._loaded < sequence:
            self._loaded = sequence
        if sequence >= self.sequence:
            self.sequence = sequence + 1
        self._limit = 0  # it is not sent yet
        return True

    def _measure(self):
        # How far messages may go behind the last one, which was sent. Not with a store or stamps:
        # these want more of each.
        self._limit = self._first if self._here and self._end <= self._first else len(self._buf)
        if self.store or self.stamp:
            self._limit = 0

    def _place(self, size):
        # Return where a message can be put, None if there is no room.
        need = _HEAD + size
        end = self._end
        if not self._here:
            self._clear()
            return 0 if need <= len(self._buf) else None
        if end <= self._first:
            return end if end + need <= self._first else None
        if end + need <= len(self._buf):
            return end
        return 0 if need <= self._first else None

    def _remove(self):
        # The oldest goes; return its number.
        buf = self._buf
        at = _at(self._buf, self._first)
        self._first = at + _HEAD + _size(buf, at)
        if self._unsent == self._here:
            self._unsent -= 1
            self._next = self._first
        self._here -= 1
        if self._asked:
            self._asked -= 1
        if self.store:  # else it may have none, and what stands there may be a long integer
            self._done = _number(buf, at)
        return self._done

    def _send_next(self, client):
        at = _at(self._buf, self._next)
        size = _size(self._buf, at)
        start = at + _HEAD
        if hasattr(client, "_renumber"):
            client._renumber(self._buf, start)
        self._writing = 0
        client._out[:size] = self._view[start : start + size]
        client._last = size
        self._next = start + size
        self._unsent -= 1

    def _settle(self, client):
        # What was answered may go; and what was sent, if it waits for no answer.
        confirmed = 0
        if not self._asked and _full(client) is not None:
            # An ack of what was sent last is one of all that was sent.
            self._asked = self._here - self._unsent
            self._number = client._ping
        if self._asked and _is_answered(client, self._number):
            confirmed = self._asked
            self._asked = 0
        done = 0
        if confirmed and confirmed == self._here:
            # All of it at once.
            done = self._done = self._loaded
            self._here = self._first = self._end = 0
        while self._here != self._unsent:
            state = self._buf[_at(self._buf, self._first) + _STATE]
            if state & _CONFIRM and not confirmed and not state & _ANSWERED:
                break
            if confirmed:
                confirmed -= 1
            done = self._remove()
        if self._limit:
            self._measure()
        if done and self.store and done <= self.store.last:
            try:
                self.store.confirm(done)
            except OSError:
                pass  # it comes once more after a reset

    def _spill(self):
        # Write what is only here into the store; true if all of it is there now.
        buf = self._buf
        at = self._first
        for _ in range(self._here):
            at = _at(self._buf, at)
            size = _size(buf, at)
            start = at + _HEAD
            sequence = _number(buf, at)
            if sequence > self.store.last:
                when = int(time()) - ticks_diff(ticks_ms(), _number(buf, at + 4)) // 1000
                view = self._view[start : start + size]
                if not self._write(sequence, when, buf[at + _STATE] & _CONFIRM, view, size):
                    return False
            at = start + size
        return True

    def _load(self):
        # Take the next message of the store into the ring; true if there was one, and room.
        if not self._is_behind():
            return False
        found = self._ahead or self.store.read(self._loaded)
        self._ahead = None
        if found is None:
            self._loaded = self.store.last
            return False
        sequence, state, message = found
        if self._here and self._place(len(message)) is None:
            self._ahead = found
            return False
        return self._keep(message, len(message), state, sequence)


def _full(client):
    # None: it has no window.
    return getattr(client, "_full", None)


def _is_answered(client, number):
    # By acks, which it knows; or by pings.
    if hasattr(client, "_full"):
        return client._is_answered(number)
    import umotemq.ping  # `from` would make a tuple on the heap, for each message

    return umotemq.ping.is_answered(client, number)


def _number(buf, at):
    return buf[at] << 24 | buf[at + 1] << 16 | buf[at + 2] << 8 | buf[at + 3]


def _size(buf, at):
    return buf[at + _SIZE] << 8 | buf[at + _SIZE + 1]


def _at(buf, at):
    # Where the record is that comes next: the end of the buffer may be empty.
    if at + _SIZE + 2 > len(buf) or _size(buf, at) == 65535:
        return 0
    return at
