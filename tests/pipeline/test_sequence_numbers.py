"""Which numbers of a stream are missing, against a set of those that came."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from motemq_pipeline.sequence_numbers import MOST_MISSING, Numbers, ranges_of

_STREAMS = 3
# Of each: its stream and its number.
_ARRIVALS = st.lists(st.tuples(st.integers(0, _STREAMS - 1), st.integers(0, 60)), max_size=80)


@given(st.lists(_ARRIVALS, max_size=8))
def test_what_is_missing_is_what_did_not_come(batches: list[list[tuple[int, int]]]) -> None:
    each, all_came = [Numbers() for _ in range(_STREAMS)], [set[int]() for _ in range(_STREAMS)]
    for batch in batches:
        arrived = np.array(batch, np.int64).reshape(-1, 2)
        ranges, of_stream = ranges_of(arrived[:, 0], arrived[:, 1])
        for stream, came in enumerate(all_came):
            of_it = ranges[of_stream == stream].tolist()
            each[stream].take([(first, last) for first, last in of_it])
            came |= {number for of, number in batch if of == stream}
            each[stream] = _as_expected(each[stream], came)


def _as_expected(numbers: Numbers, came: set[int]) -> Numbers:
    """Look at what is known of the numbers that came; return it as tables keep it."""
    if numbers.first is not None:
        numbers = Numbers.from_text(numbers.first, numbers.expected, numbers.to_text())
    missing = set(range(min(came, default=0), max(came, default=-1) + 1)) - came
    found = [n for first, last in numbers.missing for n in range(first, last + 1)]
    assert found == sorted(missing)
    assert numbers.gaps == len(missing)
    assert numbers.first == min(came, default=None)
    assert numbers.expected == max(came, default=-1) + 1
    assert numbers.different == len(came)
    assert [n for low, high in numbers.arrived() for n in range(low, high + 1)] == sorted(came)
    return numbers


def test_of_very_many_gaps_the_oldest_are_only_counted() -> None:
    numbers = Numbers()
    numbers.take([(number, number) for number in range(1, 2 * MOST_MISSING + 23, 2)])
    assert len(numbers.missing) == MOST_MISSING
    assert (numbers.given_up, numbers.gaps) == (10, MOST_MISSING + 10)
    assert numbers.to_text().startswith("10 older ones, 22, 24")
    assert Numbers.from_text(1, numbers.expected, numbers.to_text()) == numbers
    numbers.take([(2, 2)])  # too late to be known as missing
    assert numbers.gaps == MOST_MISSING + 10
