"""CPython's TLS with the names, arguments and errors of MicroPython's module ``tls``.

Not put on boards.
"""

import os
import socket
import ssl
import tempfile
from ssl import CERT_NONE, PROTOCOL_TLS_CLIENT

from umotemq._cpython import SocketStream

__all__ = ["CERT_NONE", "PROTOCOL_TLS_CLIENT", "SSLContext"]

_EARLY_MOST = 4096  # bytes that may be said before the handshake is done
# What Mbed TLS would say, and so MicroPython: OSErrors of its codes.
_REFUSED = -0x7780
_ENDED = -0x7280
_WRONG = -0x7200


class SSLContext:
    """Files as bytes, and sockets that are still being connected."""

    def __init__(self, protocol: int) -> None:
        self._context = ssl.SSLContext(protocol)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2

    @property
    def verify_mode(self) -> int:
        return self._context.verify_mode

    @verify_mode.setter
    def verify_mode(self, mode: int) -> None:
        self._context.check_hostname = mode != CERT_NONE
        self._context.verify_mode = ssl.VerifyMode(mode)

    def load_verify_locations(self, data: bytes) -> None:
        pem = b"-----BEGIN " in data
        try:
            self._context.load_verify_locations(cadata=data.decode() if pem else data)
        except (ssl.SSLError, UnicodeError):
            raise ValueError("invalid cert") from None

    def load_cert_chain(self, cert: bytes, key: bytes) -> None:
        names = []
        try:
            for data, kind in ((cert, "CERTIFICATE"), (key, "PRIVATE KEY")):
                descriptor, name = tempfile.mkstemp()  # OpenSSL reads its own only from files
                names.append(name)
                with open(descriptor, "wb") as file:
                    file.write(data if b"-----BEGIN " in data else _pem(data, kind))
            self._context.load_cert_chain(names[0], names[1], password=_no_password)
        except (ssl.SSLError, ValueError):
            raise ValueError("invalid cert or key") from None
        finally:
            for name in names:
                os.unlink(name)

    def wrap_socket(
        self, stream: SocketStream, *, server_hostname: str, do_handshake_on_connect: bool
    ) -> "TlsStream":
        if do_handshake_on_connect:
            raise ValueError("that would wait")
        return TlsStream(stream, self._context, server_hostname)


class TlsStream:
    """A non-blocking TLS connection with MicroPython's stream methods."""

    def __init__(self, stream: SocketStream, context: ssl.SSLContext, name: str) -> None:
        self._raw = stream._sock
        self._context, self._name = context, name
        self._tls: ssl.SSLSocket | None = None
        self._done = self._heard = False
        self._early = bytearray()
        self._descriptor = self._raw.fileno()

    def fileno(self) -> int:
        return self._descriptor

    def pending(self) -> int:
        """Return how many bytes are decrypted already: ``select.poll`` does not know of them."""
        return self._tls.pending() if self._tls and self._done else 0

    def close(self) -> None:
        (self._tls or self._raw).close()

    def readinto(self, buffer: bytearray | memoryview) -> int | None:
        try:
            if not self._shaken() or self._tls is None:
                return None
            self._say_early(self._tls)
            count = self._tls.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ConnectionError:
            if self._heard:
                raise
            count = 0
        except ssl.SSLError as error:
            raise _as_mbedtls(error) from None
        if not count and not self._heard:
            # TLS 1.3: only after its handshake do we hear that our certificate was not wanted.
            raise OSError(_ENDED)
        self._heard = True
        return count

    def write(self, data: bytes | memoryview) -> int | None:
        try:
            done = self._shaken()
            if self._tls is None:
                return None
            if not done:
                # Taken, as by a kernel: select.poll cannot be told to wait for the peer's part
                # of the handshake when it is asked for room.
                taken = data[: _EARLY_MOST - len(self._early)]
                self._early += taken
                return len(taken) or None
            self._say_early(self._tls)
            return self._tls.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLError as error:
            raise _as_mbedtls(error) from None

    def _shaken(self) -> bool:
        if self._done:
            return True
        if self._tls is None:
            failed = self._raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed:
                raise OSError(failed, os.strerror(failed))
            try:
                self._raw.getpeername()  # wrap_socket needs a socket that is connected
            except OSError:
                return False
            self._tls = self._context.wrap_socket(
                self._raw, server_hostname=self._name, do_handshake_on_connect=False
            )
        try:
            self._tls.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except ConnectionError:
            raise OSError(_ENDED) from None
        self._done = True
        return True

    def _say_early(self, tls: ssl.SSLSocket) -> None:
        while self._early:
            del self._early[: tls.send(self._early)]


def _as_mbedtls(error: ssl.SSLError) -> Exception:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ValueError(error.verify_message)
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return OSError(_ENDED)
    return OSError(_REFUSED if "ALERT" in str(error) else _WRONG)


def _pem(data: bytes, kind: str) -> bytes:
    text = ssl.DER_cert_to_PEM_cert(data)
    return text.replace("CERTIFICATE", kind).encode()


def _no_password() -> str:
    # Without this OpenSSL would ask on the terminal and wait.
    raise ValueError("the key is encrypted")
