"""A board's console as a readable file."""

import re
from pathlib import Path

from boards.session.serial_log import SerialLog


def test_every_line_has_its_time_and_marks_stand_out(tmp_path: Path) -> None:
    log = SerialLog(tmp_path / "b.serial.log")
    log.tap(b"node: conn")
    log.tap(b"ected\r\nnode: sent \x04")
    log.mark("check ping")
    log.tap(b"\xffend\n")
    log.close()
    lines = log.path.read_text().splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d\.\d{3} ", line) for line in lines)
    assert [line[13:] for line in lines] == [
        "node: connected",
        "node: sent \\x04",
        "---- check ping",
        "\\xffend",
    ]


def test_what_the_port_has_cut_in_two_is_whole_in_the_log(tmp_path: Path) -> None:
    log = SerialLog(tmp_path / "b.serial.log")
    for piece in (b"20 \xc2", b"\xb0C\r", b"\nnext\r", b"more\xf0\x9f", b"?\n"):
        log.tap(piece)
    log.close()
    lines = [line[13:] for line in log.path.read_text().splitlines()]
    assert lines == ["20 °C", "next", "more\\xf0\\x9f?"]


def test_a_board_in_a_reset_loop_does_not_fill_the_disk(tmp_path: Path) -> None:
    log = SerialLog(tmp_path / "b.serial.log")
    for _ in range(200):
        log.tap(b"Guru Meditation Error\r\n" * 2000)
    log.close()
    assert 1_000_000 < log.path.stat().st_size < 6_000_000
