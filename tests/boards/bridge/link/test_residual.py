"""How often a damaged frame passes for a good one: measured with fewer bits of the check.

With all 32 bits nothing passes in any time a test has. If each bit halves what passes, as a CRC's
should on random damage, then about 1 damaged frame in 2**32 is taken for good.
"""

import random
import zlib
from collections import Counter
from collections.abc import Callable

import pytest

from benchmarks.link.line import Direction, Faults
from boards.bridge.reliable_frame import Frame, Kind, decode, encode

_RESIDUE = 0x2144DF1C
_FRAMES = 20_000
# Not fewer: one flipped bit near the end leaves up to five bits right, and never all.
_BITS = (8, 9, 10, 12)


def _lines(seed: int, faults: Faults) -> tuple[set[bytes], list[bytes]]:
    """Send frames over a bad line; return what was sent and what came, between the zeros."""
    rng = random.Random(seed)
    line = Direction(rng, 10_000_000, faults, buffer=1 << 20)
    sent: set[bytes] = set()
    came = bytearray()
    now = 0.0
    for number in range(_FRAMES):
        size = rng.choice((1, 8, 30, 90, 243))
        payload = rng.randbytes(size) if number % 3 else bytes(size)
        wire = encode(Frame(Kind.DATA, 0x1234, number & 255, 0, 8, 0, payload))
        sent.add(wire[1:-1])
        line.write(wire)
        now += 0.001
        line.advance(now)
        came += line.read(1 << 20)
    return sent, bytes(came).split(b"\0")


def _passes(piece: bytes) -> int | None:
    """Return how many low bits of the check are right; None if it is no frame for other reasons."""
    if not 11 < len(piece) < 256:
        return None
    body = bytearray(piece)
    at = 0
    while at < len(body):
        step = body[at]
        body[at] = 0
        at += step
    if at != len(body):
        return None
    wrong = zlib.crc32(b"\0" + body) ^ _RESIDUE
    return 32 if not wrong else (wrong & -wrong).bit_length() - 1


@pytest.mark.parametrize(
    "faults",
    [
        Faults(flip=3e-2),
        Faults(lose=5e-3),
        Faults(double=5e-3),
        Faults(noise_every_s=0.002, noise_bytes=100),
        Faults(flip=1e-3, lose=1e-3, double=1e-3, noise_every_s=0.01, text_every_s=0.01),
    ],
    ids=["flips", "losses", "doubles", "noise", "all"],
)
def test_each_bit_of_the_check_halves_what_passes(
    faults: Faults, say: Callable[[str], None]
) -> None:
    sent, pieces = _lines(7, faults)
    damaged = [piece for piece in pieces if piece and piece not in sent]
    right_bits = Counter(bits for bits in map(_passes, damaged) if bits is not None)
    candidates = sum(right_bits.values())
    assert candidates > 200
    assert right_bits[32] == 0
    assert [piece for piece in damaged if decode(piece) is not None] == []
    passed = {bits: sum(n for b, n in right_bits.items() if b >= bits) for bits in _BITS}
    say(f"{len(damaged)} damaged, {candidates} of a frame's form; passing n bits: {passed}")
    for bits, count in passed.items():
        expected = candidates / 2**bits
        # Four standard deviations of a Poisson count.
        assert count <= expected + 4 * expected**0.5 + 1, (bits, count, expected)
