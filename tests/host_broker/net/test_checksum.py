"""The journal's checksum is zlib's CRC-32, whichever library computes it."""

import subprocess
import sys
import zlib

from hypothesis import given
from hypothesis import strategies as st

from host_broker.net.journal.checksum import crc32, crc32_held

_WITHOUT_ISAL = """
import sys
sys.modules["isal"] = None
from host_broker.net.journal.checksum import crc32
print(crc32.__module__, crc32(b"123456789"))
"""


@given(st.binary(max_size=5000), st.binary(max_size=300))
def test_it_is_zlibs(body: bytes, head: bytes) -> None:
    assert crc32(memoryview(body), crc32(head)) == zlib.crc32(head + body)


@given(st.integers(0, 150_000), st.integers(0, 255), st.integers(0, 2**32 - 1))
def test_in_pieces_it_is_the_same(size: int, byte: int, before: int) -> None:
    body = bytes([byte, *range(1, 251)]) * (size // 251 + 1)
    assert crc32_held(body[:size], before) == zlib.crc32(body[:size], before)


def test_without_the_fast_library_zlib_does_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_ISAL], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["zlib", str(0xCBF43926)]
