"""Reach a broker by TCP, TLS or a unix socket."""

import socket
import ssl
import time

from host_broker.address import Address
from host_broker.client_errors import BadArgument, ConnectFailed

# The same as the broker's (net.keepalive_…, net.user_timeout_s): seconds, probes, milliseconds.
# Not every system has all of them.
_KEEPALIVE = {
    "TCP_KEEPIDLE": 15,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 30_000,
}
# OpenSSL's X509_V_ERR_… codes.
_WRONG_NAME = (62, 64)  # HOSTNAME_MISMATCH, IP_ADDRESS_MISMATCH
_LONGEST_S = 1e9  # that the kernel can count; who waits for ever waits so long
_WRONG_TIME = (9, 10)  # CERT_NOT_YET_VALID, CERT_HAS_EXPIRED


def dial(address: Address, timeout_s: float) -> socket.socket:
    """Return a connected socket that does not block, after the TLS handshake if there is one.

    Options of a TLS address: ``ca=FILE`` instead of the system's authorities, ``cert=FILE`` and
    ``key=FILE`` to show who we are, ``insecure=1`` to trust whoever answers. ``timeout_s`` bounds
    it all. Raises ``ConnectFailed``, and ``BadArgument`` for files and options that cannot be.
    """
    deadline = time.monotonic() + timeout_s
    context = tls_context(address)
    raw = reach(address, timeout_s)
    try:
        if context is not None:
            raw.settimeout(min(max(0.001, deadline - time.monotonic()), _LONGEST_S))
            raw = context.wrap_socket(raw, server_hostname=address.host)
            raw.setblocking(False)
    except (OSError, UnicodeError, ValueError) as error:
        raw.close()
        raise tls_failed(address, error, timeout_s) from error
    return raw


def reach(address: Address, timeout_s: float) -> socket.socket:
    """Return a connected socket that does not block, before any TLS. Raises ``ConnectFailed``."""
    try:
        raw = _connected(address, min(max(0.001, timeout_s), _LONGEST_S))
        raw.setblocking(False)
    except (OSError, UnicodeError, ValueError) as error:
        raise failed(address, error, timeout_s) from error
    return raw


def tls_failed(address: Address, error: Exception, timeout_s: float) -> ConnectFailed:
    """Return the error for a TLS handshake that failed."""
    if isinstance(error, TimeoutError):
        return ConnectFailed(
            f"{address} did not begin TLS within {timeout_s:g} s; is TLS spoken on this port?"
        )
    return failed(address, error, timeout_s)


def _connected(address: Address, timeout_s: float) -> socket.socket:
    if address.transport == "unix":
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        unix.settimeout(timeout_s)
        try:
            unix.connect(address.path)
        except BaseException:
            unix.close()
            raise
        return unix
    tcp = socket.create_connection((address.host, address.port), timeout_s)
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A broker that lost its power says no goodbye, and FMQP has no ping of its own.
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            tcp.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return tcp


def tls_context(address: Address) -> ssl.SSLContext | None:
    """Return what the address asks of TLS, None if it is not for TLS. Raises ``BadArgument``."""
    if address.transport != "tls":
        return None
    options = address.options
    insecure = options.get("insecure", "0")
    if insecure not in ("0", "1"):
        raise BadArgument(f"{address}: insecure is '{insecure}', it must be 0 or 1")
    if options.get("key") and not options.get("cert"):
        raise BadArgument(f"{address}: a key without cert=FILE is of no use")
    try:
        context = ssl.create_default_context(cafile=options.get("ca") or None)
        if options.get("cert"):
            context.load_cert_chain(
                options["cert"], options.get("key") or None, password=_no_password
            )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadArgument(f"{address}: cannot use its ca, cert or key: {reason}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure == "1":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _no_password() -> str:
    # Without this OpenSSL would ask on the terminal and wait.
    raise ValueError("the key is encrypted")


def failed(address: Address, error: Exception, timeout_s: float) -> ConnectFailed:
    """Return the error for an address that cannot be reached."""
    nobody = isinstance(error, ConnectionRefusedError | FileNotFoundError)
    return ConnectFailed(_advice(address, error, timeout_s), nobody_listens=nobody)


def _advice(address: Address, error: Exception, timeout_s: float) -> str:
    if isinstance(error, ConnectionRefusedError | FileNotFoundError):
        return f"nothing listens at {address}; is the broker running there?"
    if isinstance(error, PermissionError) and address.transport == "unix":
        return (
            f"no permission to use {address}; only its owner may, unless the broker listens with "
            "?mode=660 (its group) or ?mode=666"
        )
    if isinstance(error, TimeoutError):
        return f"{address} did not answer within {timeout_s:g} s; is the address right?"
    if isinstance(error, socket.gaierror):
        return f"{address}: the host name is unknown ({error.strerror})"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{address} cannot prove who it is: {error.verify_message}; {_remedy(error)}"
    if isinstance(error, ssl.SSLError | ConnectionResetError) and address.transport == "tls":
        reason = error.strerror or "it closed the connection"
        return f"{address} did not agree on TLS ({reason}); is TLS spoken on this port?"
    return f"cannot connect to {address}: {getattr(error, 'strerror', None) or error}"


def _remedy(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _WRONG_NAME:
        return "connect by a name its certificate is for"
    if error.verify_code in _WRONG_TIME:
        return "renew its certificate, or set the clock"
    return "name its authority with ?ca=FILE"
