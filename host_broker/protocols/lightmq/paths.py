"""Where a client lives on the bus: ``lightmq/ID/…``; what is there, ``mailbox`` says."""

from hashlib import sha256

# "lightmq/" + level + "/request/" + a tag must fit a topic's 255 bytes.
_MAX_LEVEL = 200
_ESCAPED = {"%": "%25", "/": "%2F", "\0": "%00"}


def level(client_id: str) -> bytes:
    """Return the ClientID as one literal level, different for different ClientIDs.

    Nearly always the ClientID itself. What a level cannot hold (``/``, NUL, being a wildcard or
    longer than 200 bytes) is escaped with ``%``, so that no ClientID can listen to another's path.
    """
    if client_id == "*":
        return b"%2A"
    raw = "".join(_ESCAPED.get(letter, letter) for letter in client_id).encode()
    if len(raw) <= _MAX_LEVEL:
        return raw
    # "%~" cannot come from escaping; 160 bits keep different ClientIDs apart.
    mark = b"%~" + sha256(client_id.encode()).hexdigest()[:40].encode()
    kept = raw[: _MAX_LEVEL - len(mark)].decode(errors="ignore").encode()
    return kept + mark


def path(level: bytes, end: str) -> bytes:
    """Return the topic of the client of this level that ends in ``end``."""
    return b"lightmq/" + level + b"/" + end.encode()
