"""``motemq rig run`` comes to the right verdict: on good boards, dead ones and failing code."""

import struct
from pathlib import Path

import pytest

from firmware import build
from tests.boards.another_broker import led_elsewhere
from tests.boards.rig_process import (
    QUICK_CHECKS,
    Broker,
    outcomes,
    processes_naming,
    rows,
    run_rig,
)

_UF2_BLOCK = 512


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


def test_three_boards_pass_from_blank_flash(broker: Broker, tmp_path: Path) -> None:
    result = run_rig(tmp_path, broker, "--virtual", "rp2040:2", "--virtual", "esp32:1")
    assert result.returncode == 0, result.stdout
    boards = ["vpico-1", "vpico-2", "vesp32-1"]
    for board in boards:
        assert outcomes(tmp_path, board, "check_finished", "check") == dict.fromkeys(
            QUICK_CHECKS, "passed"
        )
        steps = outcomes(tmp_path, board, "step_finished", "step")
        assert steps == dict.fromkeys(
            ["start", "flash", "install", "check", "telemetry", "stop"], "passed"
        )
        log = (tmp_path / "logs" / f"{board}.serial.log").read_text()
        assert "node: done 600" in log
    samples = rows(tmp_path, "samples.jsonl")
    for board in boards:
        of_board = [row for row in samples if row["board_id"] == board]
        rtts = [row for row in of_board if row["metric"] == "rtt"]
        assert [row["seq"] for row in rtts] == list(range(50))
        assert {row["unit"] for row in rtts} == {"us"}
        assert all(0 < row["value"] < 5e6 for row in rtts)
        delays = {row["check"]: row["value"] for row in of_board if row["metric"] == "will_delay"}
        assert set(delays) == {"will_clean", "will_abrupt"}
        assert all(0 <= value < 15_000 for value in delays.values())
    last = rows(tmp_path, "events.jsonl")[-1]
    assert (last["event"], last["outcome"]) == ("run_finished", "passed")
    assert processes_naming(str(tmp_path)) == []


def test_a_board_that_never_answers_is_a_rig_fault_and_the_others_pass(
    broker: Broker, tmp_path: Path
) -> None:
    dead = _uf2_that_hangs(tmp_path / "dead.uf2")
    out = tmp_path / "out"
    result = run_rig(
        *(out, broker, "--virtual", "rp2040:2"),
        *("--image", f"vpico-1={dead}", "--limit", "flash=15", "--retries", "0"),
    )
    assert result.returncode == 3, result.stdout
    steps = outcomes(out, "vpico-1", "step_finished", "step")
    assert steps["start"] == "passed"
    assert [steps[step] for step in ("flash", "install", "check", "telemetry")] == ["error"] * 4
    assert "no raw REPL within" in result.stdout
    assert f"{out}/logs/vpico-1.serial.log" in result.stdout
    assert set(outcomes(out, "vpico-2", "check_finished", "check").values()) == {"passed"}
    assert outcomes(out, "vpico-2", "step_finished", "step")["telemetry"] == "passed"


def test_an_image_of_another_chip_family_is_a_rig_fault(broker: Broker, tmp_path: Path) -> None:
    image = tmp_path / "wrong.uf2"
    data = bytearray(build.ensure("rpi_pico").read_bytes())
    for start in range(0, len(data), _UF2_BLOCK):
        struct.pack_into("<I", data, start + 28, 0x12345678)  # another family
    image.write_bytes(data)
    result = run_rig(
        *(tmp_path / "out", broker, "--virtual", "rp2040:1"),
        *("--image", f"vpico-1={image}"),
    )
    assert result.returncode == 3, result.stdout
    assert "is for 0x12345678, the board is RP2040; nothing was written" in result.stdout


def test_code_that_fails_is_a_failed_check_and_not_a_rig_fault(
    broker: Broker, tmp_path: Path
) -> None:
    # The LightMQ board meets a broker that answers FMQP there: its connects get no answer, and it
    # tries for ten seconds in each check.
    chosen = ["ping", "pubsub_up"]
    with led_elsewhere(broker.lightmq, then=broker.fmqp) as wrong:
        result = run_rig(
            *(tmp_path, Broker(broker.fmqp, wrong), "--virtual", "esp32:2"),
            *("--checks", ",".join(chosen), "--limit", "telemetry=3"),
        )
    assert result.returncode == 1, result.stdout
    failed = outcomes(tmp_path, "vesp32-2", "check_finished", "check")
    assert failed == dict.fromkeys(chosen, "failed")
    passed = outcomes(tmp_path, "vesp32-1", "check_finished", "check")
    assert passed == dict.fromkeys(chosen, "passed")
    messages = [
        row["message"]
        for row in rows(tmp_path, "events.jsonl")
        if row["event"] == "check_finished" and row["outcome"] == "failed"
    ]
    assert len(messages) == len(failed)
    assert all(message in result.stdout for message in messages)
    assert "connect: " in messages[0]
