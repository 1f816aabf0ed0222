"""Whole commands on boards that come and go as USB devices do, seen in /sys and /dev alone."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from boards.virtual.board import VirtualBoard
from boards.virtual.preload import preload
from firmware.build import ensure
from tests.boards.rig_process import outcomes
from tests.boards.usb_desk.desk import UsbDesk, adapter, own_usb, pico, usb_desk
from tests.boards.usb_desk.real_image import GREENHOUSE, real_image

_CHECKS = ("pubsub_up", "pubsub_down", "will_reboot", "will_power")
# One with USB of its own, which has another id in its ROM than in MicroPython.
_OWN_USB = """\
id = "OWN_USB"
about = "an ESP32 with USB of its own"
kind = "esp32"
prefix = "own"
machine = "(MicroPython unix port, not ESP32 code)"
resets = ["repl", "rts"]
[usb]
USB-Serial-JTAG = { vid = 0x303a, pid = 0x1001 }
MicroPython = { vid = 0x303a, pid = 0x4001 }
[flash]
method = "esptool"
image = "IMAGE"
chip_ids = [0]
offset = 0x1000
[link]
transport = "tcp"
"""
_GREEN = """\
id = "green-{number}"
model = "GREENHOUSE"
[usb]
path = "0000:00:14.0-usb-0:1.{number}"
serial = "0001"
[identity]
mac = "{mac}"
[link]
protocol = "{protocol}"
{power}
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("image") / "vesp32.bin"
    real_image(path)
    return path


@pytest.fixture
def board(tmp_path: Path) -> Iterator[VirtualBoard]:
    with VirtualBoard.start("rp2040", "p", tmp_path / "p") as board:
        yield board


def _blank_pico(desk: UsbDesk, board: VirtualBoard) -> Path:
    """Put a Pico without firmware, and without picotool, on the desk."""
    (desk.folder / "rig.toml").write_text('name = "usb"\n[broker]\nbind = "127.0.0.1"\n')
    file = desk.folder / "boards" / "pico-1.toml"
    file.parent.mkdir()
    file.write_text(
        'id = "pico-1"\nmodel = "RPI_PICO"\n[usb]\npath = "0000:00:14.0-usb-0:1.2"\n'
        f'[identity]\nuid = "{board.address.uid}"\n[flash]\nmethod = "uf2_drive"\n'
        f'image = "{ensure("rpi_pico")}"\n' + desk.hub("1-1.2")
    )
    return file


def test_a_pico_from_blank_to_verdict_by_its_only_cable(
    board: VirtualBoard, tmp_path: Path
) -> None:
    """BOOTSEL, a drive that is mounted late, another USB id, a name in /dev that changes at each
    reset, a power cut by the hub: with nothing but sysfs to find it by."""
    with usb_desk(tmp_path, pico(board, "1-1.2", back_s=1.0)) as desk:
        _blank_pico(desk, board)
        listed = desk.rig("list")
        assert "loader" in listed.stdout, listed.stdout
        done = desk.rig("run", "--checks", ",".join(_CHECKS))
        assert done.returncode == 0, done.stdout + "\n".join(desk.seen())
        out = desk.folder / "out" / "rig"
        assert outcomes(out, "pico-1", "check_finished", "check") == dict.fromkeys(
            _CHECKS, "passed"
        )
        names = [line.split()[-1] for line in desk.seen() if "2e8a:0005" in line]
        assert len(set(names)) == len(names) >= 3  # flashed, reset, cut off its power
        unplugged = desk.rig("power", "pico-1", "off")
        assert unplugged.returncode == 0, unplugged.stdout
        assert "absent" in desk.rig("list").stdout
        recovered = desk.rig("recover", "pico-1")
        assert recovered.returncode == 0, recovered.stdout
        assert "reset: power\npico-1: back" in recovered.stdout


# What a page's command is called with besides, or what it is to say before Ctrl-C ends it.
_BESIDES = {"run": ["--checks", "pubsub_up"], "add": ["--wait", "30"]}
_UNTIL = {
    "monitor": "MPY: soft reboot",
    "watch": "a program",
    "shell": "Connected to MicroPython",
    "lock": "is yours",
}
_REPORTS_FINDINGS = (0, 3)  # doctor: this machine may lack a tool


def test_the_verbs_of_the_page_in_a_fresh_home(board: VirtualBoard, tmp_path: Path) -> None:
    """docs/rig.md from `list` to `recover`, as typed, on a Pico that runs MicroPython."""
    board.stop()
    preload("rp2040", tmp_path / "p", ensure("rpi_pico"))
    with (
        VirtualBoard.start("rp2040", "p", tmp_path / "p") as running,
        usb_desk(tmp_path, pico(running, "1-1.2")) as desk,
    ):
        (desk.folder / "app").mkdir()
        (desk.folder / "app" / "main.py").write_text("print('a program', 6 * 7)\n")
        for words in _verbs():
            verb, arguments = words[0], words[1:]
            if verb == "power":
                arguments[0] = "pico-1"
            if verb == "recover":
                arguments = ["pico-1"]
            if verb in _UNTIL:
                said = desk.rig_until(_UNTIL[verb], verb, *arguments)
                assert _UNTIL[verb] in said, f"{verb}: {said}"
                continue
            done = desk.rig(verb, *arguments, *_BESIDES.get(verb, []))
            codes = _REPORTS_FINDINGS if verb == "doctor" else (0,)
            assert done.returncode in codes, f"{verb}: {done.stdout}"
            if verb == "flash":  # from a running program: into BOOTSEL and back
                assert [line.split()[1] for line in desk.seen()[-2:]] == ["2e8a:0003", "2e8a:0005"]
            if verb == "add":
                assert "its messages go over this cable" in done.stdout
                file = desk.folder / "boards" / "pico-1.toml"
                assert f'uid = "{running.address.uid}"' in file.read_text()
                # No image is to be had here, nor picotool; its hub's port switches it off.
                file.write_text(
                    file.read_text()
                    + f'[flash]\nmethod = "uf2_drive"\nimage = "{ensure("rpi_pico")}"\n'
                    + desk.hub("1-1.2")
                )
        assert (desk.folder / "out" / "junit.xml").is_file()


# In its first life it says a few words and resets itself, port and all, when a busy machine has
# read them: what nobody has read by then is lost with the port.
_TWO_LIVES = """\
import machine, os, time
print("first words")
if "lived" not in os.listdir():
    time.sleep(3)
else:
    for number in range(50):
        print("second life", number)
        time.sleep(0.2)
open("lived", "w").close()
machine.reset()
"""


def test_a_pico_is_heard_from_its_first_word_and_again_after_its_port_was_gone(
    board: VirtualBoard, tmp_path: Path
) -> None:
    board.stop()
    preload("rp2040", tmp_path / "p", ensure("rpi_pico"))
    with (
        VirtualBoard.start("rp2040", "p", tmp_path / "p") as running,
        usb_desk(tmp_path, pico(running, "1-1.2", back_s=1.5)) as desk,
    ):
        _blank_pico(desk, running)
        (desk.folder / "app").mkdir()
        (desk.folder / "app" / "main.py").write_text(_TWO_LIVES)
        ports = len(desk.seen())
        said = desk.rig_until("second life", "watch", "app")
        words = re.findall(r"first words|-- pico-1: not plugged in|second life", said)
        assert words[:3] == ["first words", "-- pico-1: not plugged in", "second life"], said
        assert len(desk.seen()) == ports + 1
        # Its second life goes on from its first word, and its port stays.
        said = desk.rig_until("second life 0", "monitor", "pico-1", "--reset")
        assert re.search(r"first words\r?\n.*second life 0", said), said
        assert len(desk.seen()) == ports + 1


def _verbs() -> list[list[str]]:
    text = (Path(__file__).parents[3] / "docs" / "rig.md").read_text().partition("## Verbs")[2]
    block = text.partition("```sh\n")[2].partition("```")[0]
    return [shlex.split(line)[2:] for line in block.splitlines()]


def test_two_adapters_with_one_serial_number_are_told_by_their_places(
    image: Path, tmp_path: Path
) -> None:
    """Their ports have other names after the hub had no power, and each stays who it is."""
    with (
        _green(tmp_path, 3) as three,
        _green(tmp_path, 4) as four,
        usb_desk(tmp_path, adapter(three, "1-1.3"), adapter(four, "1-1.4")) as desk,
    ):
        boards = {3: three, 4: four}
        (desk.folder / "rig.toml").write_text(
            'name = "usb"\n[broker]\nbind = "127.0.0.1"\n[wifi]\nssid = "greenhouse"\n'
        )
        (desk.folder / "models").mkdir()
        (desk.folder / "models" / "GREENHOUSE.toml").write_text(
            GREENHOUSE.replace("IMAGE", str(image))
        )
        (desk.folder / "boards").mkdir()
        for number, board in boards.items():
            (desk.folder / "boards" / f"green-{number}.toml").write_text(
                _GREEN.format(
                    number=number,
                    mac=":".join(board.address.uid[at : at + 2] for at in range(0, 12, 2)),
                    protocol="fmqp" if number == 3 else "lightmq",
                    power=desk.hub(f"1-1.{number}"),
                )
            )
        # The first of them comes back last: its port is another one's then.
        for number in (3, 4):
            desk.rig("power", f"green-{number}", "off")
        for number in (4, 3):
            desk.rig("power", f"green-{number}", "on")
        checks = _CHECKS[:3]
        done = desk.rig("run", "--checks", ",".join(checks))
        assert done.returncode == 0, done.stdout + "\n".join(desk.seen())
        for number in boards:
            found = outcomes(
                desk.folder / "out" / "rig", f"green-{number}", "check_finished", "check"
            )
            assert found == dict.fromkeys(checks, "passed"), done.stdout
        # Plugged the other way round, nobody is taken for the other one.
        for number, other in ((3, 4), (4, 3)):
            file = desk.folder / "boards" / f"green-{number}.toml"
            file.write_text(file.read_text().replace(f"0:1.{number}", f"0:1.{other}"))
        swapped = desk.rig("recover", "green-3")
        assert swapped.returncode == 3
        assert "the board in its place says it is" in swapped.stdout


def test_a_chip_with_usb_of_its_own_goes_and_comes_under_another_id(
    image: Path, tmp_path: Path
) -> None:
    """esptool's reset has the port that it holds vanish; the ROM is another device."""
    with _green(tmp_path, 5) as board, usb_desk(tmp_path, own_usb(board, "1-1.5")) as desk:
        mac = board.address.uid
        (desk.folder / "rig.toml").write_text(
            'name = "usb"\n[broker]\nbind = "127.0.0.1"\n[wifi]\nssid = "greenhouse"\n'
        )
        (desk.folder / "models").mkdir()
        model = _OWN_USB.replace("IMAGE", str(image))
        (desk.folder / "models" / "OWN_USB.toml").write_text(model)
        (desk.folder / "boards").mkdir()
        (desk.folder / "boards" / "own-1.toml").write_text(
            'id = "own-1"\nmodel = "OWN_USB"\n'
            f'[usb]\nvid = 0x303a\npid = 0x4001\nserial = "{mac}"\n'
            f'[identity]\nmac = "{mac}"\n'
        )
        done = desk.rig("run", "--force", "--checks", ",".join(_CHECKS[:3]))
        assert done.returncode == 0, done.stdout + "\n".join(desk.seen())
        ids = [line.split()[1] for line in desk.seen()]
        assert ids[:3] == ["303a:4001", "303a:1001", "303a:4001"]


def _green(folder: Path, number: int) -> VirtualBoard:
    state = folder / f"g{number}"
    shutil.rmtree(state, ignore_errors=True)
    preload("esp32", state, ensure("vesp32"))
    return VirtualBoard.start("esp32", f"green-{number}", state)
