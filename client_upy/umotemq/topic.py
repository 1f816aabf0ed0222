"""FMQP topics in place: bytes ``start..end`` of a buffer, no object per message."""


def normalised(topic):
    stripped = topic.strip(b"/")
    if not stripped or len(topic) > 255 or not is_valid(stripped, 0, len(stripped)):
        raise ValueError("topic %r: want 1 to 255 bytes of UTF-8" % topic)
    return stripped


def is_valid(buf, start, end):
    """Say whether ``buf[start:end]`` is UTF-8 without a NUL (R5, R7)."""
    while start < end:
        code = buf[start]
        start += 1
        more = (code > 0xBF) + (code > 0xDF) + (code > 0xEF)
        if code > 0x7F:
            least = 0x110000
            if more and start + more <= end and code < 0xF8:
                least = 0x10000 if more > 2 else 0x800 if more > 1 else 0x80
                code &= 0x3F >> more
                for _ in range(more):
                    if buf[start] >> 6 != 2:
                        return False
                    code = code << 6 | buf[start] & 0x3F
                    start += 1
        else:
            least = 1
        if not least <= code < 0x110000 or 0xD800 <= code < 0xE000:
            return False
    return True


def is_equivalent(pattern, buf, start, end):
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
        level = pattern[at:at_end]
        if level != b"*" and (level_end - start != 1 or buf[start] != 42):
            if level_end - start != at_end - at or not buf.startswith(level, start):
                return False
        if level_end == end or at_end == size:
            return level_end == end and at_end == size
        start = level_end + 1
        at = at_end + 1
