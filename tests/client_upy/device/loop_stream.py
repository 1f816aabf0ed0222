"""A transport in memory whose peer sends back what it gets, without a byte of heap."""

_SIZE = 1024


class Loop:
    """``answer``: what the peer says to the first write, instead of an echo of it.

    ``is_deaf``: it never says anything.
    """

    pollable = None
    where = "loop"

    def __init__(self, answer=b"", is_deaf=False):
        self._answer = answer
        self._is_deaf = is_deaf
        self._held = bytearray(_SIZE)

    def open(self):
        self._first = self._answer
        self._count = 0  # bytes that wait to be read
        return self

    def write(self, data):
        if self._is_deaf:
            return len(data)
        if self._count + len(data) > _SIZE:
            return None
        if self._first:
            self._put(self._first)
            self._first = b""
        else:
            self._put(data)
        return len(data)

    def close(self):
        """There is nothing to close."""

    def _put(self, data):
        # Byte by byte: a slice would be an object.
        held = self._held
        start = self._count
        for i in range(len(data)):
            held[start + i] = data[i]
        self._count = start + len(data)

    def readinto(self, buffer):
        held = self._held
        count = min(self._count, len(buffer))
        for i in range(count):
            buffer[i] = held[i]
        left = self._count - count
        for i in range(left):
            held[i] = held[count + i]
        self._count = left
        return count or None


class Acknowledging(Loop):
    """A MicroMsg2 server that sends back each message that has a payload, and acknowledges it.

    With the client's number, which is also the server's: what is not sent back is no gap, as the
    client counts what it knows.
    """

    def open(self):
        self._said = bytearray(b"\x02\x01\x02\0\0")
        self._greetings = 0
        return Loop.open(self)

    def write(self, data):
        if data[0] == 1 and self._greetings < 2:
            self._greetings += 1
            if self._greetings == 1:
                self._put(b"\x01\0\0\0\0\0\0\0")
        elif data[0] == 0:
            said = self._said
            if self._count + len(data) + len(said) > _SIZE:
                return None
            said[3] = data[1]
            said[4] = data[2]
            self._put(said)
            if data[len(data) - 1]:
                self._put(data)
        return len(data)
