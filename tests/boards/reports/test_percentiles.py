"""Percentiles of samples."""

import pytest

from boards.reports.axes import percentile


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([7.0], 99, 7.0),
        ([1.0, 2.0, 3.0, 4.0], 50, 2.5),
        ([4.0, 1.0, 3.0, 2.0], 0, 1.0),
        ([4.0, 1.0, 3.0, 2.0], 100, 4.0),
        (list(map(float, range(101))), 90, 90.0),
    ],
)
def test_interpolates_between_neighbours(
    values: list[float], percent: float, expected: float
) -> None:
    assert percentile(values, percent) == pytest.approx(expected)


@pytest.mark.parametrize(("values", "percent"), [([], 50), ([1.0], 101), ([1.0], -1)])
def test_refuses_what_has_no_answer(values: list[float], percent: float) -> None:
    with pytest.raises(ValueError, match="values"):
        percentile(values, percent)
