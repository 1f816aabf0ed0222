"""Messages that are kept while the link is down, in a fixed ring."""

from umotemq.link import LinkError


class Ring:
    """At most ``size`` bytes of whole messages (each takes two more), the option ``outage``.

    Full: the oldest give way, or with ``newest`` the new one does; ``dropped`` counts them.
    A message that the link took and then lost on its way is not in here.
    """

    def __init__(self, size, newest=False):
        self.newest = newest
        self.dropped = 0
        self.count = 0
        self._ring = bytearray(size)
        self._first = self._used = 0
        self._sending = False  # whether the oldest is in the transmit buffer, ...
        self._connection = 0  # ... of which connection

    def __len__(self):
        return self.count

    def put(self, message):
        """Keep a message, a buffer."""
        ring = self._ring
        need = len(message) + 2
        while self._used + need > len(ring):
            if self.newest or not self.count:
                self.dropped += 1
                return
            self._remove()
            self._sending = False
            self.dropped += 1
        at = self._first + self._used
        for i in range(-2, need - 2):
            byte = message[i] if i >= 0 else need - 2 >> 8 * (-1 - i) & 0xFF
            ring[at % len(ring)] = byte
            at += 1
        self._used += need
        self.count += 1

    def get(self, into):
        """Copy the oldest message to the start of ``into``; return its size in bytes."""
        ring = self._ring
        size = self._size()
        at = self._first + 2
        for i in range(size):
            into[i] = ring[(at + i) % len(ring)]
        self._sending = True
        return size

    def sent(self):
        """The transmit buffer was written: what came from here may go."""
        if self._sending:
            self._sending = False
            self._remove()

    def lost(self):
        """The link was lost: what was in the transmit buffer is still here."""
        self._sending = False

    # ---- for clients ----

    def send(self, client, *message):
        """Have ``client`` pack a message; it is sent behind those that are here.

        Raises ValueError if it does not fit the client's ``tx_size``.
        """
        last = client._last
        out = client._out
        # Nowhere else is room while something is on its way.
        client._out = packed = bytearray(client.tx_size)
        client._last = 0
        try:
            client._pack(*message)
            size = client._last
        finally:
            client._out = out
            client._last = last
        self.put(memoryview(packed)[:size])
        if client.up:
            try:
                self.drain(client)
                client._push()
                self.drain(client)
            except LinkError:
                pass  # it is here

    def drain(self, client):
        """Send what is here, as far as the stream of ``client`` takes it."""
        while client.up:
            if client.connects != self._connection:
                self._connection = client.connects
                self.lost()
            if client._last:
                client._flush()
                if client._last:
                    return
            self.sent()
            if not self.count:
                return
            client._last = self.get(client._out)

    def _size(self):
        ring = self._ring
        return ring[self._first] << 8 | ring[(self._first + 1) % len(ring)]

    def _remove(self):
        size = self._size() + 2
        self._first = (self._first + size) % len(self._ring)
        self._used -= size
        self.count -= 1
