"""What the doctor tells a person with one Pico and a cable to type, from the first minute on."""

import re
import shlex
from pathlib import Path

import click
import pytest

from boards.inventory import findings
from boards.inventory.findings import next_step
from boards.inventory.locks import BoardLock
from boards.inventory.rig_file import Rig, load_rig
from boards.inventory.states import inventory_states
from boards.inventory.usb import read_usb
from motemq.cli import main
from tests.boards.desk_files import write_rig
from tests.boards.fake_usb import plug

_PICO = {"vid": 0x2E8A, "pid": 0x0005}
_BOOTSEL = {"vid": 0x2E8A, "pid": 0x0003}
_UID = "e46340474b4c2731"


class _Machine:
    """A machine with the USB devices of a folder; nothing of ours is touched."""

    def __init__(self, folder: Path) -> None:
        self.sys = folder / "sys"
        self.mounts = folder / "mounts"
        self.rig: Rig | None = None

    def says(self) -> str:
        devices = read_usb(self.sys, self.mounts)
        states = inventory_states(self.rig, lambda: devices) if self.rig else []
        found = [*findings.usb(devices), *findings.desk(states)]
        for one in found:
            assert one.level == "ok" or one.remedy, f"what to do about it? {one.text}"
        words = next_step(self.rig, states, devices, found)
        for line in words.splitlines():
            _exists(line)
        return words


def _exists(line: str) -> None:
    """Every motemq in a line is a command that takes these words."""
    for text in re.findall(r"motemq [^)&\n\"']*", line):
        words = shlex.split(text)[1:]
        command: click.Command = main
        context = click.Context(main)
        while isinstance(command, click.Group):
            found = command.get_command(context, words[0])
            assert found is not None, f"there is no {text!r}"
            command, words = found, words[1:]
            context = click.Context(command, parent=context)
        command.make_context(command.name, words, parent=context.parent)


@pytest.fixture
def machine(tmp_path: Path) -> _Machine:
    return _Machine(tmp_path)


def _add_board(machine: _Machine, folder: Path) -> None:
    file = write_rig(folder)
    (folder / "boards" / "pico-1.toml").write_text(
        f'id = "pico-1"\nmodel = "RPI_PICO"\n[usb]\nvid = 0x2e8a\npid = 5\nserial = "{_UID}"\n'
        f'[identity]\nuid = "{_UID}"\n'
    )
    machine.rig = load_rig(file)


def test_nothing_is_plugged_in(machine: _Machine) -> None:
    assert "plug a board in and run this again" in machine.says()
    assert machine.says().endswith("motemq rig virtual up rp2040:1")


def test_a_blank_pico_needs_its_drive_then_firmware(machine: _Machine) -> None:
    plug(machine.sys, "1-1", **_BOOTSEL, disk="sda", product="RP2 Boot")
    assert machine.says() == "udisksctl mount -b /dev/sda1\nmotemq rig doctor"
    machine.mounts.write_text("/dev/sda1 /media/me/RPI-RP2 vfat rw 0 0\n")
    # The boot ROM of a Pico W says nothing else: only a person sees which one it is.
    assert machine.says().splitlines() == [
        "cp \"$(motemq firmware build rpi_pico)\" '/media/me/RPI-RP2/'"
        "  # if it is a Raspberry Pi Pico",
        "cp \"$(motemq firmware fetch RPI_PICO_W)\" '/media/me/RPI-RP2/'"
        "  # if it is a Raspberry Pi Pico W",
        "motemq rig add",
    ]


def test_a_blank_pico_2_takes_the_official_image(machine: _Machine) -> None:
    plug(machine.sys, "1-1", vid=0x2E8A, pid=0x000F, disk="sda")
    machine.mounts.write_text("/dev/sda1 /media/me/RP2350 vfat rw 0 0\n")
    assert 'cp "$(motemq firmware fetch RPI_PICO2)"' in machine.says()
    assert 'cp "$(motemq firmware fetch RPI_PICO2_W)"' in machine.says()


def test_a_pico_with_micropython_is_added_then_run(machine: _Machine, tmp_path: Path) -> None:
    plug(machine.sys, "1-1", **_PICO, serial=_UID, tty="ttyACM77")
    assert machine.says() == "motemq rig add"
    _add_board(machine, tmp_path)
    assert machine.says() == "motemq rig run"


def test_a_second_board_that_is_new_comes_first(machine: _Machine, tmp_path: Path) -> None:
    plug(machine.sys, "1-1", **_PICO, serial=_UID, tty="ttyACM77")
    plug(machine.sys, "1-2", **_PICO, serial="e46340474b4c0000", tty="ttyACM78")
    _add_board(machine, tmp_path)
    assert machine.says() == "motemq rig add"


def test_what_is_bad_comes_before_everything(machine: _Machine, tmp_path: Path) -> None:
    _add_board(machine, tmp_path)  # and it is not plugged in
    assert machine.says() == (
        "plug it in; if it is, compare [usb] in its file with: motemq rig list"
    )


def test_a_board_in_use_is_waited_for(machine: _Machine, tmp_path: Path) -> None:
    plug(machine.sys, "1-1", **_PICO, serial=_UID, tty="ttyACM77")
    _add_board(machine, tmp_path)
    assert machine.rig is not None
    with BoardLock.take(machine.rig.state_dir, "pico-1", "soldering"):
        assert machine.says() == "motemq rig lock status"


def test_a_stranger_on_the_usb_is_told_how_to_become_a_board(machine: _Machine) -> None:
    plug(machine.sys, "1-1", vid=0x239A, pid=0x80F4, tty="ttyACM5", product="CircuitPython")
    devices = read_usb(machine.sys, machine.mounts)
    (_, stranger) = findings.usb(devices)
    assert "CircuitPython" in stranger.text
    assert "hold BOOTSEL" in stranger.remedy
    machine.says()
