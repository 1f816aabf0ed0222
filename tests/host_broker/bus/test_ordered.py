"""Keys in order, against a sorted list."""

from collections.abc import Sequence
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from host_broker.bus import ordered
from host_broker.bus.ordered import OrderedKeys


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=300),
    st.integers(-1, 61),
)
def test_it_is_as_a_sorted_list(changes: Sequence[tuple[bool, int]], asked: int) -> None:
    before, ordered._PART = ordered._PART, 3  # so that there are many parts
    try:
        keys, model = OrderedKeys[int](), set[int]()
        for come, key in changes:
            if not come:
                keys.discard(key)
                model.discard(key)
            elif key not in model:
                keys.add(key)
                model.add(key)
        assert list(keys.behind(asked)) == sorted(key for key in model if key > asked)
        assert list(keys.behind(asked, itself=True)) == sorted(k for k in model if k >= asked)
        assert list(keys.before(asked)) == sorted((k for k in model if k < asked), reverse=True)
        assert list(keys.before()) == sorted(model, reverse=True)
    finally:
        ordered._PART = before


def test_a_hundred_thousand_move_no_more_than_a_part() -> None:
    keys = OrderedKeys[bytes]()
    for number in range(0, 200_000, 2):
        keys.add(b"%06d" % number)
    assert max(map(len, keys._parts)) <= 2 * ordered._PART
    keys.add(b"100001")
    assert list(islice(keys.behind(b"100000"), 2)) == [b"100001", b"100002"]
    for number in range(0, 200_000, 2):
        keys.discard(b"%06d" % number)
    assert list(keys.before()) == [b"100001"]
