"""Without power nothing runs; what is in flash is there when it is back."""

from collections.abc import Callable

import pytest

from boards.virtual.board import BoardError, VirtualBoard

Mpremote = Callable[..., str]


def test_the_power_is_cut_and_comes_back(
    board: VirtualBoard, mpremote: Mpremote, wait_for_boots: Callable[[VirtualBoard, int], None]
) -> None:
    mpremote(board, "exec", "with open('kept.txt', 'w') as f: f.write('still here')")
    boots = board.control.state()["boots"]
    board.control.power(on=False)
    assert board.control.state() == {"state": "held", "boots": boots}
    with pytest.raises(BoardError, match="no power"):
        board.control.reset()
    with pytest.raises(BoardError, match="no power"):
        board.control.boot()
    board.control.power(on=True)
    wait_for_boots(board, boots + 1)
    code = "import machine; print(open('kept.txt').read(), machine.reset_cause())"
    assert mpremote(board, "exec", code).split() == ["still", "here", "1"]
