"""TCP as a transport."""

import socket
from errno import EINPROGRESS


class Tcp:
    """``host:port``. Looking up a name blocks on MicroPython: give an IP address if you can.

    ``nodelay`` False: what is sent in quick succession shares segments; the second of two
    messages may then wait for the first's acknowledgement, some 40 ms.
    """

    nodelay = True

    def __init__(self, host, port):
        self.where = "%s:%d" % (host, port)
        self._address = (host, port, 0, socket.SOCK_STREAM)
        self._addresses = []

    def open(self):
        """Return a stream that is being connected, to the host's next address.

        Raises OSError if none of them can be reached.
        """
        failed = None
        while True:
            if not self._addresses:
                if failed:
                    raise failed
                self._addresses = list(socket.getaddrinfo(*self._address))
            address = self._addresses.pop(0)
            sock = socket.socket(address[0], socket.SOCK_STREAM)
            # For its whole life: on ESP32 and RP2 setblocking(True) also clears a timeout.
            sock.setblocking(False)
            try:
                sock.connect(address[-1])
            except OSError as error:
                if error.errno != EINPROGRESS:
                    sock.close()
                    failed = error
                    continue
            try:
                # TCP_NODELAY, by number: the unix port lacks the names
                sock.setsockopt(6, 1, int(self.nodelay))
            except OSError:
                pass  # a port without the option: slower, not wrong
            if hasattr(sock, "readinto"):
                return sock
            from umotemq._cpython import SocketStream

            return SocketStream(sock)
