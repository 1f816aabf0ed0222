"""Socket options of an accepted connection: no delay, and dead peers are noticed."""

import select
import socket
import struct

from host_broker.settings import NetSettings

# A peer that vanished without FIN or RST is noticed after idle + interval * probes of silence.
_KEEPALIVE_PROBES = 3
_RTT = struct.Struct("=68xI")  # of struct tcp_info (linux/tcp.h): smoothed, in microseconds
_UCRED = struct.Struct("3i")  # process, user, group: unix(7)


def tune(sock: socket.socket, settings: NetSettings, *, patient: bool) -> None:
    """Set what TCP has to be told; unix sockets need nothing, their kernel knows both ends.

    ``patient``: the receiver may sleep as long as it likes, so that bytes it does not take are no
    sign of death, except after the many minutes the system allows.
    """
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle_s, interval_s = round(settings.keepalive_idle_s), round(settings.keepalive_interval_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, idle_s))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, interval_s))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
    if not patient:
        # It also ends a connection whose receiver lets its window closed, hence never shorter
        # than what a stalled receiver is granted.
        user_timeout_s = max(settings.user_timeout_s, settings.stalled_receiver_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(user_timeout_s * 1000))


def has_hung_up(sock: socket.socket) -> bool:
    """Whether the peer will say nothing more, though what it has said may be unread."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return bool(poll.poll(0))  # POLLERR and POLLHUP are always told, too


def is_local(sock: socket.socket) -> bool:
    """Whether the peer is on this machine."""
    if sock.family == socket.AF_UNIX:
        return True
    try:
        peer = str(sock.getpeername()[0])
    except OSError:
        return False  # it has gone already
    return peer.startswith("127.") or peer in ("::1",) or peer.startswith("::ffff:127.")


def round_trip_ms(sock: socket.socket) -> float | None:
    """Return how long the kernel finds that bytes take to a peer and back; None by other than TCP,
    or if it does not know."""
    if sock.family == socket.AF_UNIX:
        return None
    try:
        said = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT.size)
    except OSError:
        return None
    microseconds = _RTT.unpack(said)[0] if len(said) == _RTT.size else 0
    return microseconds / 1000 if microseconds else None


def peer_name(sock: socket.socket) -> str:
    """Return the peer's host, or ``uid N`` of a unix socket's other end; "" if it has gone."""
    try:
        if sock.family == socket.AF_UNIX:
            uid = peer_uid(sock)
            return "" if uid is None else f"uid {uid}"
        return str(sock.getpeername()[0])
    except OSError:
        return ""


def peer_port(sock: socket.socket) -> int:
    """Return the peer's port; 0 if it has none, or has gone."""
    try:
        return 0 if sock.family == socket.AF_UNIX else int(sock.getpeername()[1])
    except OSError:
        return 0


def peer_uid(sock: socket.socket) -> int | None:
    """Return the account at the other end of a unix socket; None if it is none, or has gone."""
    if sock.family != socket.AF_UNIX:
        return None
    try:
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    except OSError:
        return None
    return int(_UCRED.unpack(credentials)[1])
