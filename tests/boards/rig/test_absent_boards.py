"""``required = false``: a run goes on without a board, and says so; nothing else is forgiven."""

from pathlib import Path
from xml.etree import ElementTree as ET

from boards.inventory.rig_file import load_rig
from boards.inventory.states import inventory_states
from tests.boards.desk_files import running_esp32, write_rig, write_virtual
from tests.boards.rig_process import Broker, rows, run_rig

_NEED_NOT = "required = false"


def _absent(folder: Path, id: str, required: str) -> None:
    (folder / "boards").mkdir(exist_ok=True)
    (folder / "boards" / f"{id}.toml").write_text(
        f'id = "{id}"\nmodel = "RPI_PICO"\n{required}\n[usb]\nserial = "0123456789abcdef"\n'
        '[identity]\nuid = "0123456789abcdef"\n[flash]\nimage = "rpi_pico"\n'
    )


def _elsewhere(folder: Path) -> None:
    for id, url in (("far", "socket://127.0.0.1:1"), ("near", folder / "ttyUSB7")):
        (folder / "boards" / f"{id}.toml").write_text(
            f'id = "{id}"\nmodel = "unix"\n{_NEED_NOT}\nserial_url = "{url}"\n'
        )


def test_a_run_passes_without_boards_that_need_not_be_there(broker: Broker, tmp_path: Path) -> None:
    rig = write_rig(tmp_path)
    _absent(tmp_path, "pico", _NEED_NOT)
    _elsewhere(tmp_path)
    junit = tmp_path / "junit.xml"
    with running_esp32(tmp_path / "e1", "e1") as board:
        write_virtual(tmp_path, board, reset=_NEED_NOT)
        words = ["--rig", str(rig), "--junit", str(junit), "--checks", "pubsub_up"]
        result = run_rig(tmp_path / "out", broker, *words)
    assert result.returncode == 0, result.stdout
    assert "pico is absent, and need not be there: pico: not plugged in" in result.stdout
    assert "far is absent, and need not be there: serial port socket://127.0.0.1:1" in result.stdout
    ended = {
        row["board_id"]: row["outcome"]
        for row in rows(tmp_path / "out", "events.jsonl")
        if row["event"] == "board_finished"
    }
    assert ended == {"e1": "passed", "far": "absent", "near": "absent", "pico": "absent"}
    suites = {suite.get("name"): suite for suite in ET.parse(junit).getroot()}
    assert [suites["pico"].get(kind) for kind in ("tests", "skipped", "errors")] == ["2", "2", "0"]


def test_a_board_that_is_required_and_absent_is_a_fault(broker: Broker, tmp_path: Path) -> None:
    rig = write_rig(tmp_path)
    _absent(tmp_path, "pico", "")
    result = run_rig(tmp_path / "out", broker, "--rig", str(rig), "--checks", "pubsub_up")
    assert result.returncode == 3, result.stdout
    assert "pico start error: NotThere: pico: not plugged in" in result.stdout


def test_if_no_board_is_there_nothing_ran(broker: Broker, tmp_path: Path) -> None:
    rig = write_rig(tmp_path)
    _absent(tmp_path, "pico", _NEED_NOT)
    result = run_rig(tmp_path / "out", broker, "--rig", str(rig), "--checks", "pubsub_up")
    assert result.returncode == 4, result.stdout


def test_a_port_that_is_not_there_is_an_absent_board(tmp_path: Path) -> None:
    rig, port = write_rig(tmp_path), tmp_path / "ttyUSB7"
    (tmp_path / "boards").mkdir(exist_ok=True)
    (tmp_path / "boards" / "u1.toml").write_text(
        f'id = "u1"\nmodel = "unix"\nserial_url = "{port}"\n'
    )
    (row,) = inventory_states(load_rig(rig), look=lambda: [])
    assert (row.state, row.detail) == ("absent", f"not plugged in: there is no {port}")
    port.touch()
    (row,) = inventory_states(load_rig(rig), look=lambda: [])
    assert row.state == "ready"
