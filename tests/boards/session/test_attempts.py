"""A verdict is never asked for twice; what is none is, as often as allowed."""

import pytest

from boards.session.verdicts import attempted


@pytest.mark.parametrize(
    ("outcomes", "tries", "asked", "recoveries"),
    [
        (["passed"], 3, [1], 0),
        (["not run"], 3, [1], 1),
        (["failed", "passed"], 3, [1], 1),
        (["quarantined", "passed"], 3, [1], 1),
        (["error", "passed"], 3, [1, 2], 1),
        (["error", "failed", "passed"], 3, [1, 2], 2),
        (["error"] * 3, 3, [1, 2, 3], 3),
        (["error", "passed"], 1, [1], 1),
    ],
)
def test_only_what_is_no_verdict_is_tried_again(
    outcomes: list[str], tries: int, asked: list[int], recoveries: int
) -> None:
    numbers: list[int] = []
    recovered: list[bool] = []

    def once(number: int) -> str:
        numbers.append(number)
        return outcomes[number - 1]

    last = attempted(once, lambda: recovered.append(True), tries=tries)
    assert last == outcomes[len(asked) - 1]
    assert numbers == asked
    assert len(recovered) == recoveries
