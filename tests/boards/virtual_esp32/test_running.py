"""A board that runs MicroPython, driven by the real mpremote."""

import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from boards.virtual.board import VirtualBoard
from tests.boards.raw_repl import raw_repl, soft_reset_by_code

Tool = Callable[..., str]


def _wait_for_boots(board: VirtualBoard, boots: int) -> None:
    deadline = time.monotonic() + 60
    while (state := board.control.state()) != {"state": "running", "boots": boots}:
        assert time.monotonic() < deadline, state
        time.sleep(0.02)


def test_it_says_what_it_is(running: VirtualBoard, mpremote: Tool) -> None:
    code = "import machine, sys; print(sys.implementation._machine, machine.unique_id().hex())"
    said = mpremote(running, "exec", code)
    assert "Virtual ESP32" in said
    assert "not ESP32 code" in said
    assert running.address.uid in said
    assert running.address.uid.startswith(b"vir".hex())
    assert len(running.address.uid) == 12


def test_the_heap_is_that_of_a_small_board(running: VirtualBoard, mpremote: Tool) -> None:
    free = int(mpremote(running, "exec", "import gc; gc.collect(); print(gc.mem_free())"))
    assert 150_000 < free < 160 * 1024


def test_the_board_sees_its_own_files_only(running: VirtualBoard, mpremote: Tool) -> None:
    assert mpremote(running, "exec", "import os; print(os.listdir('/'))").strip() == "[]"


def test_files_go_both_ways(running: VirtualBoard, mpremote: Tool, tmp_path: Path) -> None:
    content = bytes(range(256)) * 40
    (tmp_path / "in.bin").write_bytes(content)
    mpremote(running, "fs", "mkdir", ":lib", "+", "fs", "cp", tmp_path / "in.bin", ":lib/x.bin")
    assert "10240 x.bin" in mpremote(running, "fs", "ls", ":lib")
    mpremote(running, "fs", "cp", ":lib/x.bin", tmp_path / "out.bin")
    assert (tmp_path / "out.bin").read_bytes() == content


def test_modules_are_imported_from_lib(
    running: VirtualBoard, mpremote: Tool, tmp_path: Path
) -> None:
    (tmp_path / "greeting.py").write_text("TEXT = 'from lib'\n")
    mpremote(running, "fs", "mkdir", ":lib", "+", "fs", "cp", tmp_path / "greeting.py", ":lib/")
    assert "from lib" in mpremote(running, "exec", "import greeting; print(greeting.TEXT)")


def test_mount_and_run(running: VirtualBoard, mpremote: Tool, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print('ran', __name__)\n")
    assert "ran __main__" in mpremote(running, "run", tmp_path / "mine.py")
    assert "ran mine" in mpremote(running, "mount", tmp_path, "exec", "import mine")


def test_files_survive_resets_and_a_new_process(
    running: VirtualBoard, state_dir: Path, mpremote: Tool
) -> None:
    read = "print(open('kept.txt').read())"
    mpremote(running, "exec", "with open('kept.txt', 'w') as f: f.write('still here')")
    mpremote(running, "soft-reset")
    assert "still here" in mpremote(running, "exec", read)
    mpremote(running, "reset")
    _wait_for_boots(running, 2)
    assert "still here" in mpremote(running, "exec", read)
    running.control.reset()
    assert running.control.state() == {"state": "running", "boots": 3}
    assert "still here" in mpremote(running, "exec", read)
    running.stop()
    with VirtualBoard.start("esp32", "esp32-1", state_dir) as again:
        assert again.address.uid == running.address.uid
        assert "still here" in mpremote(again, "exec", read)


def _reset_by_code(board: VirtualBoard) -> None:
    """Run ``machine.reset()`` and wait for the boot that follows."""
    with raw_repl(board) as line:
        line.sendall(b"import machine; machine.reset()\x04")
        _wait_for_boots(board, 2)


@pytest.mark.parametrize(
    ("restart", "cause"),
    [(_reset_by_code, 2), (soft_reset_by_code, 5)],
    ids=["machine.reset", "machine.soft_reset"],
)
def test_the_board_knows_why_it_started(
    running: VirtualBoard, mpremote: Tool, restart: Callable[[VirtualBoard], None], cause: int
) -> None:
    ask = "import machine; print(machine.reset_cause())"
    assert mpremote(running, "resume", "exec", ask).strip() == "1"
    restart(running)
    assert mpremote(running, "resume", "exec", ask).strip() == str(cause)


def test_main_runs_at_power_on_and_ctrl_c_gives_a_repl(
    running: VirtualBoard, mpremote: Tool, tmp_path: Path
) -> None:
    (tmp_path / "main.py").write_text("n = 0\nwhile True: n += 1\n")
    mpremote(running, "fs", "cp", tmp_path / "main.py", ":main.py")
    running.control.reset()
    time.sleep(0.3)  # give main.py the time to be running; a shorter or longer wait passes too
    assert mpremote(running, "resume", "eval", "n > 0").strip() == "True"


def test_a_board_that_floods_the_line_can_be_interrupted(
    running: VirtualBoard, mpremote: Tool
) -> None:
    mpremote(running, "exec", "--no-follow", "while True: print('x' * 100)")
    assert mpremote(running, "resume", "eval", "1 + 1").strip() == "2"


@pytest.mark.parametrize("size", [4094, 4095, 10_000, 100_000])
def test_ctrl_c_gets_through_a_full_input(running: VirtualBoard, mpremote: Tool, size: int) -> None:
    """A terminal holds 4,095 bytes, and the kernel some more for it."""
    mpremote(running, "exec", "--no-follow", "while True: pass")
    port = int(running.address.serial_urls["socket"].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), 10) as line:
        line.sendall(b"x" * size)
    assert mpremote(running, "resume", "eval", "1 + 1").strip() == "2"


def test_the_board_opens_tcp_connections_to_the_host(running: VirtualBoard, mpremote: Tool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def echo() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(connection.recv(100).upper())

        server = threading.Thread(target=echo)
        server.start()
        said = mpremote(
            running,
            "exec",
            "import socket\ns = socket.socket()\n"
            f"s.connect(socket.getaddrinfo('127.0.0.1', {listener.getsockname()[1]})[0][-1])\n"
            "s.write(b'hello')\nprint(s.read(5))",
        )
        server.join(20)
    assert "b'HELLO'" in said


def test_what_a_program_does_not_read_in_time_is_lost_as_in_a_uart(
    running: VirtualBoard, mpremote: Tool
) -> None:
    """The driver of an ESP32's UART holds 260 bytes, and says nothing of what it drops."""
    code = (
        "import sys, time, select\ntime.sleep(1)\np = select.poll()\n"
        "p.register(sys.stdin, 1)\nn = 0\nwhile p.poll(300):\n"
        "    sys.stdin.buffer.read(1)\n    n += 1\nprint('had', n)"
    )
    mpremote(running, "exec", "--no-follow", code)
    port = int(running.address.serial_urls["socket"].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), 10) as line:
        line.settimeout(20)
        line.sendall(b"x" * 1000)
        said = b""
        while b"had" not in said or not said.endswith(b">"):
            said += line.recv(4096)
    (count,) = re.findall(rb"had (\d+)", said)
    assert 200 <= int(count) <= 264
