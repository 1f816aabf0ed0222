"""How often the same is said again: found without looking at each."""

from hypothesis import given
from hypothesis import strategies as st

from host_broker.wire.repeats import repeats


def _one_by_one(data: bytes, start: int, end: int) -> int:
    said, count = data[start:end], 0
    while data[end:].startswith(said):
        count += 1
        end += len(said)
    return count


@given(
    before=st.binary(max_size=3),
    said=st.binary(min_size=1, max_size=4),
    times=st.integers(1, 300),
    after=st.binary(max_size=9),
)
def test_it_is_what_looking_at_each_finds(
    before: bytes, said: bytes, times: int, after: bytes
) -> None:
    data = before + said * times + after
    start, end = len(before), len(before) + len(said)
    assert repeats(data, start, end) == _one_by_one(data, start, end) >= times - 1


def test_a_part_of_one_is_none() -> None:
    assert repeats(b"abcabcab", 0, 3) == 1
    assert repeats(b"abc", 0, 3) == 0
