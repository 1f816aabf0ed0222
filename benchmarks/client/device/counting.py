"""A socket that counts how often it is asked: each call is a trip into the network stack."""


class Counting:
    """Wraps a socket; ``reads`` and ``writes`` count the calls, ``got`` the reads with bytes."""

    def __init__(self, sock):
        self.pollable = sock
        self.reads = self.writes = self.got = 0
        self._sock = sock
        self.close = sock.close
        self.setblocking = sock.setblocking

    def readinto(self, buffer, *size):
        self.reads += 1
        count = self._sock.readinto(buffer, *size)
        self.got += bool(count)
        return count

    def read(self, *size):
        self.reads += 1
        return self._sock.read(*size)

    def write(self, data, *size):
        self.writes += 1
        return self._sock.write(data, *size)
