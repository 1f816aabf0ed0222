"""FMQP topics in place: bytes ``start..end`` of a buffer, no object per message."""


def normalised(topic):
    """Return ``topic`` (1 to 255 bytes of UTF-8, no NUL) without outer slashes, or ValueError."""
    stripped = topic.strip(b"/")
    # decode() raises a ValueError too, but MicroPython's lets overlong forms and surrogates pass.
    for char in stripped.decode():
        code = ord(char)
        if not code or code >> 11 == 0xD800 >> 11 or chr(code) != char:
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
