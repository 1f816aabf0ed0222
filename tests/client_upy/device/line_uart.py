"""A UART whose far end is a TCP port: what the host puts there is a serial line or its bridge.

Its driver has a receive buffer and says how much is in it, as machine.UART does.
"""

import io
import select
import socket
import sys

_SIZE = 512


class LineUart(io.IOBase):
    """``id`` is the port on 127.0.0.1."""

    def __init__(self, id, baud, rxbuf, txbuf, timeout):
        address = socket.getaddrinfo("127.0.0.1", id)[0][-1]
        self._socket = socket.socket()
        self._socket.setsockopt(1, 7, 4096)  # SO_SNDBUF: a UART's buffers are small
        self._socket.connect(address)
        self._socket.setblocking(False)
        self._incoming = b""

    def any(self):
        if len(self._incoming) < _SIZE:
            try:
                self._incoming += self._socket.recv(_SIZE)
            except OSError:
                pass  # nothing has come; or the line is cut, which a UART cannot see
        return len(self._incoming)

    def read(self, count):
        data = self._incoming[:count]
        self._incoming = self._incoming[count:]
        return data

    def readinto(self, buffer, count):
        data = self.read(count)
        buffer[: len(data)] = data
        return len(data)

    def write(self, data):
        try:
            return self._socket.send(data)
        except OSError:
            return None

    def ioctl(self, request, what):
        if request != 3:
            return -1
        return what & (select.POLLOUT | (select.POLLIN if self.any() else 0))

    def deinit(self):
        self._socket.close()


class LineMachine:
    """The module ``machine``; ``install`` makes it what ``import machine`` gives."""

    def __init__(self):
        self.UART = LineUart
        self.Pin = None

    def install(self):
        sys.modules["machine"] = self
