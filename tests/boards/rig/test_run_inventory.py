"""``motemq rig run`` on a desk: what is there is taken, nobody else's board, and left quiet."""

import base64
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from boards.inventory.locks import BoardLock, holder
from boards.repl import NoReply, Repl
from boards.reports.junit import junit_xml
from boards.reports.record import read_run
from boards.virtual.board import VirtualBoard
from tests.boards.another_broker import led_elsewhere
from tests.boards.desk_files import motemq_rig, running_esp32, write_rig, write_virtual
from tests.boards.loose_cable import LooseCable
from tests.boards.rig_process import QUICK_CHECKS, Broker, outcomes, rows, run_rig

_BOOT = "# the board's own, with a secret: hunter22"
_DEAF = "while True:\n try:\n  while True: pass\n except BaseException: pass"


@pytest.fixture
def esp32(tmp_path: Path) -> Iterator[VirtualBoard]:
    with running_esp32(tmp_path / "e1", "e1") as board:
        yield board


def test_a_desk_is_judged_twice_and_left_quiet(
    broker: Broker, tmp_path: Path, esp32: VirtualBoard
) -> None:
    rig = write_rig(tmp_path)
    out = tmp_path / "out"
    with VirtualBoard.start("rp2040", "p1", tmp_path / "p1") as pico:
        write_virtual(tmp_path, esp32)
        write_virtual(tmp_path, pico)
        junit = tmp_path / "junit.xml"
        first = run_rig(out, broker, "--rig", str(rig), "--junit", str(junit))
        assert first.returncode == 0, first.stdout
        for board in ("e1", "p1"):
            checks = outcomes(out, board, "check_finished", "check")
            assert checks == dict.fromkeys(QUICK_CHECKS, "passed")
        # It ran already, with this firmware, and nobody wrote it again.
        assert "e1: flash passed in" in first.stdout
        assert "the same firmware was there" in first.stdout
        suites = ET.parse(junit).getroot()
        assert [suite.get("name") for suite in suites] == ["e1", "p1"]
        assert {suite.get("failures") for suite in suites} == {"0"}
        said = [
            {one.get("name"): one.get("value") or "" for one in suite.iter("property")}
            for suite in suites
        ]
        for facts, chip in zip(said, ("ESP32 code", "RP2040"), strict=True):
            assert chip in facts["firmware"]  # in the board's own words
            assert len(facts["firmware_sha"]) == 64
        for board in (esp32, pico):
            with Repl.open(board.address.serial_url, deadline_s=60) as repl:
                left = repl.exec("import os\nprint(os.listdir('/'))", deadline_s=60)
            assert "node.mpy" in left  # what is not sent again
            assert "main.py" not in left and "node.json" not in left  # it had none before
        boots = pico.control.state()["boots"]
        again = run_rig(out, broker, "--rig", str(rig), "-b", "p1", "--trust-ledger")
        assert again.returncode == 0, again.stdout
        assert "the same firmware was there" in again.stdout
        assert "e1" not in {row["board_id"] for row in rows(out, "events.jsonl")}
        # Two resets: the abrupt death of a check is its bridge's; telemetry presses RESET.
        assert pico.control.state()["boots"] == boots + 1
        assert holder(tmp_path / ".rig", "p1") is None


def test_a_locked_board_a_wrong_one_and_a_missing_one_are_left_and_the_others_judged(
    broker: Broker, tmp_path: Path, esp32: VirtualBoard
) -> None:
    rig = write_rig(tmp_path)
    write_virtual(tmp_path, esp32)
    missing = write_virtual(tmp_path, esp32, id="missing").read_text()
    port = str(esp32.address.control_port)
    (tmp_path / "boards" / "missing.toml").write_text(
        missing.replace(f"control_port = {port}", "control_port = 1").replace(
            esp32.address.serial_url, "socket://127.0.0.1:1"
        )
    )
    with (
        running_esp32(tmp_path / "wrong", "wrong") as wrong,
        running_esp32(tmp_path / "held", "held") as held,
        BoardLock.take(tmp_path / ".rig", "held", "somebody's experiment"),
    ):
        write_virtual(tmp_path, wrong, identity="0123456789ab")
        write_virtual(tmp_path, held)
        result = run_rig(tmp_path / "out", broker, "--rig", str(rig))
        boots = [board.control.state()["boots"] for board in (wrong, held)]
    assert result.returncode == 3, result.stdout
    assert boots == [1, 1]
    assert "held is in use by somebody's experiment (process" in result.stdout
    assert f"says it is {wrong.address.uid}, expected 0123456789ab" in result.stdout
    assert "the virtual board is not up" in result.stdout
    out = tmp_path / "out"
    assert outcomes(out, "e1", "board_finished", "event") == {"board_finished": "passed"}
    for board in ("wrong", "held", "missing"):
        assert outcomes(out, board, "board_finished", "event") == {"board_finished": "error"}
    # None of these is worth a second try.
    attempts = [row["attempt"] for row in rows(out, "events.jsonl")]
    assert set(attempts) == {1}


def test_a_quarantined_check_fails_without_failing_the_run(
    broker: Broker, tmp_path: Path, esp32: VirtualBoard
) -> None:
    rig = write_rig(tmp_path)
    path = write_virtual(tmp_path, esp32)
    every = "".join(
        f'{name} = {{ reason = "no broker there", until = 2099-01-01 }}\n' for name in QUICK_CHECKS
    )
    path.write_text(path.read_text() + '[link]\nprotocol = "lightmq"\n[quarantine]\n' + every)
    out = tmp_path / "out"
    limits = ("--limit", "telemetry=5", "--limit", "check=20")
    # It speaks LightMQ and meets an FMQP broker: no check can pass.
    with led_elsewhere(broker.lightmq, then=broker.fmqp) as wrong:
        result = run_rig(out, Broker(broker.fmqp, wrong), "--rig", str(rig), *limits)
    checks = outcomes(out, "e1", "check_finished", "check")
    assert set(checks) == set(QUICK_CHECKS)
    assert set(checks.values()) == {"quarantined", "skipped"}
    assert "(quarantined until 2099-01-01: no broker there)" in result.stdout
    # What is no failed check, nothing excuses: here the time was up before the last one.
    assert "no time was left for check" in result.stdout
    assert result.returncode == 3
    (suite,) = ET.fromstring(junit_xml(read_run(_run(out))))
    assert suite.get("skipped") == str(len(checks))


def _run(out: Path) -> Path:
    (folder,) = (out / "rig").glob("date=*/rig=*/run=*")
    return folder


def test_a_deaf_board_is_brought_back_where_nothing_is_flashed(
    broker: Broker, tmp_path: Path, esp32: VirtualBoard
) -> None:
    rig = write_rig(tmp_path)
    path = write_virtual(tmp_path, esp32)
    path.write_text(path.read_text().replace("[flash]", '[flash]\nmethod = "none"'))
    repl = Repl.open(esp32.address.serial_url, deadline_s=60)
    with pytest.raises(NoReply):
        repl.exec(_DEAF, deadline_s=1)
    repl.close(friendly=False)
    result = run_rig(tmp_path / "out", broker, "--rig", str(rig))
    assert result.returncode == 0, result.stdout
    assert esp32.control.state()["boots"] > 1


def test_a_step_that_passes_at_its_second_try_is_flaky(
    broker: Broker, tmp_path: Path, esp32: VirtualBoard
) -> None:
    """The first two that open its port (who asks it, and esptool) lose it at once."""
    rig = write_rig(tmp_path)
    path = write_virtual(tmp_path, esp32)
    out = tmp_path / "out"
    with LooseCable(esp32.address.serial_urls["socket"], lost=2) as cable:
        path.write_text(path.read_text().replace(esp32.address.serial_url, cable.url))
        result = run_rig(out, broker, "--rig", str(rig))
    assert result.returncode == 0, result.stdout
    assert "FLAKY: flash passed at attempt 2" in result.stdout
    tries = [
        (row["attempt"], row["outcome"])
        for row in rows(out, "events.jsonl")
        if row["event"] == "step_finished" and row["step"] == "flash"
    ]
    assert tries == [(1, "error"), (2, "passed")]
    (suite,) = ET.fromstring(junit_xml(read_run(_run(out))))
    flaky = suite.find("properties/property[@name='flaky']")
    assert flaky is not None
    assert flaky.get("value") == "true"
    summary = motemq_rig("report", out).stdout
    assert "| flash | ✅ flaky |" in summary
    assert "### Rig test: passed" in summary


def test_caps_choose_boards(broker: Broker, tmp_path: Path, esp32: VirtualBoard) -> None:
    rig = write_rig(tmp_path)
    write_virtual(tmp_path, esp32)
    result = run_rig(tmp_path / "out", broker, "--rig", str(rig), "--cap", "wifi")
    assert result.returncode == 2
    assert "no board with wifi on this desk" in result.stdout
    both = run_rig(tmp_path / "out", broker, "--rig", str(rig), "--virtual", "esp32")
    assert both.returncode == 2
    assert "not both in one run" in both.stdout


def test_a_board_joins_the_wifi_for_the_run_and_the_password_is_nowhere_after_it(
    broker: Broker, tmp_path: Path, esp32: VirtualBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The virtual board's network is a fake that joins at once; the way there is real."""
    rig = write_rig(tmp_path, '[wifi]\nssid = "the lab"\npsk_env = "LAB_PSK"\n')
    path = write_virtual(tmp_path, esp32)
    path.write_text('caps = ["wifi"]\n' + path.read_text())
    out = tmp_path / "out"
    unset = run_rig(out, broker, "--rig", str(rig), "--limit", "install=30")
    assert unset.returncode == 3, unset.stdout
    assert "wanted in the environment variable LAB_PSK, which is not set" in unset.stdout
    monkeypatch.setenv("LAB_PSK", "tr0ub4dor&3")
    with Repl.open(esp32.address.serial_url, deadline_s=60) as repl:
        repl.exec(f"with open('/boot.py', 'w') as f: f.write({_BOOT!r})", deadline_s=60)
    done = run_rig(out, broker, "--rig", str(rig))
    assert done.returncode == 0, done.stdout
    assert "wifi: " in (out / "logs" / "e1.serial.log").read_text()
    written = [file for file in out.rglob("*") if file.is_file()]
    secrets = (b"tr0ub4dor", b"hunter22", base64.b64encode(_BOOT.encode())[8:24])
    told = done.stdout.encode()
    assert [secret for secret in secrets if secret in told] == []
    assert [
        (file, secret) for file in written for secret in secrets if secret in file.read_bytes()
    ] == []
    with Repl.open(esp32.address.serial_url, deadline_s=60) as repl:
        left = repl.exec("import os\nprint(os.listdir('/'))", deadline_s=60)
        boot = repl.exec("print(open('/boot.py').read())", deadline_s=60)
    assert "main.py" not in left  # it had none
    assert "wifi.json" not in left
    assert boot.strip() == _BOOT
