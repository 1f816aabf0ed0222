"""The log of a bridge: a reader that stops, or goes, stops nothing."""

import threading

from boards.bridge.log import Log
from tests.boards.serial_board import DEADLINE_S


def test_a_reader_that_stops_costs_lines_and_never_time() -> None:
    written: list[str] = []
    may_go = threading.Event()

    def write(line: str) -> None:
        assert may_go.wait(DEADLINE_S)
        written.append(line)

    with Log(write) as log:
        for number in range(5000):
            log.say(str(number))
        may_go.set()
    assert written[0] == "0"
    assert written[1].endswith("lines were dropped: nobody read them")
    dropped = int(written[1].split()[0])
    assert len(written) - 1 + dropped == 5000
    assert len(written) <= 1003


def test_a_reader_that_went_away_is_forgotten() -> None:
    tried: list[str] = []

    def write(line: str) -> None:
        tried.append(line)
        raise BrokenPipeError

    with Log(write) as log:
        log.say("one")
        log.say("two")
    assert tried == ["one", "two"]
