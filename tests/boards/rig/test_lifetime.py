"""However a rig or a worker ends, nothing stays behind and the results are whole lines."""

import os
import signal
from pathlib import Path

import pytest

from boards.virtual.lifetime import holder
from tests.boards.rig_process import (
    Broker,
    eventually,
    link_of,
    outcomes,
    processes_naming,
    rig_command,
    rows,
    start_and_wait_for,
)


@pytest.mark.parametrize("moment", ["flash …", "install …", "check …", "telemetry …"])
def test_ctrl_c_leaves_no_process_and_whole_lines(
    broker: Broker, tmp_path: Path, moment: str
) -> None:
    command = rig_command(tmp_path, broker, "--virtual", "rp2040:1", "--virtual", "esp32:1")
    rig = start_and_wait_for(moment, command)
    assert rig.stdout is not None
    with rig.stdout:
        os.killpg(rig.pid, signal.SIGINT)
        rest = rig.stdout.read()
    assert rig.wait(60) == 130, rest
    assert "Traceback" not in rest
    assert "interrupted" in rest
    assert processes_naming(str(tmp_path)) == []
    assert rows(tmp_path, "events.jsonl")[-1]["event"] != "run_finished"


@pytest.mark.parametrize("moment", ["flash …", "install …", "check …", "telemetry …"])
def test_a_killed_rig_leaves_no_process_and_whole_lines(
    broker: Broker, tmp_path: Path, moment: str
) -> None:
    command = rig_command(tmp_path, broker, "--virtual", "rp2040:1", "--virtual", "esp32:1")
    rig = start_and_wait_for(moment, command)
    assert rig.stdout is not None
    with rig.stdout:
        rig.kill()
        rig.wait(20)
    eventually(
        lambda: processes_naming(str(tmp_path)) == [],
        30,
        f"still there: {processes_naming(str(tmp_path))}",
    )
    assert rows(tmp_path, "events.jsonl")[-1]["event"] != "run_finished"


@pytest.mark.parametrize("hangs", [False, True], ids=["its board ends", "its board hangs"])
def test_a_killed_worker_is_an_error_of_its_board_only(
    broker: Broker, tmp_path: Path, hangs: bool
) -> None:
    command = rig_command(tmp_path, broker, "--virtual", "rp2040:1", "--virtual", "esp32:1")
    rig = start_and_wait_for("vpico-1: check …", command)
    board = holder(tmp_path / "boards" / "vpico-1")
    assert board
    (worker,) = [
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if f"{tmp_path}/logs/vpico-1.worker.log" in link_of(folder / "fd" / "2")
        and b"boards.session.worker" in (folder / "cmdline").read_bytes()
    ]
    if hangs:
        os.kill(board, signal.SIGSTOP)
    os.kill(worker, signal.SIGKILL)
    assert rig.stdout is not None
    with rig.stdout:
        rest = rig.stdout.read()
    assert rig.wait(60) == 3, rest
    assert "the worker process ended unexpectedly" in rest
    assert outcomes(tmp_path, "vesp32-1", "step_finished", "step")["telemetry"] == "passed"
    assert outcomes(tmp_path, "vpico-1", "board_finished", "event") == {"board_finished": "error"}
    assert processes_naming(str(tmp_path)) == []
