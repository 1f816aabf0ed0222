"""The TOML file of many bridges: what it means, and complaints with file and line."""

import random
import re
from pathlib import Path

import pytest

from boards.bridge.bridge import PortSettings
from boards.bridge.config import BridgePlan, ExposePlan, load_config
from boards.toml_file import TomlError
from host_broker.address import Address

_GOOD = """\
# all ports
[defaults]
to = "fmqp://127.0.0.1:8765"
baud = 115200

[[port]]
name = "greenhouse"
serial = "/dev/serial/by-id/usb-Pico-if00"
mode = "reliable"
rtscts = true

[[port]]
serial = "/dev/ttyUSB1"
to = "tcp://127.0.0.1:4000"
silence_s = 10
baud = 9600

[[port]]
serial = "socket://127.0.0.1:9000"
listen = "127.0.0.1:7001"
rfc2217 = true
"""


def _load(folder: Path, text: str) -> list[BridgePlan | ExposePlan]:
    path = folder / "bridge.toml"
    path.write_text(text)
    return load_config(path)


def test_ports_and_defaults(tmp_path: Path) -> None:
    assert _load(tmp_path, _GOOD) == [
        BridgePlan(
            "greenhouse",
            PortSettings("/dev/serial/by-id/usb-Pico-if00", 115200, rtscts=True),
            Address("fmqp", "127.0.0.1", 8765),
            "reliable",
            2.0,
        ),
        BridgePlan(
            "ttyUSB1",
            PortSettings("/dev/ttyUSB1", 9600),
            Address("tcp", "127.0.0.1", 4000),
            "raw",
            10.0,
        ),
        ExposePlan(
            "127.0.0.1:9000",
            PortSettings("socket://127.0.0.1:9000", 115200),
            "127.0.0.1",
            7001,
            rfc2217=True,
        ),
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("[[port]]\nserial", "[[port]\nserial", 12, "is not TOML"),
        ("rtscts = true", "rtscts = tru", 10, "is not TOML"),
        ("rtscts = true", 'rtscts = "yes"', 10, "port.rtscts = 'yes' is not true or false"),
        ("baud = 9600", "baud = 9600.5", 16, "port.baud = 9600.5 is not a whole number"),
        ("baud = 9600", "baud = 10", 16, "port.baud = 10 is not from 300 to"),
        ("baud = 115200", "baud = true", 4, "defaults.baud = True is not a whole number"),
        ("silence_s = 10", "silence_s = -1", 15, "is not 0.05 or more"),
        ("silence_s = 10", "silence_s = nan", 15, "nan is no number that means anything"),
        ('mode = "reliable"', 'mode = "fast"', 9, "one of raw, reliable"),
        ('mode = "reliable"', 'mood = "raw"', 9, "unknown key port.mood; here are known: baud,"),
        ("[defaults]", "[default]", 2, "unknown key default; here are known: defaults, port"),
        ('to = "fmqp://127.0.0.1:8765"', 'to = "127.0.0.1"', 3, "is no address"),
        ('to = "tcp://127.0.0.1:4000"', 'to = "tcp://127.0.0.1"', 14, "names no port"),
        ('to = "tcp://127.0.0.1:4000"', 'to = "lightmq://h/id"', 14, "the board itself says who"),
        ('to = "tcp://127.0.0.1:4000"', 'to = "fmqps://h?ca=/no"', 14, "ca=/no is no file"),
        ('to = "tcp', 'listen = "1"\nto = "tcp', 14, "either 'to'"),
        ('serial = "/dev/ttyUSB1"\n', "", 12, "has no 'serial'"),
        ('serial = "/dev/ttyUSB1"', 'serial = ""', 13, "port.serial is empty"),
        ('serial = "/dev/ttyUSB1"', 'serial = "/dev/serial/by-id/usb-Pico-if00"', 13, "line 6 too"),
        ("silence_s = 10", 'name = "greenhouse"', 15, "name 'greenhouse' is that of line 6 too"),
        ("rfc2217 = true", 'mode = "raw"', 21, "'mode' is for ports without 'listen' only"),
        ("silence_s = 10", "rfc2217 = true", 15, "'rfc2217' is for ports with 'listen' only"),
        ('"127.0.0.1:7001"', '"127.0.0.1:x"', 20, "is not HOST:PORT"),
        ('"127.0.0.1:7001"', '"0.0.0.0:7001"', 20, "give a token file"),
        ("rfc2217 = true", 'token_file = "/no/such"', 20, "token file /no/such"),
        ('to = "fmqp://127.0.0.1:8765"\n', "", 5, "neither 'to'"),
        ("# all ports", 'port = "x"', 6, "is not TOML"),
        (_GOOD, "", 1, "0 ports; write 1 to 256"),
        (_GOOD, "port = 3", 1, "[[port]]"),
        ("# all ports", 'name = "x"', 1, "unknown key name"),
        ("baud = 115200", 'name = "x"', 4, "'name' is of one port only"),
    ],
)
def test_complaints_name_the_line(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    assert old in _GOOD
    with pytest.raises(TomlError) as complaint:
        _load(tmp_path, _GOOD.replace(old, new, 1))
    assert str(complaint.value).startswith(f"{tmp_path / 'bridge.toml'}:{line}: ")
    assert words in str(complaint.value)


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(TomlError, match="cannot be read: No such file"):
        load_config(tmp_path / "none.toml")
    (tmp_path / "bridge.toml").write_bytes(b"# fine\n\xff\xfe")
    with pytest.raises(TomlError, match=r"bridge\.toml:2: is not UTF-8"):
        load_config(tmp_path / "bridge.toml")


def test_a_token_opens_other_addresses_and_is_never_shown(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hard to guess\n")
    text = _GOOD.replace("127.0.0.1:7001", "0.0.0.0:7001") + f'token_file = "{token}"\n'
    plan = _load(tmp_path, text)[2]
    assert isinstance(plan, ExposePlan)
    assert plan.token == b"hard to guess"
    assert "guess" not in repr(plan)


def test_a_file_with_any_mistake_is_a_complaint_about_that_file(tmp_path: Path) -> None:
    good = tmp_path / "bridge.toml"
    complaints = 0
    for seed in range(400):
        chance = random.Random(seed)
        text = list(_GOOD)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(text))
            match chance.randrange(3):
                case 0:
                    del text[at : at + chance.randint(1, 30)]
                case 1:
                    text[at] = chance.choice("[]{}=\"'\n#.x1-é\\")
                case _:
                    begin = chance.randrange(len(_GOOD))
                    text[at:at] = _GOOD[begin : begin + chance.randint(1, 40)]
        good.write_text("".join(text))
        try:
            load_config(good)
        except TomlError as complaint:
            complaints += 1
            assert re.match(re.escape(str(good)) + r":\d+: .+", str(complaint))
    assert complaints > 200
