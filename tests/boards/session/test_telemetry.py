"""The verdict over telemetry that an observer received."""

import json

import pytest

from boards.session.board_session import CheckFailed, expect_texts
from boards.session.observer import Seen
from boards.session.telemetry import expect_all


def _seen(*numbers: int) -> list[Seen]:
    return [Seen("t", json.dumps({"seq": number}), number) for number in numbers]


def test_all_in_order_passes() -> None:
    expect_all(_seen(0, 1, 2, 3), 3)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((0, 1, 3), "got 3 .0 doubled, 1 missing, first .2"),
        ((0, 1, 1, 2, 3), "got 5 .1 doubled, 0 missing"),
        ((0, 2, 1, 3), "in order, got 4"),
        ((), "got 0"),
        ((0, 1, 2, 3, 4), "got 5"),
    ],
)
def test_a_gap_a_double_or_a_swap_fails(numbers: tuple[int, ...], words: str) -> None:
    with pytest.raises(CheckFailed, match=words):
        expect_all(_seen(*numbers), 3)


@pytest.mark.parametrize("text", ["no json", "[]", "{}", '{"seq": "x"}'])
def test_what_is_no_telemetry_fails(text: str) -> None:
    with pytest.raises(CheckFailed, match=r"not as docs/node\.md says"):
        expect_all([Seen("t", text, 0)], 0)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["a"], "missing ..b"),
        (["a", "b", "c"], "unexpected ..c"),
        (["b", "a"], "as they came"),
        (["a", "b", "b"], "got 3"),
    ],
)
def test_expected_texts_must_come_exactly(texts: list[str], words: str) -> None:
    expect_texts(["a", "b"], [Seen("t", text, 0) for text in ("a", "b")])
    with pytest.raises(CheckFailed, match=words):
        expect_texts(["a", "b"], [Seen("t", text, 0) for text in texts])
