"""Which tests belong to which board, by their names."""

import pytest

from boards.pytest_plugin import group_of

_IDS = ["pico", "pico-1", "esp32-a"]


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("t.py::test_a[pico-1]", "pico-1"),
        ("t.py::test_a[pico]", "pico"),
        ("t.py::test_a[7-pico-1]", "pico-1"),
        ("t.py::test_a[pico-1-7]", "pico-1"),
        ("t.py::T::test_a[x-esp32-a-y]", "esp32-a"),
        ("t.py::test_two[esp32-a+pico-1]", "esp32-a+pico-1"),
        ("t.py::test_pico", "t.py::test_pico"),
        ("t.py::test_a[picos]", "t.py::test_a[picos]"),
        ("t.py::test_a[no board]", "t.py::test_a[no board]"),
        ("t[pico].py::test_a", "t[pico].py::test_a"),
    ],
)
def test_a_test_belongs_to_the_board_in_its_parameters(nodeid: str, group: str) -> None:
    assert group_of(nodeid, _IDS) == group


def test_a_desk_without_boards_has_no_groups() -> None:
    assert group_of("t.py::test_a[x]", []) == "t.py::test_a[x]"
