"""FMQP topics in place: bytes ``start..end`` of a buffer, no object per message."""


def normalised(topic):
    """Return ``topic`` (1 to 255 bytes of UTF-8, no NUL) without outer slashes, or ValueError."""
    stripped = topic.strip(b"/")
    # decode() raises a ValueError too. MicroPython's lets overlong forms, surrogates, and what is
    # beyond Unicode pass; so pairs of bytes are looked at (characters it would keep for ever).
    topic.decode()
    pair = 0
    for byte in topic:
        pair = (pair & 255) << 8 | byte
        if not byte or pair > 0xF48F or pair >> 9 == 0xC0 >> 1 or pair >> 4 == 0xF08:
            stripped = b""
        if pair >> 5 == 0xE08 >> 1 or pair >> 5 == 0xEDA >> 1:
            stripped = b""
    if not stripped or len(topic) > 255:
        raise ValueError("topic")
    return stripped


def is_valid(topic):
    """Say whether ``topic`` is one that ``normalised`` takes."""
    try:
        return normalised(topic)
    except ValueError:
        return False


def is_equivalent(levels, buf, start, end):
    """Say whether two normalised topics are equivalent (R10): each level equal, or one is ``*``."""
    for level in levels:
        if start > end:
            return False
        stop = buf.find(b"/", start, end)
        if stop < 0:
            stop = end
        size = stop - start
        if level != b"*" and (size != 1 or buf[start] != 42):
            if size != len(level) or not buf.startswith(level, start):
                return False
        start = stop + 1
    return start > end
