"""What programs give a client that types alone do not check."""


def payload_bytes(payload: object) -> bytes:
    """Return a payload as bytes that its owner cannot change later; TypeError for anything else."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    advice = "; give text.encode()" if isinstance(payload, str) else ""
    raise TypeError(f"a payload is bytes, not {type(payload).__name__}{advice}")


def require_text(*topics: object) -> None:
    """Raise TypeError for a topic or pattern that is no text."""
    for topic in topics:
        if not isinstance(topic, str):
            raise TypeError(f"a topic is str, not {type(topic).__name__}")
