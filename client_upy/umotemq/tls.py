"""TLS as a transport: TCP, and a handshake that stands under the client's ``timeout_ms``.

    client = FmqpClient(Tls("broker.example", 1885, ca="/ca.pem"))

A certificate is judged by the board's clock: set it (``ntptime.settime()``) before you connect,
or every certificate seems not to be valid yet. Open TLS before you make big objects: its buffers
are some 40 KB, on ESP32 in a heap of its own, elsewhere on MicroPython's.
"""

import gc
import sys
import time
from binascii import a2b_base64
from errno import ECONNRESET

from umotemq.tcp import Tcp

if sys.implementation.name != "micropython":
    from umotemq import _cpython_tls as tls
else:
    try:
        import tls
    except ImportError:
        import ssl as tls  # before MicroPython 1.23

_REFUSED = -0x7780  # Mbed TLS: a fatal alert from the peer
_ENDED = (-0x7280, ECONNRESET, 32)  # in the handshake; 32 is EPIPE, a name that ports lack


class Tls(Tcp):
    """``host:port``, which must prove that it is ``server_hostname`` (default: ``host``).

    ``ca``: the certificates that are trusted; ``cert`` and ``key``: who we are, if the peer asks.
    Each is bytes in PEM or DER form, or the path of such a file. ``verify=False`` trusts whoever
    answers. Raises ValueError if one of them is none, OSError if a file cannot be read.
    """

    def __init__(self, host, port, server_hostname=None, ca=None, cert=None, key=None, verify=True):
        Tcp.__init__(self, host, port)
        self._name = server_hostname or host
        # One for all connections: what was parsed stays.
        self._context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
        if not verify:
            self._context.verify_mode = tls.CERT_NONE
        elif not ca:
            raise ValueError("ca: whom to trust; or verify=False")
        else:
            data = _content(ca)
            for der in _bodies(data, b"CERTIFICATE") or [data]:
                self._context.load_verify_locations(der)
        if cert:
            cert = _content(cert)
            key = _content(key)
            try:
                self._context.load_cert_chain(cert, key)
            except ValueError:
                # Most ports know DER only. This loses what a PEM file has after its first one.
                certs, keys = _bodies(cert, b"CERTIFICATE"), _bodies(key, b"KEY")
                if not certs or not keys:
                    raise
                self._context.load_cert_chain(certs[0], keys[0])

    def open(self):
        """As Tcp.open: no byte of the handshake has been sent yet."""
        gc.collect()  # the buffers are long pieces
        sock = Tcp.open(self)
        try:
            return _Stream(sock, self._context, self._name)
        except (OSError, ValueError) as error:
            sock.close()
            raise OSError("TLS: %s" % error)


class _Stream:
    def __init__(self, sock, context, name):
        self._sock = sock
        # The TLS object knows when it has decrypted bytes, or waits to read before it can write.
        self.pollable = context.wrap_socket(
            sock, server_hostname=name, do_handshake_on_connect=False
        )
        self._begun = 0

    def readinto(self, buffer):
        try:
            return self.pollable.readinto(buffer)
        except (OSError, ValueError) as error:
            self._fail(error)

    def write(self, data):
        # What did not go whole is begun: Mbed TLS says of a longer second try that all of it went.
        if 0 < self._begun < len(data):
            data = data[: self._begun]
        try:
            sent = self.pollable.write(data)
        except (OSError, ValueError) as error:
            self._fail(error)
        self._begun = len(data) - (sent or 0)
        return sent

    def close(self):
        self.pollable.close()
        self._sock.close()  # a failed handshake has let go of it

    def _fail(self, error):
        code = error.args[0] if error.args else 0
        if isinstance(error, ValueError):  # Mbed TLS's reasons, a line each
            what = "certificate: " + str(error).strip().replace("\n", "; ")
            if time.gmtime()[0] < 2025:
                what += "; this clock is not set"
        elif code == _REFUSED:
            what = "refused by the peer; does it want a certificate of ours?"
        elif code in _ENDED:
            what = "closed by the peer; is TLS spoken there, or a certificate of ours wanted?"
        elif isinstance(code, int) and code < -255:
            what = "error -0x%x; is TLS spoken there?" % -code
        else:
            if isinstance(code, int) and code < 0:
                error = OSError(-code)  # the socket's; MicroPython turns them after the handshake
            raise error
        raise OSError("TLS: " + what)


def _bodies(pem, kind):
    # The DER forms of what a PEM file holds of a kind.
    found = []
    for part in pem.split(b"-----BEGIN ")[1:]:
        head, body = part.split(b"-----", 1)
        if head.endswith(kind):
            found.append(a2b_base64(body[: body.find(b"-----")]))
    return found


def _content(source):
    if not isinstance(source, str):
        return source
    with open(source, "rb") as file:
        return file.read()
