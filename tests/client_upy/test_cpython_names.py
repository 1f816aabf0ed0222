"""What CPython is lent behaves as MicroPython's own, at the wrap too."""

import pytest

from umotemq import _cpython as lent


@pytest.mark.parametrize(
    ("end", "start", "difference"),
    [(5, 3, 2), (3, 5, -2), (1, (1 << 30) - 1, 2), ((1 << 30) - 1, 1, -2), (0, 0, 0)],
)
def test_ticks_diff_crosses_the_wrap(end: int, start: int, difference: int) -> None:
    assert lent.ticks_diff(end, start) == difference
    assert lent.ticks_add(start, difference) == end


def test_clocks_move_forward() -> None:
    start_ms, start_us = lent.ticks_ms(), lent.ticks_us()
    lent.sleep_ms(10)
    assert 9 <= lent.ticks_diff(lent.ticks_ms(), start_ms) < 1000
    assert 9_000 <= lent.ticks_diff(lent.ticks_us(), start_us) < 1_000_000
