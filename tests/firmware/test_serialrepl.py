"""The REPL that serialrepl gives the unix port is a board's, byte for byte, on a real terminal."""

import os
import select
import subprocess
import time
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

_RAW_BANNER = b"raw REPL; CTRL-B to exit\r\n>"


class _Terminal:
    """A program on a pty, read with a deadline."""

    def __init__(self, argv: list[str]) -> None:
        self._master, slave = os.openpty()
        tty.setraw(slave)
        self.process = subprocess.Popen(argv, preexec_fn=lambda: os.login_tty(slave))
        os.close(slave)

    def type(self, data: bytes) -> None:
        os.write(self._master, data)

    def read_until(self, end: bytes, within_s: float = 60.0) -> bytes:
        deadline = time.monotonic() + within_s
        seen = b""
        while not seen.endswith(end):
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self._master], [], [], left)[0], (
                f"waited for {end!r}, saw {seen!r}"
            )
            seen += os.read(self._master, 4096)
        return seen

    def close(self) -> None:
        os.close(self._master)
        self.process.wait(60)


@pytest.fixture
def repl(unix_port: Path) -> Iterator[_Terminal]:
    code = "import serialrepl; serialrepl.open(False); print('soft', serialrepl.repl())"
    terminal = _Terminal([str(unix_port), "-c", code])
    try:
        terminal.read_until(b">>> ")
        yield terminal
    finally:
        terminal.close()


def _enter_raw(repl: _Terminal) -> None:
    repl.type(b"\x01")
    repl.read_until(_RAW_BANNER)


def _execute(repl: _Terminal, code: bytes) -> bytes:
    repl.type(code + b"\x04")
    return repl.read_until(b"\x04>")


def test_the_friendly_repl_ends_lines_as_boards_do(repl: _Terminal) -> None:
    repl.type(b"print(6 * 7)\r")
    assert repl.read_until(b">>> ") == b"print(6 * 7)\r\n42\r\n>>> "


def test_the_raw_repl_answers_as_mpremote_expects(repl: _Terminal) -> None:
    _enter_raw(repl)
    assert _execute(repl, b"print(6 * 7)") == b"OK42\r\n\x04\x04>"


def test_an_exception_comes_on_the_error_channel(repl: _Terminal) -> None:
    _enter_raw(repl)
    answer = _execute(repl, b"1/0")
    assert answer.startswith(b"OK\x04Traceback")
    assert b"ZeroDivisionError" in answer


def test_line_feeds_in_source_stay_line_feeds(repl: _Terminal) -> None:
    _enter_raw(repl)
    assert _execute(repl, b"print(repr('''a\nb'''))") == b"OK'a\\nb'\r\n\x04\x04>"


def test_binary_output_is_not_changed(repl: _Terminal) -> None:
    _enter_raw(repl)
    code = b"import sys\nsys.stdout.buffer.write(bytes(range(5, 32)))\nprint()"
    assert _execute(repl, code) == b"OK" + bytes(range(5, 32)) + b"\r\n\x04\x04>"


def test_raw_paste_has_flow_control(repl: _Terminal) -> None:
    _enter_raw(repl)
    repl.type(b"\x05A\x01")
    repl.read_until(b"R\x01\x80\x00\x01")  # supported; a window of 128 bytes; go on
    repl.type(b"print('pasted')\x04")
    assert repl.read_until(b"\x04>") == b"\x04pasted\r\n\x04\x04>"


def test_ctrl_c_interrupts_a_loop(repl: _Terminal) -> None:
    _enter_raw(repl)
    repl.type(b"print('go')\nwhile True: pass\x04")
    repl.read_until(b"OKgo\r\n")
    repl.type(b"\x03")
    assert b"KeyboardInterrupt" in repl.read_until(b"\x04>")
    assert _execute(repl, b"print('alive')") == b"OKalive\r\n\x04\x04>"


def test_ctrl_c_interrupts_a_sleep(repl: _Terminal) -> None:
    _enter_raw(repl)
    for _ in range(20):
        repl.type(b"import time\nprint('go')\ntime.sleep(300)\x04")
        repl.read_until(b"OKgo\r\n")
        repl.type(b"\x03")
        assert b"KeyboardInterrupt" in repl.read_until(b"\x04>")


_LATE_SIGNAL = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <sys/select.h>
int select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *t) {
    static int calls;
    if (t && t->tv_sec >= 300 && calls++ == 0) {
        raise(SIGINT);
    }
    int (*next)(int, fd_set *, fd_set *, fd_set *, struct timeval *) = dlsym(RTLD_NEXT, "select");
    return next(n, r, w, e, t);
}
"""


def test_a_ctrl_c_on_the_way_into_a_sleep_is_not_lost(unix_port: Path, tmp_path: Path) -> None:
    """The signal comes after the interpreter's last look and before it waits in the kernel."""
    library = tmp_path / "late.so"
    source = tmp_path / "late.c"
    source.write_text(_LATE_SIGNAL)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    code = "import serialrepl; serialrepl.open(True); serialrepl.repl()"
    repl = _Terminal(["env", f"LD_PRELOAD={library}", str(unix_port), "-c", code])
    try:
        repl.read_until(_RAW_BANNER)
        repl.type(b"import time\ntime.sleep(300)\x04")
        assert b"KeyboardInterrupt" in repl.read_until(b"\x04>")
        # And the signals that follow it have ended: this sleep is a whole one.
        repl.type(
            b"t = time.ticks_ms()\ntime.sleep(0.1)\n"
            b"print(time.ticks_diff(time.ticks_ms(), t) >= 100)\x04"
        )
        assert repl.read_until(b"\x04>") == b"OKTrue\r\n\x04\x04>"
    finally:
        repl.close()


def test_ctrl_c_can_be_data(repl: _Terminal) -> None:
    _enter_raw(repl)
    repl.type(
        b"import micropython, sys\nmicropython.kbd_intr(-1)\nprint('go')\n"
        b"print(sys.stdin.buffer.read(3))\nmicropython.kbd_intr(3)\x04"
    )
    repl.read_until(b"OKgo\r\n")
    repl.type(b"\x03\x03\x03")
    assert repl.read_until(b"\x04>") == b"b'\\x03\\x03\\x03'\r\n\x04\x04>"


def test_a_read_waits_for_all_that_was_asked_for(repl: _Terminal) -> None:
    _enter_raw(repl)
    repl.type(b"import sys\nprint('go')\nprint(sys.stdin.buffer.read(3), sys.stdin.read(2))\x04")
    repl.read_until(b"OKgo\r\n")
    repl.type(b"a\r")
    with pytest.raises(AssertionError, match="waited for"):
        repl.read_until(b"\x04>", within_s=0.2)
    repl.type(b"b\rc")
    assert repl.read_until(b"\x04>") == b"b'a\\rb' \nc\r\n\x04\x04>".replace(b"\nc", b"\r\nc")


def test_code_runs_in_main(repl: _Terminal) -> None:
    _enter_raw(repl)
    assert _execute(repl, b"print(__name__)") == b"OK__main__\r\n\x04\x04>"


@pytest.mark.parametrize("raw", [False, True])
def test_ctrl_d_asks_for_a_soft_reset(repl: _Terminal, raw: bool) -> None:
    if raw:
        _enter_raw(repl)
    repl.type(b"\x04")
    repl.read_until(b"soft True\r\n" if raw else b"soft False\r\n")


def test_a_line_that_hangs_up_ends_the_interpreter(unix_port: Path) -> None:
    code = "import serialrepl; serialrepl.open(False); serialrepl.repl()"
    terminal = _Terminal([str(unix_port), "-c", code])
    terminal.read_until(b">>> ")
    terminal.close()
    assert terminal.process.returncode != 0
