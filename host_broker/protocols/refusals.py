"""What is said to a client whose protocol has no session here, in that protocol's own words."""

from struct import Struct

_SHORT = Struct(">H")
_HERE = "This is a MoteMQ broker. It speaks FMQP and LightMQ on this port, "
_TEXT = _HERE + "and no %s yet."
_NO_HTTP = _HERE + "and HTTP only when it keeps a journal (motemq broker --data DIR)."


def refusal(protocol: str, first: bytes) -> bytes:
    """Return the words to end with, b"" if the protocol has none for it.

    ``first``: what the client began with, as far as it is known.
    """
    match protocol:
        case "http":
            return _http(_NO_HTTP)
        case "fq":
            return _fq(_TEXT % "fq") if first.startswith(b"\xcc\x50\xca\xfe") else b""
        case "micromsg2":
            # An ERROR frame: the flag, a length of one byte, the text.
            text = (_TEXT % "MicroMsg2").encode()
            return b"\x04" + bytes([len(text)]) + text
        case "mqtt":
            return b"\x20\x02\x00\x01"  # CONNACK: unacceptable protocol version
        case "tls":
            return b"\x15\x03\x01\x00\x02\x02\x28"  # a fatal alert: handshake_failure
    return b""


def _http(text: str) -> bytes:
    head = (
        "HTTP/1.1 501 Not Implemented\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(text) + 1}\r\n"
        "Connection: close\r\n\r\n"
    )
    return f"{head}{text}\n".encode()


def _fq(text: str) -> bytes:
    return b"\xee\xee" + _SHORT.pack(len(text)) + text.encode()
