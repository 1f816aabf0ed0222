"""Stand-in for a board's module machine, as far as examples use it, on computers that have none."""

import _thread
import io
import select
import socket
import sys
import time


def lightsleep(ms):
    print("lightsleep", ms)
    time.sleep(0.2)


def deepsleep(ms):
    print("deepsleep", ms)
    sys.exit()


class Pin:
    def __init__(self, number):
        pass


class UART(io.IOBase):
    """The serial line is a TCP connection: ``id`` is its port."""

    def __init__(self, id, baud, rxbuf, txbuf, timeout, tx, rx):
        self._socket = socket.socket()
        self._socket.connect(socket.getaddrinfo("127.0.0.1", id)[0][-1])
        self._socket.setblocking(False)
        self._came = b""

    def any(self):
        try:
            self._came += self._socket.recv(256)
        except OSError:
            pass  # nothing came
        return len(self._came)

    def readinto(self, buffer, count):
        data = self.read(count)
        buffer[: len(data)] = data
        return len(data)

    def read(self, count):
        data = self._came[:count]
        self._came = self._came[count:]
        return data

    def write(self, data):
        return self._socket.send(data)

    def ioctl(self, request, what):
        if request != 3:
            return -1
        return what & (select.POLLOUT | (select.POLLIN if self.any() else 0))


class WDT:
    """Says once that it would reset the board."""

    def __init__(self, timeout):
        self._timeout_s = timeout / 1000
        self.feed()
        _thread.start_new_thread(self._watch, ())

    def feed(self):
        self._fed = time.time()

    def _watch(self):
        while time.time() - self._fed < self._timeout_s:
            time.sleep(0.05)
        print("watchdog: reset")
