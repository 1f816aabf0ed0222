"""A TCP connection as a stream for the clients: non-blocking for its whole life."""

import errno
import select
import socket
import sys

from umotemq.link import LinkError, LinkTimeout

if sys.implementation.name == "micropython":
    from select import poll as Poller

    def SocketStream(sock):
        # MicroPython's sockets are streams already.
        return sock

else:
    from umotemq._cpython import Poller, SocketStream


def connect(host: str, port: int, timeout_ms: int = 5000):
    """Return a stream connected to ``host:port`` within ``timeout_ms``.

    Raises LinkTimeout if nothing answers in time, LinkError if the connection is refused or the
    name is unknown. Looking up a name blocks on MicroPython and has no deadline there: give an IP
    address, or bring the network up first.
    """
    where = "%s:%d" % (host, port)
    try:
        address = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)[0]
    except OSError as error:
        raise LinkError("connect", "cannot look up " + where + ": " + str(error))
    sock = socket.socket(address[0], socket.SOCK_STREAM)
    try:
        # Never blocking again: on ESP32 and RP2 setblocking(True) also clears the timeout.
        sock.setblocking(False)
        try:
            sock.connect(address[-1])
        except OSError as error:
            if error.errno != errno.EINPROGRESS:
                raise
        poller = Poller()
        poller.register(sock, select.POLLOUT)
        events = 0
        for ready in poller.ipoll(timeout_ms):
            events = ready[1]
        if not events:
            raise LinkTimeout("connect", "no answer from %s in %d ms" % (where, timeout_ms))
        if events & (select.POLLERR | select.POLLHUP):
            raise LinkError("connect", where + " refuses: is a broker listening there?")
        _without_delay(sock)
    except LinkError:
        sock.close()
        raise
    except OSError as error:
        sock.close()
        raise LinkError("connect", where + ": " + str(error))
    return SocketStream(sock)


def _without_delay(sock) -> None:
    # By number, as the unix port lacks the names. Every message is one write already; this only
    # spares the second of two quick ones the wait for the first's acknowledgement.
    try:
        sock.setsockopt(6, 1, 1)  # IPPROTO_TCP, TCP_NODELAY
    except OSError:
        return  # a port without the option: slower, not wrong
