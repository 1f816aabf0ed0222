"""A TCP connection as a stream for the clients: non-blocking for its whole life."""

import errno
import select
import socket
import sys

from umotemq.link import LinkError, LinkTimeout

if sys.implementation.name == "micropython":
    from select import poll as Poller
    from time import ticks_add, ticks_diff, ticks_ms

    def SocketStream(sock):
        # MicroPython's sockets are streams already.
        return sock

else:
    from umotemq._cpython import Poller, SocketStream, ticks_add, ticks_diff, ticks_ms


def connect(host: str, port: int, timeout_ms: int = 5000):
    """Return a stream connected to ``host:port`` within ``timeout_ms``.

    Every address of the name is tried. Raises LinkTimeout if nothing answers in time, LinkError
    if the connection is refused or the name is unknown. Looking up a name blocks on MicroPython
    and has no deadline there: give an IP address, or bring the network up first.
    """
    where = "%s:%d" % (host, port)
    until = ticks_add(ticks_ms(), timeout_ms)
    try:
        addresses = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    except OSError as error:
        raise LinkError("connect", "cannot look up " + where + ": " + str(error))
    failed = None
    for address in addresses:
        sock = socket.socket(address[0], socket.SOCK_STREAM)
        try:
            if _is_connected(sock, address[-1], max(ticks_diff(until, ticks_ms()), 0)):
                return SocketStream(sock)
            failed = LinkTimeout("connect", "no answer from %s in %d ms" % (where, timeout_ms))
        except OSError as error:
            failed = LinkError("connect", where + " cannot be reached: " + str(error))
        sock.close()
    raise failed


def _is_connected(sock, address, timeout_ms: int) -> bool:
    # False: no answer in time. Raises OSError if it was refused.
    # Never blocking again: on ESP32 and RP2 setblocking(True) also clears the timeout.
    sock.setblocking(False)
    try:
        sock.connect(address)
    except OSError as error:
        if error.errno != errno.EINPROGRESS:
            raise
    poller = Poller()
    poller.register(sock, select.POLLOUT)
    events = 0
    for ready in poller.ipoll(timeout_ms):
        events = ready[1]
    if events & (select.POLLERR | select.POLLHUP):
        raise OSError("refused; is a broker listening there?")
    if events:
        _without_delay(sock)
    return events != 0


def _without_delay(sock) -> None:
    # By number, as the unix port lacks the names. Every message is one write already; this only
    # spares the second of two quick ones the wait for the first's acknowledgement.
    try:
        sock.setsockopt(6, 1, 1)  # IPPROTO_TCP, TCP_NODELAY
    except OSError:
        return  # a port without the option: slower, not wrong
