"""How far a board is and how long it still takes, by how long former runs took."""

import time
from collections.abc import Mapping

from boards.reports.board_state import BoardState
from boards.session.plan import STEPS

# Where no former run tells: only the relation counts, for the bar.
_GUESSES_S = {"start": 2.0, "flash": 15.0, "install": 8.0, "telemetry": 10.0, "stop": 1.0}
_CHECK_S = 3.0
_ALMOST = 0.95  # a step that takes longer than usual is almost done, never done


class TimeEstimate:
    """Made of how many seconds each step and check of each board, (id, name), usually takes."""

    def __init__(self, usual_s: Mapping[tuple[str, str], float]) -> None:
        self._usual_s = usual_s

    def fraction(self, board: BoardState) -> float:
        """Return which share of its work a board has done, 0 to 1."""
        if board.outcome:
            return 1.0
        done = sum(self._expected(board, name) for name in self._all(board))
        total, remaining = done, board.remaining()
        for number, name in enumerate(remaining):
            expected = self._expected(board, name)
            done -= expected
            if number == 0:
                done += min(time.monotonic() - board.since_s, _ALMOST * expected)
        return max(0.0, done / total) if total else 0.0

    def left_s(self, board: BoardState) -> float | None:
        """Return the seconds that a board still needs; None where no former run tells."""
        remaining = [self._usual_s.get((board.id, name)) for name in board.remaining()]
        if board.outcome or not remaining or None in remaining:
            return None
        now, *later = [seconds for seconds in remaining if seconds is not None]
        return max(0.0, now - (time.monotonic() - board.since_s)) + sum(later)

    def _all(self, board: BoardState) -> list[str]:
        return [*(step for step in STEPS if step != "check"), *(board.job.checks or ["check"])]

    def _expected(self, board: BoardState, name: str) -> float:
        guess = _GUESSES_S.get(name, _CHECK_S)
        return max(0.01, self._usual_s.get((board.id, name), guess))
