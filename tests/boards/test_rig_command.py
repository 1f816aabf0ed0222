"""``motemq rig run`` with virtual boards and a real broker, watched from outside."""

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from firmware import build

_RUN_S = 240.0
_ALL_CHECKS = ["pubsub_up", "pubsub_down", "ping", "will_clean", "will_abrupt"]
_UF2_BLOCK = 512


@dataclass(frozen=True)
class _Broker:
    fmqp: str
    lightmq: str

    def options(self) -> list[str]:
        return ["--fmqp", self.fmqp, "--lightmq", self.lightmq]


@pytest.fixture(scope="module")
def broker() -> Iterator[_Broker]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "motemq", "broker", "--ephemeral"),
            *("--listen", "fmqp://127.0.0.1:0", "--listen", "lightmq://127.0.0.1:0"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        lines = [process.stdout.readline().split() for _ in range(2)]
        ports = {line[1]: line[2] for line in lines}  # listening PROTOCOL HOST:PORT
        yield _Broker(ports["fmqp"], ports["lightmq"])
        process.terminate()
        process.wait(20)


def _rig(out: Path, broker: _Broker, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", "motemq", "rig", "run", "--out", str(out)]
    return [*command, *broker.options(), *arguments]


def _run(out: Path, broker: _Broker, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        _rig(out, broker, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_RUN_S,
    )


def _rows(out: Path, name: str) -> list[dict[str, Any]]:
    paths = sorted((out / "rig").glob(f"date=*/rig=*/run=*/{name}"))
    return [json.loads(line) for line in paths[-1].read_text().splitlines()]


def _outcomes(out: Path, board: str, event: str, column: str) -> dict[str, str]:
    return {
        row[column]: row["outcome"]
        for row in _rows(out, "events.jsonl")
        if row["board_id"] == board and row["event"] == event
    }


def _processes_naming(word: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            work = os.readlink(folder / "cwd") + str(_stdin_job(folder))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if word in command + work and int(folder.name) != os.getpid():
            found.append(command)
    return found


def _stdin_job(folder: Path) -> list[str]:
    # A worker's command line names no folder, but the log that is its stderr does.
    return [os.readlink(fd) for fd in (folder / "fd").glob("2")]


def _eventually(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def _uf2_that_hangs(path: Path) -> Path:
    """Our own firmware with an endless loop where the second stage hands over to it."""
    data = bytearray(build.ensure("rpi_pico").read_bytes())
    for start in range(0, len(data), _UF2_BLOCK):
        (address,) = struct.unpack_from("<I", data, start + 12)
        if address == 0x10000100:  # the vector table: initial stack, reset vector
            (reset,) = struct.unpack_from("<I", data, start + 36)
            break
    else:
        pytest.fail("no vector table in the UF2")
    target = reset & ~1
    for start in range(0, len(data), _UF2_BLOCK):
        address, size = struct.unpack_from("<II", data, start + 12)
        if address <= target < address + size:
            struct.pack_into("<H", data, start + 32 + target - address, 0xE7FE)  # b .
            path.write_bytes(data)
            return path
    pytest.fail("the reset handler is not in the UF2")


def test_three_boards_pass_from_blank_flash(broker: _Broker, tmp_path: Path) -> None:
    result = _run(tmp_path, broker, "--virtual", "rp2040:2", "--virtual", "esp32:1")
    assert result.returncode == 0, result.stdout
    boards = ["vpico-1", "vpico-2", "vesp32-1"]
    for board in boards:
        assert _outcomes(tmp_path, board, "check_finished", "check") == dict.fromkeys(
            _ALL_CHECKS, "passed"
        )
        steps = _outcomes(tmp_path, board, "step_finished", "step")
        assert steps == dict.fromkeys(
            ["start", "flash", "install", "check", "telemetry", "stop"], "passed"
        )
        log = (tmp_path / "logs" / f"{board}.serial.log").read_text()
        assert "node: done 600" in log
    samples = _rows(tmp_path, "samples.jsonl")
    for board in boards:
        of_board = [row for row in samples if row["board_id"] == board]
        rtts = [row for row in of_board if row["metric"] == "rtt"]
        assert [row["seq"] for row in rtts] == list(range(50))
        assert {row["unit"] for row in rtts} == {"us"}
        assert all(0 < row["value"] < 5e6 for row in rtts)
        delays = {row["check"]: row["value"] for row in of_board if row["metric"] == "will_delay"}
        assert set(delays) == {"will_clean", "will_abrupt"}
        assert all(0 <= value < 15_000 for value in delays.values())
    last = _rows(tmp_path, "events.jsonl")[-1]
    assert (last["event"], last["outcome"]) == ("run_finished", "passed")
    assert _processes_naming(str(tmp_path)) == []


def test_a_board_that_never_answers_is_a_rig_fault_and_the_others_pass(
    broker: _Broker, tmp_path: Path
) -> None:
    dead = _uf2_that_hangs(tmp_path / "dead.uf2")
    out = tmp_path / "out"
    result = _run(
        *(out, broker, "--virtual", "rp2040:2"),
        *("--image", f"vpico-1={dead}", "--limit", "flash=15"),
    )
    assert result.returncode == 3, result.stdout
    steps = _outcomes(out, "vpico-1", "step_finished", "step")
    assert steps["start"] == "passed"
    assert [steps[step] for step in ("flash", "install", "check", "telemetry")] == ["error"] * 4
    assert "no raw REPL within" in result.stdout
    assert f"{out}/logs/vpico-1.serial.log" in result.stdout
    assert set(_outcomes(out, "vpico-2", "check_finished", "check").values()) == {"passed"}
    assert _outcomes(out, "vpico-2", "step_finished", "step")["telemetry"] == "passed"


def test_a_broken_corrupted_image_is_refused_by_the_board(broker: _Broker, tmp_path: Path) -> None:
    image = tmp_path / "wrong.uf2"
    data = bytearray(build.ensure("rpi_pico").read_bytes())
    for start in range(0, len(data), _UF2_BLOCK):
        struct.pack_into("<I", data, start + 28, 0x12345678)  # another family
    image.write_bytes(data)
    result = _run(
        *(tmp_path / "out", broker, "--virtual", "rp2040:1"),
        *("--image", f"vpico-1={image}", "--limit", "flash=6"),
    )
    assert result.returncode == 3, result.stdout
    assert "the boot loader did not take wrong.uf2" in result.stdout


def test_code_that_fails_is_a_failed_check_and_not_a_rig_fault(
    broker: _Broker, tmp_path: Path
) -> None:
    # The LightMQ board meets a broker that answers FMQP there: its connects get no answer.
    wrong = _Broker(broker.fmqp, broker.fmqp)
    result = _run(tmp_path, wrong, "--virtual", "rp2040:2", "--limit", "check=15")
    assert result.returncode == 1, result.stdout
    failed = _outcomes(tmp_path, "vpico-2", "check_finished", "check")
    assert failed
    assert set(failed.values()) == {"failed"}
    assert set(_outcomes(tmp_path, "vpico-1", "check_finished", "check").values()) == {"passed"}
    messages = [
        row["message"]
        for row in _rows(tmp_path, "events.jsonl")
        if row["event"] == "check_finished" and row["outcome"] == "failed"
    ]
    assert len(messages) == len(failed)
    assert all(message in result.stdout for message in messages)
    assert "connect: " in messages[0]


def _start_and_wait_for(line: str, command: list[str]) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    seen = []
    for text in process.stdout:
        seen.append(text)
        if line in text:
            return process
    process.wait(20)
    pytest.fail(f"no {line!r} in: " + "".join(seen))


@pytest.mark.parametrize("moment", ["flash …", "install …", "check …", "telemetry …"])
def test_ctrl_c_leaves_no_process_and_whole_lines(
    broker: _Broker, tmp_path: Path, moment: str
) -> None:
    command = _rig(tmp_path, broker, "--virtual", "rp2040:1", "--virtual", "esp32:1")
    rig = _start_and_wait_for(moment, command)
    assert rig.stdout is not None
    with rig.stdout:
        os.killpg(rig.pid, signal.SIGINT)
        rest = rig.stdout.read()
    assert rig.wait(60) == 130, rest
    assert "Traceback" not in rest
    assert "interrupted" in rest
    assert _processes_naming(str(tmp_path)) == []
    assert _rows(tmp_path, "events.jsonl")[-1]["event"] != "run_finished"


@pytest.mark.parametrize("moment", ["flash …", "install …", "check …", "telemetry …"])
def test_a_killed_rig_leaves_no_process_and_whole_lines(
    broker: _Broker, tmp_path: Path, moment: str
) -> None:
    command = _rig(tmp_path, broker, "--virtual", "rp2040:1", "--virtual", "esp32:1")
    rig = _start_and_wait_for(moment, command)
    assert rig.stdout is not None
    with rig.stdout:
        rig.kill()
        rig.wait(20)
    _eventually(
        lambda: _processes_naming(str(tmp_path)) == [],
        30,
        f"still there: {_processes_naming(str(tmp_path))}",
    )
    assert _rows(tmp_path, "events.jsonl")[-1]["event"] != "run_finished"


def test_a_killed_worker_is_an_error_of_its_board_only(broker: _Broker, tmp_path: Path) -> None:
    command = _rig(tmp_path, broker, "--virtual", "rp2040:1", "--virtual", "esp32:1")
    rig = _start_and_wait_for("vpico-1: check …", command)
    (worker,) = [
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if f"{tmp_path}/logs/vpico-1.worker.log" in _links(folder / "fd" / "2")
        and b"boards.rig.worker" in (folder / "cmdline").read_bytes()
    ]
    os.kill(worker, signal.SIGKILL)
    assert rig.stdout is not None
    with rig.stdout:
        rest = rig.stdout.read()
    assert rig.wait(60) == 3, rest
    assert "the worker process ended unexpectedly" in rest
    assert _outcomes(tmp_path, "vesp32-1", "step_finished", "step")["telemetry"] == "passed"
    assert _outcomes(tmp_path, "vpico-1", "board_finished", "event") == {"board_finished": "error"}
    assert _processes_naming(str(tmp_path)) == []


def _links(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--virtual", "avr:1"], "no virtual board 'avr'"),
        (["--virtual", "rp2040:0"], "COUNT from 1 to 64"),
        (["--virtual", "rp2040:1", "--image", "vpico-7=x"], "no board 'vpico-7'"),
        (["--virtual", "rp2040:1", "--image", "vpico-1=/none.uf2"], "/none.uf2 is no file"),
        (["--virtual", "rp2040:1", "--image", "vpico-1"], "write BOARD=FILE"),
        (["--virtual", "rp2040:1", "--limit", "nap=3"], "no step 'nap'"),
        (["--virtual", "rp2040:1", "--limit", "flash=soon"], "'soon' is no number"),
        (["--virtual", "rp2040:1", "--fmqp", "nowhere"], "not HOST:PORT"),
        ([], "--virtual"),
    ],
)
def test_usage_errors_are_exit_code_2_with_the_remedy(
    broker: _Broker, tmp_path: Path, arguments: list[str], words: str
) -> None:
    result = _run(tmp_path / "out", broker, *arguments)
    assert result.returncode == 2, result.stdout
    assert words in result.stdout
    assert "Traceback" not in result.stdout
