"""Which readings are copies, by numbers alone."""

from hypothesis import given
from hypothesis import strategies as st

from motemq_pipeline.silver import WINDOW, Arrivals

_READINGS = st.tuples(
    st.integers(1, 3),
    st.sampled_from(["t", "h"]),
    st.one_of(st.integers(0, 20), st.integers(WINDOW - 20, WINDOW + 20), st.integers(0, 2**63)),
)


@given(st.lists(_READINGS, max_size=60))
def test_nothing_is_a_copy_that_did_not_come_and_none_is_missed_in_the_window(
    readings: list[tuple[int, str, int]],
) -> None:
    arrivals = Arrivals()
    came: dict[tuple[int, str], set[int]] = {}
    for connection, sensor, number in readings:
        before = came.setdefault((connection, sensor), set())
        known = number > max(before, default=0) - WINDOW
        first = arrivals.first(connection, sensor, number)
        assert first == (number not in before or not known)
        before.add(number)
        arrivals = Arrivals.from_bytes(arrivals.to_bytes())  # as between two batches


def test_what_is_remembered_of_a_board_is_bounded() -> None:
    arrivals = Arrivals()
    for connection in range(100):
        for sensor in range(100):
            for number in range(0, 3 * WINDOW, 1000):
                assert arrivals.first(connection, str(sensor), number)
    assert len(arrivals.to_bytes()) < 8 * 64 * 32
    assert not arrivals.first(99, "99", 3 * WINDOW // 1000 * 1000)
    assert arrivals.first(99, "0", 0)
    assert arrivals.first(0, "99", 0)
