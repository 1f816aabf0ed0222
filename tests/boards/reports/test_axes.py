"""Amounts are short and ticks are round."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from boards.reports.axes import Scale, amount, linear, logarithmic, short

_VALUES = st.lists(st.floats(1e-9, 1e12), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (1500, "us", "1.5 ms"),
        (999, "us", "999 µs"),
        (2_500_000, "us", "2.5 s"),
        (0.85, "ms", "850 µs"),
        (0, "ms", "0 ms"),
        (75.25, "s", "75.2 s"),
        (65536, "bytes", "64 KiB"),
        (-12, "B", "-12 B"),
        (3, "msg/s", "3 msg/s"),
        (7, "", "7"),
        (38.83, "bytes per 1000 messages", "38.8 B per 1k"),
    ],
)
def test_amounts(value: float, unit: str, shown: str) -> None:
    assert amount(value, unit) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (1234567, "1.23e+06"),
        (1234, "1234"),
        (0.5, "0.5"),
        (100, "100"),
        (0.00001, "1e-05"),
    ],
)
def test_numbers(value: float, shown: str) -> None:
    assert short(value) == shown


@given(_VALUES)
def test_a_logarithmic_axis_holds_its_values(values: list[float]) -> None:
    axis = logarithmic(values)
    places = [axis.place(value) for value in sorted(values)]
    assert places == sorted(places)
    assert places[0] >= 0
    assert places[-1] <= 100
    assert axis.low <= min(values) * 1.0001
    assert axis.high >= max(values) * 0.9999
    assert 2 <= len(axis.ticks()) <= 8


@given(st.lists(st.floats(-1e6, 1e12), max_size=30))
@example([5e-324])  # a fifth of it is no float
def test_a_linear_axis_holds_its_values_and_zero(values: list[float]) -> None:
    axis = linear(values)
    assert axis.low <= min([0, *values])
    assert axis.high >= max([0, *values])
    assert 2 <= len(axis.ticks()) <= 7


def test_a_place_is_within_the_axis() -> None:
    assert Scale(0, 10).place(5) == 50
    assert Scale(0, 10).place(-1) == 0
    assert Scale(0, 10).place(99) == 100
    assert Scale(1, 100, is_log=True).place(10) == pytest.approx(50)
    assert Scale(1, 100, is_log=True).place(0) == 0
