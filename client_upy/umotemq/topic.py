"""What topics need that are not plain: levels ``*``, text beyond ASCII. fmqp imports it then."""


def is_text(topic):
    """Say whether ``topic`` is strict UTF-8 without NUL."""
    try:
        topic.decode()
    except ValueError:
        return False
    # MicroPython's check lets overlong forms, surrogates, and what is beyond Unicode pass; so pairs
    # of bytes are looked at (characters it would keep for ever).
    pair = 0
    for byte in topic:
        pair = (pair & 255) << 8 | byte
        if not byte or pair > 0xF48F or pair >> 9 == 0xC0 >> 1 or pair >> 4 == 0xF08:
            return False
        if pair >> 5 == 0xE08 >> 1 or pair >> 5 == 0xEDA >> 1:
            return False
    return True


def normalised(topic):
    """Return ``topic`` (1 to 255 bytes of UTF-8, no NUL) without outer slashes, or ValueError."""
    stripped = topic.strip(b"/")
    if not stripped or len(topic) > 255 or not is_text(topic):
        raise ValueError("topic %r: not 1 to 255 bytes of UTF-8, no NUL" % topic)
    return stripped


def match(levels, buf, start, end, trusted):
    """Say whether a topic, or the list of its levels, and ``buf[start:end]`` are equivalent (R10).

    Both are without outer slashes: each level is equal, or one of the two is ``*``. ``trusted``:
    the second may be incorrect (R4) all the same, and nothing takes heap.
    """
    first = start
    if isinstance(levels, bytes):
        levels = levels.split(b"/")
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
    return first < end < start and (trusted or is_text(bytes(memoryview(buf)[first:end])))
