"""Both ends in simulated time on a line that is a console, which a REPL has in between."""

import pytest

from tests.boards.bridge.link.pair import Pair

_HOLDS = 240  # as on RP2, whose driver holds 511


class _Pair(Pair):
    """A board whose program runs for ``runs_ms``, ends, and goes on ``rests_ms`` later.

    The link is the same then, as in steps that a raw REPL runs. Meanwhile that reads the line: what
    the host says is lost on it, and must be little. ``busy_ms``: so long the program computes, now
    and then, and reads nothing.
    """

    def __init__(
        self,
        seed: int,
        baud: int = 115200,
        *,
        load: int = 10_000,
        runs_ms: int = 1 << 30,
        rests_ms: int = 0,
        busy_ms: int = 0,
    ) -> None:
        super().__init__(seed, baud, load=load, holds=_HOLDS)
        self.most_unread = self.to_repl = self.rests = 0
        self._runs_ms, self._rests_ms, self._busy_ms = runs_ms, rests_ms, busy_ms
        self._change_at, self._busy_until = runs_ms, 0
        self._is_running = True

    def _board_turn(self) -> None:
        self.most_unread = max(self.most_unread, len(self.to_board.peek(1 << 20)))
        if self.now_ms >= self._change_at:
            self._is_running = not self._is_running
            self._change_at += self._runs_ms if self._is_running else self._rests_ms
            if not self._is_running:
                self.rests += 1
                self.to_host.insert(b'AGENT {"ok": true}\r\n\x04\x04>')
        if not self._is_running:
            self.to_repl += len(self.to_board.read(1 << 20))
            return
        if self._busy_ms and self.rng.random() < 0.002:
            self._busy_until = self.now_ms + self._busy_ms
        if self.now_ms >= self._busy_until:
            super()._board_turn()


@pytest.mark.parametrize("baud", [115200, 921600])
def test_all_arrives_and_no_more_is_unread_than_a_console_holds(baud: int) -> None:
    for seed in range(6):
        pair = _Pair(seed, baud, busy_ms=400)
        assert pair.run(pair.done, 120), (seed, pair.log, pair.host.counters)
        assert len(pair.log) == 1
        # Twice what it says: as much may be on the way while the board says that it reads.
        assert pair.most_unread <= 511


def test_little_goes_to_the_repl_between_two_runs_and_the_link_goes_on() -> None:
    for seed in range(6):
        pair = _Pair(seed, 921600, runs_ms=40, rests_ms=1500)
        assert pair.run(pair.done, 240), (seed, pair.log, pair.host.counters)
        assert len(pair.log) == 1
        assert pair.rests > 3
        # What was on its way as the program ended, and one frame that said so too late.
        assert pair.to_repl <= pair.rests * 511


def test_a_board_that_does_not_come_back_is_given_up() -> None:
    pair = _Pair(1, load=1 << 20, runs_ms=2000, rests_ms=1 << 30)
    pair.run_for(10)
    assert pair.last.host_ended is not None
    assert "5 s" in pair.last.host_ended.reason
    assert pair.to_repl <= 511
