"""Payloads of any length whose bytes tell where they are."""

_BYTES = memoryview(bytes(n * 7 & 255 for n in range(256)) * 6)


class Source:
    """``length`` bytes to read."""

    def __init__(self, length):
        self.left = length
        self.at = 0

    def readinto(self, buffer):
        size = min(len(buffer), self.left, 100)
        buffer[:size] = _from(self.at, size)
        self.at += size
        self.left -= size
        return size


def is_part(view, offset):
    """Say whether ``view``, of at most 1280 bytes, is what a payload has from ``offset`` on.

    Without a look at each byte, for which an emulated board takes so long that its bridge, which
    hears nothing meanwhile, would end the session.
    """
    return view == _from(offset, len(view))


def _from(offset, size):
    start = offset & 255
    return _BYTES[start : start + size]
