"""``rig.toml`` and the boards' files: what is right loads, what is wrong is named."""

import datetime
from pathlib import Path

import pytest

from boards.flash.target import Identity
from boards.inventory.board_file import Power, Quarantine, UsbMatch
from boards.inventory.models import TomlError
from boards.inventory.rig_file import load_rig, virtual_rig
from tests.boards.desk_files import motemq_rig, write_rig

_ESP = """\
schema = 1
id = "esp32-a"
model = "ESP32_GENERIC"
caps = ["wifi", "psram"]
[usb]
vid = 0x10c4
pid = 0xea60
serial = "0001"
path = "pci-0000:00:14.0-usb-0:1.2.3:1.0"
[identity]
mac = "24:0A:C4:12:34:56"
[flash]
image = "my.bin"
baud = 921600
[power]
driver = "uhubctl"
hub = "1-1.2"
port = 3
cuts_vbus = true
[reset]
order = ["rts", "power"]
[limits]
rtt_p99_ms = 60
[quarantine]
"ping" = { reason = "AP firmware", until = 2027-01-15 }
"""
_PICO = """\
id = "pico-a"
model = "RPI_PICO"
[usb]
serial = "e66038b713123456"
[identity]
uid = "E66038B713123456"
[link]
protocol = "lightmq"
serial_url = "/dev/ttyUSB9"
"""


def _desk(folder: Path, *boards: str, rig: str = "") -> Path:
    path = write_rig(folder, rig)
    for number, text in enumerate(boards):
        (folder / "boards" / f"{number}.toml").write_text(text)
    return path


def test_a_whole_desk(tmp_path: Path) -> None:
    rig = load_rig(
        _desk(tmp_path, _ESP, _PICO, rig='flash_parallel = 2\n[wifi]\nssid = "x"\npsk_env = "PSK"')
    )
    assert (rig.name, rig.state_dir, rig.flash_parallel) == ("test", tmp_path / ".rig", 2)
    assert list(rig.boards) == ["esp32-a", "pico-a"]
    esp, pico = rig.boards.values()
    assert esp.usb == UsbMatch(0x10C4, 0xEA60, "0001", "pci-0000:00:14.0-usb-0:1.2.3")
    assert esp.identity == Identity(mac="240ac4123456")
    assert (esp.image, esp.baud, esp.offset, esp.resets) == (
        *("my.bin", 921600, 0x1000),
        ("rts", "power"),
    )
    assert esp.power == Power("uhubctl", hub="1-1.2", port=3, cuts_vbus=True)
    assert esp.limits == {"rtt_p99_ms": 60.0}
    assert esp.quarantine == {"ping": Quarantine("AP firmware", datetime.date(2027, 1, 15))}
    assert pico.identity == Identity(uid="e66038b713123456")
    assert (pico.method, pico.protocol, pico.data_url) == ("picotool", "lightmq", "/dev/ttyUSB9")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("schema = 1", "schema = 2", 1, "this MoteMQ reads schema 1"),
        ('"esp32-a"', '"ESP32 A"', 2, "write 1 to 31 of a-z, 0-9 and -"),
        ('"ESP32_GENERIC"', '"ESP32"', 3, "is not one of ESP32_GENERIC, ESP32_GENERIC_C3"),
        ('["wifi", "psram"]', '["wifi", 3]', 4, "caps: 3 is not text in quotes"),
        ("vid = 0x10c4", "vid = 0x2e8a", 6, "usb.vid = 0x2e8a: no ESP32_GENERIC is seen under"),
        ("pid = 0xea60", "pid = 0x1ea60", 7, "usb.pid = 125536 is not from 0 to 65535"),
        ('mac = "24:0A:C4:12:34:56"', 'mac = "24:0A"', 11, "identity.mac is not 12 hex digits"),
        ('mac = "24:0A:C4:12:34:56"', "", 10, "identity.mac is missing: without it no chip can"),
        ("baud = 921600", 'method = "uf2_drive"', 14, "is not one of esptool, none"),
        ('image = "my.bin"', 'image = ""', 13, "flash.image is empty"),
        ("baud = 921600", 'sha256 = "12"', 14, "flash.sha256 is not 64 hex digits"),
        ('driver = "uhubctl"', 'driver = "magic"', 16, "is not one of uhubctl, relay, command"),
        ('hub = "1-1.2"\n', "", 15, "power.hub is missing; it is text in quotes"),
        ('["rts", "power"]', '["kick"]', 21, "reset.order: 'kick' is not one of"),
        ("rtt_p99_ms = 60", "rtt_p99_us = 60", 23, "unknown key limits.rtt_p99_us"),
        ('reason = "AP firmware", ', "", 25, "quarantine.ping.reason is missing"),
        ("until = 2027-01-15", "until = true", 25, "is not a date like 2027-01-15"),
        ('"AP firmware"', '""', 25, "reason is empty: why?"),
        ("schema = 1", "colour = 1", 1, "unknown key colour"),
    ],
)
def test_every_mistake_has_a_file_a_line_and_a_remedy(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    assert _ESP.count(old) == 1
    rig = _desk(tmp_path, _ESP.replace(old, new))
    with pytest.raises(TomlError) as raised:
        load_rig(rig)
    assert str(raised.value).startswith(f"{tmp_path}/boards/0.toml:{line}: "), raised.value
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("rig", "words"),
    [
        ("flash_parallel = 0", "rig.toml:2: flash_parallel = 0 is not from 1 to 64"),
        ('[wifi]\npsk_env = "my secret"', "rig.toml:3: wifi.psk_env is the NAME of an environment"),
        ("[broker]\nbnid = 1", "rig.toml:3: unknown key broker.bnid"),
    ],
)
def test_mistakes_in_rig_toml(tmp_path: Path, rig: str, words: str) -> None:
    with pytest.raises(TomlError, match=words):
        load_rig(_desk(tmp_path, rig=rig))


@pytest.mark.parametrize(
    ("one", "two", "words"),
    [
        (_ESP, _ESP, "id 'esp32-a' is that of .*0.toml too"),
        (_ESP, _ESP.replace("esp32-a", "esp32-b"), "usb.path .* is that of .*0.toml too"),
        (
            _ESP.replace('path = "pci-0000:00:14.0-usb-0:1.2.3:1.0"\n', ""),
            _ESP.replace("esp32-a", "esp32-b"),
            "do not tell this board from .*0.toml: give both a usb.path",
        ),
        (_PICO, _PICO.replace("pico-a", "pico-b"), "do not tell this board from"),
        (
            'id = "a"\nmodel = "unix"\nserial_url = "/dev/ttyS0"\n',
            'id = "b"\nmodel = "unix"\nserial_url = "/dev/ttyS0"\n',
            "serial_url is that of .*0.toml too",
        ),
        (
            _PICO,
            _PICO.replace("pico-a", "pico-b").replace("b713123456", "b713123457"),
            "link.serial_url is that of .*0.toml too",
        ),
        (
            _PICO,
            'id = "b"\nmodel = "unix"\nserial_url = "/dev//ttyUSB9"\n',
            "serial_url is that of",
        ),
    ],
)
def test_two_boards_are_never_one(tmp_path: Path, one: str, two: str, words: str) -> None:
    with pytest.raises(TomlError, match=rf"boards/1\.toml:1: .*{words}"):
        load_rig(_desk(tmp_path, one, two))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('id = "a"\nmodel = "unix"\n', "by what is the board found?"),
        ('id = "a"\nmodel = "RPI_PICO"\n[usb]\nvid = 0x2e8a\n', "usb. needs serial or path"),
        ('id = "a"\nmodel = "virtual-esp32"\nserial_url = "x"\n[identity]\nmac = "240ac4123456"',
         "virtual. is missing"),
        ('id = "a"\nmodel = "unix"\nserial_url = "x"\n[virtual]\ncontrol_port = 1', "real board"),
        ('id = "a"\nmodel = "RPI_PICO"\nserial_url = "x"\n[identity]\nuid = "e66038b713123456"\n'
         '[link]\nserial_url = "x"\n', r"0\.toml:7: .*one line cannot be both"),
    ],
)  # fmt: skip
def test_a_board_must_be_found_somehow(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TomlError, match=words):
        load_rig(_desk(tmp_path, text))


def test_virtual_boards_that_are_up_are_a_desk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTEMQ_RUNTIME_DIR", str(tmp_path / "run"))
    assert virtual_rig() is None
    desk = tmp_path / "run" / "desk"
    desk.mkdir(parents=True)
    (desk / "v.toml").write_text(
        'id = "v"\nmodel = "virtual-esp32"\nserial_url = "socket://127.0.0.1:1"\n'
        '[identity]\nmac = "240ac4123456"\n[virtual]\ncontrol_port = 1\n'
    )
    rig = virtual_rig()
    assert rig is not None
    assert list(rig.boards) == ["v"]
    real = load_rig(_desk(tmp_path, _PICO))
    assert list(real.boards) == ["pico-a"]
    assert list(load_rig(_desk(tmp_path, _PICO, rig="virtual = true")).boards) == ["pico-a", "v"]


def test_what_an_editor_hides_in_the_folder_is_no_board(tmp_path: Path) -> None:
    """While a file is changed in Emacs, there is a link beside it that leads nowhere."""
    rig = _desk(tmp_path, _PICO)
    (tmp_path / "boards" / ".#0.toml").symlink_to("somebody@somewhere.1234")
    assert list(load_rig(rig).boards) == ["pico-a"]


def test_a_folder_that_cannot_be_made_is_named_in_one_line(tmp_path: Path) -> None:
    rig = _desk(tmp_path, 'id = "a"\nmodel = "unix"\nserial_url = "/dev/null"\n')
    done = motemq_rig("run", "--rig", rig, "--out", "/proc/no")
    assert done.returncode == 3
    assert done.stdout == "rig: error: /proc/no: No such file or directory\n"


def test_a_wrong_desk_ends_the_command_with_2_as_a_wrong_name_does(tmp_path: Path) -> None:
    rig = _desk(tmp_path, _PICO.replace("RPI_PICO", "RPI_PICOO"))
    result = motemq_rig("flash", "--rig", rig)
    assert result.returncode == 2
    assert f"{tmp_path}/boards/0.toml:2: model = 'RPI_PICOO'" in result.stdout
    assert "Traceback" not in result.stdout
    unknown = motemq_rig("flash", "--rig", _desk(tmp_path, _PICO), "-b", "pico-z")
    assert unknown.returncode == 2
    assert "no board 'pico-z' on this desk; there are: pico-a" in unknown.stdout
