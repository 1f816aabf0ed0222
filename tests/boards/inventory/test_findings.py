"""What ``motemq rig doctor`` looks at, one thing at a time."""

import os
import pty
import subprocess
import sys
import tty
from pathlib import Path

import pytest

from boards.inventory import findings
from boards.inventory.findings import Finding
from boards.inventory.models import all_models
from boards.inventory.states import BoardStatus
from boards.inventory.usb import read_usb
from boards.port_users import port_users
from tests.boards.desk_files import motemq_rig
from tests.boards.fake_usb import plug


def test_the_udev_rules_name_every_board_and_have_no_trailing_comment() -> None:
    rules = motemq_rig("doctor", "--udev").stdout
    for model in all_models().values():
        for usb in model.usb:
            assert f'=="{usb.vid:04x}", ATTRS{{idProduct}}=="{usb.pid:04x}"' in rules
    assert all("#" not in line for line in rules.splitlines() if not line.startswith("#"))


def test_who_has_a_port_open_is_told() -> None:
    master, slave = pty.openpty()
    tty.setraw(slave)
    name = os.ttyname(slave)
    code = f"import os, sys\nos.open({name!r}, os.O_RDWR)\nprint('open', flush=True)\n"
    code += "sys.stdin.read()  # \x1b[2J"  # a command line that would clear the screen
    user = subprocess.Popen(
        [sys.executable, "-c", code, "a-password"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert user.stdin is not None
    assert user.stdout is not None
    with user.stdin, user.stdout:
        assert user.stdout.readline() == b"open\n"
        assert [one.pid for one in port_users(name)] == [user.pid]
        (found,) = [one for one in findings.access([name]) if one.level == "bad"]
        assert f"{name} is open in process {user.pid} (" in found.text
        assert found.text.isprintable()
        assert "a-password" not in found.text
        user.kill()
        user.wait(20)
    assert findings.access([name]) == [Finding("ok", f"{name} can be opened")]
    os.close(master)
    os.close(slave)


def test_a_port_that_may_not_be_opened_names_the_group(tmp_path: Path) -> None:
    gone = findings.access([str(tmp_path / "ttyUSB0")])
    assert (gone[0].level, gone[0].remedy) == ("bad", "unplug the board and plug it in again")
    denied = findings._denied("/dev/null", tmp_path / "rules")
    assert "usermod -aG" in denied.remedy
    assert "motemq rig doctor --udev" in denied.remedy


def test_what_is_plugged_in_is_judged(tmp_path: Path) -> None:
    plug(tmp_path, "1-1", vid=0x10C4, pid=0xEA60, serial="0001", tty="ttyUSB0")
    plug(tmp_path, "1-2", vid=0x10C4, pid=0xEA60, serial="0001")
    plug(tmp_path, "1-3", vid=0x2E8A, pid=0x0003)
    devices = read_usb(tmp_path, tmp_path / "mounts")
    levels = [(one.level, one.remedy[:20]) for one in findings.usb(devices)]
    assert levels == [
        ("ok", ""),
        ("bad", "sudo modprobe cp210x"),
        ("note", "udisksctl mount -b /"),
        ("note", "give usb.path in the"),
    ]
    (raw,) = findings.raw_usb(devices, tmp_path / "bus")
    assert "picotool may not reach it" in raw.text
    (tmp_path / "bus" / "001").mkdir(parents=True)
    (tmp_path / "bus" / "001" / "007").write_text("")
    assert findings.raw_usb(devices, tmp_path / "bus") == []
    (none,) = findings.usb([])
    assert "many carry no data" in none.remedy


def test_a_board_that_need_not_be_there_is_no_fault() -> None:
    rows = [BoardStatus("b", "RPI_PICO", "", "absent", "", required=one) for one in (True, False)]
    assert [one.level for one in findings.desk(rows)] == ["bad", "note"]


def test_meddlers_are_seen(tmp_path: Path) -> None:
    (tmp_path / "77").mkdir()
    (tmp_path / "77" / "comm").write_text("ModemManager\n")
    (found,) = findings.meddlers(tmp_path, tmp_path / "rules")
    assert "ModemManager runs (process 77)" in found.text
    assert "disable --now ModemManager" in found.remedy


def test_missing_tools_are_bad_only_where_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert all(one.level == "ok" for one in findings.tools([]))
    (bad,) = [one for one in findings.tools(["picotool"]) if one.level == "bad"]
    assert "apt-get install picotool" in bad.remedy
