"""FMQP topics in place: bytes ``start..end`` of a buffer, no object per message."""

try:
    from micropython import const
except ImportError:
    from umotemq._cpython import const

_SLASH = const(0x2F)
_STAR = const(0x2A)


def normalised(topic: bytes) -> bytes:
    """Return ``topic`` without its leading and trailing ``/`` (R8).

    Raises ValueError if it is no topic: empty, only ``/``, a NUL, over 255 bytes, not UTF-8.
    """
    if not isinstance(topic, bytes):
        raise TypeError("topic: want bytes, such as b'home/door', not %r" % (topic,))
    stripped = topic.strip(b"/")
    if not stripped or len(topic) > 255 or not is_valid(stripped, 0, len(stripped)):
        raise ValueError("topic: want 1 to 255 bytes of UTF-8, no NUL, more than '/': %r" % topic)
    return stripped


def is_valid(buf, start: int, end: int) -> bool:
    """Say whether ``buf[start:end]`` is UTF-8 without a NUL (R5, R7)."""
    ascii_only = True
    for i in range(start, end):
        if buf[i] == 0:
            return False
        if buf[i] > 0x7F:
            ascii_only = False
    return ascii_only or _is_utf8(bytes(buf[start:end]))


def _is_utf8(data: bytes) -> bool:
    # MicroPython decodes surrogates and overlong forms: what it read must have needed the bytes.
    try:
        text = str(data, "utf-8")
    except UnicodeError:
        return False
    size = 0
    for character in text:
        code = ord(character)
        if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            return False
        size += 1 + (code > 0x7F) + (code > 0x7FF) + (code > 0xFFFF)
    return size == len(data)


def is_equivalent(pattern: bytes, buf, start: int, end: int) -> bool:
    """Say whether two normalised topics are equivalent (R10): each level equal, or one is ``*``."""
    at = 0
    size = len(pattern)
    while True:
        level_end = buf.find(b"/", start, end)
        if level_end < 0:
            level_end = end
        at_end = pattern.find(b"/", at)
        if at_end < 0:
            at_end = size
        wild = (at_end - at == 1 and pattern[at] == _STAR) or (
            level_end - start == 1 and buf[start] == _STAR
        )
        if not wild:
            if level_end - start != at_end - at:
                return False
            while start < level_end:
                if buf[start] != pattern[at]:
                    return False
                start += 1
                at += 1
        if level_end == end or at_end == size:
            return level_end == end and at_end == size
        start = level_end + 1
        at = at_end + 1
