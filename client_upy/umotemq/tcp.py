"""TCP as a transport."""

import errno
import socket

TCP_NODELAY = getattr(socket, "TCP_NODELAY", 1)  # lwIP's number is 64; the unix port has none


class Tcp:
    """``host:port``. Looking up a name blocks on MicroPython: give an IP address if you can."""

    _addresses = None  # those that are left to be tried

    def __init__(self, host, port):
        self.where = (host, port)

    def open(self):
        """Return a stream that is being connected, to the host's next address.

        Raises OSError if none of them can be reached.
        """
        if not self._addresses:
            self._addresses = socket.getaddrinfo(*self.where, 0, 1)  # 1: SOCK_STREAM, everywhere
        address = self._addresses.pop(0)
        sock = socket.socket(address[0])
        # For its whole life: on ESP32 and RP2 setblocking(True) also clears a timeout.
        sock.setblocking(False)
        try:
            sock.connect(address[-1])
        except OSError as error:
            if error.errno != errno.EINPROGRESS:
                sock.close()
                if self._addresses:
                    return self.open()
                raise
        # Without it, the second of two messages waits for the first's acknowledgement, some 40 ms.
        sock.setsockopt(6, TCP_NODELAY, 1)
        return sock
