"""What a peer says first, when it is no broker: telling the protocol spares a long search."""


def stranger(data: bytes) -> str | None:
    """Return what speaks, from the first bytes of a connection; None if nothing is known of it.

    A broker of UMQ begins as HTTP; otherwise no word here can begin a message of a real broker: as
    FMQP these bytes announce bodies of gigabytes or a protocol's unused flags, as LightMQ unknown
    opcodes.
    """
    if data.startswith((b"HTTP/", b"<!DOC", b"<html")):
        return "HTTP"
    if data.startswith(b"SSH-"):
        return "SSH"
    if data[:1] in (b"\x15", b"\x16") and data[1:2] == b"\x03" and data[2:3] <= b"\x04":
        return "TLS (fmqps:// and lightmqs:// connect by TLS)"
    if data.startswith((b"220 ", b"220-")):
        return "SMTP or FTP"
    if data.startswith(b"INFO {"):
        return "NATS"
    return None
