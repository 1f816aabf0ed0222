"""Fields of frames that may not be whole, and the memory that unfinished frames take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_broker.wire.budget import Budget
from host_broker.wire.held import SMALL, HeldFrame
from host_broker.wire.lengths import Short, read_bytes, read_long, read_short, read_string

_FRAME = b"before" + b"\x12\x34" + b"\0\1\2\3" + b"\0\4text" + b"tail"


def _fields(data: bytes, start: int) -> tuple[int, int, bytes, bytes]:
    short = read_short(data, start, start)
    long = read_long(data, start, start + 2)
    text, position = read_string(data, start, start + 6)
    tail, end = read_bytes(data, start, position, 4)
    assert end == len(data)
    return short, long, text, tail


@given(st.integers(0, len(_FRAME) - 7))
def test_a_frame_says_how_much_of_it_is_needed(whole: int) -> None:
    """From its beginning on; with that much it is read, or says more."""
    start = len(b"before")
    assert _fields(_FRAME, start) == (0x1234, 0x00010203, b"text", b"tail")
    seen = whole
    while seen < len(_FRAME) - start:
        with pytest.raises(Short) as short:
            _fields(_FRAME[: start + seen], start)
        assert seen < short.value.needed <= len(_FRAME) - start
        seen = short.value.needed
    assert _fields(_FRAME[: start + seen], start)[-1] == b"tail"


def test_what_is_held_is_in_the_budget() -> None:
    """Long frames only; all is given back."""
    budget = Budget(3 * SMALL)
    one, two = HeldFrame(budget), HeldFrame(budget)
    one.keep(b"x" * SMALL, 10 * SMALL)
    assert one.settle(0) is None
    assert budget.left == 3 * SMALL
    for frame in (one, two):
        frame.keep(b"x" * (SMALL + 1), 10 * SMALL)
        assert frame.settle(0) is None
    assert budget.left == SMALL - 2
    assert two.complete(b"x" * SMALL) is None
    violation = two.settle(77)
    assert violation is not None
    assert (violation.rule, violation.offset, violation.fatal) == ("bus.max_held_bytes", 77, True)
    two.release()
    assert budget.left == 2 * SMALL - 1
    assert one.complete(b"x" * 10 * SMALL) is not None
    assert one.settle(0) is None
    assert budget.left == 3 * SMALL
