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
