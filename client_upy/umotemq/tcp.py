"""TCP as a transport."""

import sys
from errno import EINPROGRESS

from micropython import const

_STREAM = const(1)  # SOCK_STREAM, everywhere


class Tcp:
    """``host:port``. Looking up a name blocks on MicroPython: give an IP address if you can."""

    def __init__(self, host, port):
        self.where = (host, port)
        self._left = []

    def open(self):
        """Return a stream that is being connected, to the host's next address.

        Raises OSError if none of them can be reached.
        """
        # Here, as this module may come with others to a board that has no network.
        if sys.implementation.name != "micropython":
            from umotemq._cpython import Sockets as socket
        else:
            import socket
        if not self._left:
            self._left = socket.getaddrinfo(*self.where, 0, _STREAM)
        address = self._left.pop(0)
        sock = socket.socket(address[0])
        # For its whole life: on ESP32 and RP2 setblocking(True) also clears a timeout.
        sock.setblocking(False)
        try:
            sock.connect(address[-1])
        except OSError as error:
            if error.errno != EINPROGRESS:
                sock.close()
                if self._left:
                    return self.open()
                raise
        # TCP_NODELAY, by number: the unix port lacks the names. Without it, the second of two
        # messages waits for the first's acknowledgement, some 40 ms.
        sock.setsockopt(6, 1, 1)
        return sock
