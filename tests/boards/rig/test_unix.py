"""MicroPython's unix port on a desk: installed, checked and heard like any board."""

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.boards.desk_files import motemq_rig, write_rig
from tests.boards.fault_boards import UnixBoard
from tests.boards.rig_process import (
    RUN_S,
    Broker,
    eventually,
    outcomes,
    processes_naming,
    rows,
    run_rig,
)

_CHECKS = ["pubsub_up", "pubsub_down", "ping", "reconnect_rst", "will_clean", "heap_free"]


def test_a_unix_board_is_taken_to_a_verdict(
    broker: Broker, tmp_path: Path, unix_port: Path
) -> None:
    rig = write_rig(tmp_path)
    files = tmp_path / "files"
    files.mkdir()
    with UnixBoard(unix_port, files) as board:
        (tmp_path / "boards" / "u1.toml").write_text(
            f'id = "u1"\nmodel = "unix"\nserial_url = "{board.url}"\n'
        )
        for _ in range(2):
            words = ["--rig", str(rig), "--checks", ",".join(_CHECKS)]
            result = run_rig(tmp_path / "out", broker, *words)
            assert result.returncode == 0, result.stdout
            assert "u1: flash passed" in result.stdout and "nothing to flash: " in result.stdout
            found = outcomes(tmp_path / "out", "u1", "check_finished", "check")
            assert found == dict.fromkeys(_CHECKS, "passed")
            steps = outcomes(tmp_path / "out", "u1", "step_finished", "step")
            assert set(steps.values()) == {"passed"}, steps
            facts = rows(tmp_path / "out", "events.jsonl")[-2]
            assert facts["firmware"].startswith("3.4.0; MicroPython v1.25.0")
            assert facts["fw_sha"] == ""  # the rig has put none there
            (heap,) = [
                row["limit"]
                for row in rows(tmp_path / "out", "samples.jsonl")
                if row["metric"] == "heap_free"
            ]
            assert heap == 30_000  # although its file has no [limits]
            shutil.rmtree(tmp_path / "out")
    assert (files / "lib" / "umotemq").is_dir()
    assert not Path("/node.py").exists()


def test_a_model_of_the_desks_own_is_taken_to_a_verdict(
    broker: Broker, tmp_path: Path, unix_port: Path
) -> None:
    rig, files = write_rig(tmp_path), tmp_path / "files"
    files.mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "GATEWAY.toml").write_text(
        'id = "GATEWAY"\nabout = "our gateway"\nkind = "unix"\nprefix = "gw"\nresets = []\n'
        '[flash]\nmethod = "none"\n[link]\ntransport = "tcp"\n'
    )
    with UnixBoard(unix_port, files) as board:
        added = motemq_rig(*("add", "--rig", rig, "--model", "GATEWAY", "--serial-url", board.url))
        assert added.returncode == 0, added.stdout
        assert 'model = "GATEWAY"' in (tmp_path / "boards" / "gw-1.toml").read_text()
        junit = tmp_path / "made" / "with it" / "junit.xml"
        words = ["--rig", str(rig), "--checks", "ping", "--junit", str(junit)]
        result = run_rig(tmp_path / "out", broker, *words)
        assert result.returncode == 0, result.stdout
    assert '<property name="chip" value="unix" />' in junit.read_text()
    assert outcomes(tmp_path / "out", "gw-1", "check_finished", "check") == {"ping": "passed"}
    strange = motemq_rig("add", "--rig", rig, "--model", "GATEWEY", "--serial-url", board.url)
    assert strange.returncode == 2
    assert "--model GATEWEY: there is none; there are ESP32_GENERIC, " in strange.stdout


def test_a_mistake_that_nobody_expects_leaves_the_board_its_own_files(
    broker: Broker, tmp_path: Path, unix_port: Path
) -> None:
    rig, files = write_rig(tmp_path), tmp_path / "files"
    files.mkdir()
    (files / "main.py").write_text("print('mine')\n")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def check_repl(board):\n    board.repl = None\n    assert False\n")
    with UnixBoard(unix_port, files) as board:
        (tmp_path / "boards" / "u1.toml").write_text(
            f'id = "u1"\nmodel = "unix"\nserial_url = "{board.url}"\n'
        )
        words = ["--rig", str(rig), "--checks", f"{wrong},ping"]
        result = run_rig(tmp_path / "out", broker, *words)
    assert result.returncode == 1, result.stdout
    assert "AttributeError: 'NoneType' object has no attribute 'close' (see the" in result.stdout
    steps = outcomes(tmp_path / "out", "u1", "step_finished", "step")
    assert (steps["check"], steps["stop"]) == ("error", "passed")
    assert "Traceback" in (tmp_path / "out" / "logs" / "u1.worker.log").read_text()
    assert (files / "main.py").read_text() == "print('mine')\n"


def test_a_desk_in_one_command(
    tmp_path: Path, unix_port: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No option: the desk of this folder, a broker of the run's own, results in out/rig."""
    write_rig(tmp_path)
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        for number, protocol in enumerate(("fmqp", "lightmq")):
            files = tmp_path / f"files-{number}"
            files.mkdir()
            board = stack.enter_context(UnixBoard(unix_port, files))
            (tmp_path / "boards" / f"u{number}.toml").write_text(
                f'id = "u{number}"\nmodel = "unix"\nserial_url = "{board.url}"\n'
                f'[link]\nprotocol = "{protocol}"\n'
            )
        result = motemq_rig("run", "--checks", "ping,pubsub_up", timeout_s=RUN_S)
        assert result.returncode == 0, result.stdout
    for number in range(2):
        found = outcomes(Path("out/rig"), f"u{number}", "check_finished", "check")
        assert found == {"ping": "passed", "pubsub_up": "passed"}
    assert "open to everybody" not in result.stdout  # these boards are on this machine
    # Two runs of one desk, for different boards, may have the same folder for results: what the one
    # installs is not there, for the other to replace it.
    assert not list(Path("out/rig").rglob("main.py"))
    eventually(lambda: not processes_naming(str(tmp_path)), 20.0, "a process is left")
