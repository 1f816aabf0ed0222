"""The module ``socket`` as lwIP ports have it (extmod/modlwip.c of 1.25), over the host's.

Its constants, its errors, its partial writes. What is said through it is real; the numbers of
options, and what a socket may be asked while it is being connected, are a Pico W's.
"""

import errno
import io
import select

from usocket import getaddrinfo  # noqa: F401 - clients look their names up here
from usocket import socket as _socket

AF_INET = 2
SOCK_STREAM = 1
IPPROTO_IP = 0
IPPROTO_TCP = 6
TCP_NODELAY = 0x40  # TF_NODELAY of the pcb, where other stacks have a 1
_KNOWN = (4, 8, 20, 0x20, TCP_NODELAY, 0x400)
_SEND_BUFFER = 800  # bytes that one write takes at most
_POLL, _CLOSE = 3, 4
_READ, _WRITE, _ERROR, _HANGUP, _INVALID = 1, 4, 8, 16, 32
_NEW, _CONNECTING, _CONNECTED, _PEER_CLOSED = 0, 1, 2, 3
_BADF = -16

options = []  # (level, option, value) of every setsockopt, for whoever looks


class socket(io.IOBase):
    def __init__(self, af=AF_INET, type=SOCK_STREAM, proto=0):
        if af != AF_INET or type != SOCK_STREAM:
            raise OSError(errno.EINVAL)
        self._inner = _socket(af, type)
        self._inner.setblocking(False)
        self._poll = select.poll()
        self._state = _NEW
        self._queue = b""  # what was written while it was being connected
        self._timeout = -1

    def setblocking(self, flag):
        self._timeout = -1 if flag else 0

    def setsockopt(self, level, option, value):
        if option not in _KNOWN:
            print("Warning: lwip.setsockopt() not implemented")
        options.append((level, option, value))
        if option == TCP_NODELAY:
            self._inner.setsockopt(IPPROTO_TCP, 1, value)

    def connect(self, address):
        if self._state == _CONNECTED:
            raise OSError(errno.EISCONN)
        if self._state != _NEW:
            raise OSError(errno.EALREADY)
        if self._timeout != 0:
            raise OSError(errno.ETIMEDOUT)  # nobody here wants to wait
        self._state = _CONNECTING
        try:
            self._inner.connect(address)
        except OSError as error:
            if error.errno != errno.EINPROGRESS:
                self._state = _NEW
                raise
        self._poll.register(self._inner, _READ | _WRITE)
        raise OSError(errno.EINPROGRESS)

    def readinto(self, buffer, size=-1):
        self._look()
        if self._state == _CONNECTING:
            return None  # EAGAIN
        if self._state == _NEW:
            raise OSError(errno.ENOTCONN)
        try:
            count = self._inner.readinto(buffer)
        except OSError as error:
            self._fail(error.errno)
        if count == 0:
            self._state = _PEER_CLOSED
        return count

    def write(self, data):
        self._look()
        if self._state == _NEW or self._state == _PEER_CLOSED:
            raise OSError(errno.ENOTCONN)
        data = bytes(data[:_SEND_BUFFER])
        if self._state == _CONNECTING:
            room = _SEND_BUFFER - len(self._queue)
            self._queue += data[:room]
            return min(room, len(data)) or None
        try:
            return self._inner.write(data)
        except OSError as error:
            self._fail(error.errno)

    def close(self):
        if self._state != _BADF:
            self._state = _BADF
            self._inner.close()

    def ioctl(self, request, what):
        if request == _CLOSE:
            self.close()
            return 0
        if request != _POLL:
            return -1
        if self._state == _BADF:
            return _INVALID
        if self._state == _NEW:
            return _HANGUP
        found = self._polled()
        if self._state == _CONNECTING:
            return found & (_ERROR | _HANGUP)
        if self._state == _PEER_CLOSED:
            return what
        return found & (what | _ERROR | _HANGUP)

    def _polled(self):
        found = 0
        for _, event in self._poll.ipoll(0):
            found |= event
        if self._state == _CONNECTING and found & (_WRITE | _ERROR | _HANGUP):
            self._look()
        return found

    def _look(self):
        # Has the connection been made, or refused?
        if self._state == _BADF:
            raise OSError(errno.EBADF)
        if self._state != _CONNECTING:
            return
        found = 0
        for _, event in self._poll.ipoll(0):
            found |= event
        if found & (_ERROR | _HANGUP):
            self._fail(errno.ECONNREFUSED if not found & _READ else errno.ECONNRESET)
        if found & _WRITE:
            self._state = _CONNECTED
            if self._queue:
                self._inner.write(self._queue)
                self._queue = b""

    def _fail(self, number):
        # lwIP has freed its side of it by then: the next call finds nothing.
        self.close()
        raise OSError(number or errno.ECONNABORTED)
