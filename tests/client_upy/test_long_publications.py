"""Publications longer than a board has memory for, which a program on CPython may send."""

import pytest

from umotemq.fmqp import FmqpClient

_HEADER = 6
_SIZE = 1 << 24  # whose length needs the fourth byte


class _Heads:
    """A transport whose stream takes everything, and keeps how each write begins."""

    pollable = None
    where = "heads"

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    def open(self) -> "_Heads":
        return self

    def readinto(self, buffer: bytearray | memoryview) -> None:
        return None

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.heads.append(bytes(data[:_HEADER]))
        return len(data)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("options", [{}, {"retain": True}, {"will": True}])
@pytest.mark.parametrize("size", [1, _SIZE - 1, _SIZE, 5 * _SIZE])
def test_the_flags_do_not_depend_on_the_length(size: int, options: dict[str, bool]) -> None:
    stream = _Heads()
    client = FmqpClient(stream, name=b"", tx_size=size + 64)
    client.connect(timeout_ms=1000)
    stream.heads.clear()
    flags = 4 * options.get("retain", False) | 8 * options.get("will", False)
    for _ in range(2):  # of which the second is like the one before
        client.publish(b"a", bytes(size), **options)
    assert stream.heads == [bytes((flags, 1)) + size.to_bytes(4, "big")] * 2
