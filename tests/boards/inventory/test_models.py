"""Board models as data, and TOML errors that name the line."""

import os
from pathlib import Path

import pytest
from esptool.targets import CHIP_DEFS
from hypothesis import given
from hypothesis import strategies as st

from boards.inventory.models import (
    TomlError,
    Uart,
    all_models,
    load_model,
    models_of,
    virtual_models,
)
from boards.toml_file import key_lines, read_toml
from firmware import build
from firmware.images import official_images

_GOOD = """\
id = "x"
about = "a board"
kind = "rp2040"
prefix = "x"
virtual = true
resets = ["repl"]
[flash]
method = "uf2_drive"
image = "rpi_pico"
chip_ids = [0xe48bff56]
[link]
transport = "uart"
uart = { id = 1, baud = 115200, tx = 4, rx = 5 }
"""


def test_the_virtual_models() -> None:
    models = virtual_models()
    assert models["rp2040"].flash.method == "uf2_drive"
    assert models["rp2040"].uart == Uart(id=1, baud=921600, tx=4, rx=5)
    assert models["esp32"].flash.method == "esptool"
    assert models["esp32"].flash.offset == 0x1000
    assert models["esp32"].uart is None


def test_every_model_that_ships_can_be_told_and_flashed() -> None:
    models = all_models()
    assert set(models) == {
        *("ESP32_GENERIC", "ESP32_GENERIC_S2", "ESP32_GENERIC_S3"),
        *("ESP32_GENERIC_C3", "ESP32_GENERIC_C6"),
        *("RPI_PICO", "RPI_PICO_W", "RPI_PICO2", "RPI_PICO2_W"),
        *("unix", "virtual-rp2040", "virtual-rp2040w", "virtual-esp32"),
    }
    for model in models.values():
        assert bool(model.usb) == (not model.virtual and model.id != "unix")
        assert bool(model.flash.chip_ids) == (model.flash.method != "none")
    assert models["ESP32_GENERIC"].flash.offset == 0x1000
    assert models["ESP32_GENERIC_S3"].flash.offset == models["ESP32_GENERIC_C3"].flash.offset == 0
    names = {model.chip_name for model in models.values()}
    assert names == {
        *("ESP32", "ESP32-S2", "ESP32-S3", "ESP32-C3", "ESP32-C6"),
        *("RP2040", "RP2040W", "RP2350", "UNIX"),
    }


def test_the_facts_of_esp_models_are_those_of_esptool() -> None:
    for model in all_models().values():
        if model.flash.method == "esptool":
            chip = CHIP_DEFS[model.kind]
            assert (model.chip_name, model.flash.chip_ids) == (
                chip.CHIP_NAME,
                (chip.IMAGE_CHIP_ID,),
            )
            assert model.flash.offset == chip.BOOTLOADER_FLASH_OFFSET


def test_every_image_of_a_model_that_ships_can_be_had() -> None:
    known = {*official_images(), *build.NAMES, ""}
    assert {model.flash.image for model in all_models().values()} <= known


def test_a_desk_has_models_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "MY_PICO.toml").write_text(
        _GOOD.replace("virtual = true", "").replace("rpi_pico", "firmware/mine.uf2")
    )
    own = models_of(tmp_path)
    assert set(own) == {*all_models(), "x"}
    assert own["x"].flash.image == str(tmp_path / "firmware/mine.uf2")
    assert models_of(tmp_path / "absent") == all_models()
    (tmp_path / "again.toml").write_text((tmp_path / "MY_PICO.toml").read_text())
    with pytest.raises(TomlError, match=r"again.toml:1: there is a model 'x' in this folder"):
        models_of(tmp_path)
    (tmp_path / "again.toml").write_text(_GOOD.replace('"x"', '"y"', 1))
    with pytest.raises(TomlError, match="a virtual board is none of a desk's own"):
        models_of(tmp_path)


def test_a_good_file_loads(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(_GOOD)
    assert load_model(path).uart == Uart(1, 115200, 4, 5)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('id = "x"\n', "", 1, "id is missing; it is text in quotes"),
        ('"uf2_drive"', '"magic"', 8, "flash.method = 'magic' is not one of uf2_drive, picotool"),
        ("baud = 115200", 'baud = "fast"', 13, "link.uart.baud = 'fast' is not a whole number"),
        ("baud = 115200", "baud = true", 13, "link.uart.baud = True is not a whole number"),
        ("baud = 115200", "baud = 5", 13, "link.uart.baud = 5 is not from 300 to 4000000"),
        ("rx = 5", "rx = 5, cts = 6", 13, "unknown key link.uart.cts; here are known: baud, id"),
        ("virtual = true", "virtual = true\ncolour = 1", 6, "unknown key colour"),
        ('transport = "uart"\n', "", 11, "link.transport is missing"),
        ('["repl"]', '["repl", "kick"]', 6, "resets: 'kick' is not one of control, rts"),
        ("[0xe48bff56]", "[]", 10, "flash.chip_ids is empty: no image could be for it"),
        ('"rpi_pico"', '""', 9, "flash.image is empty"),
        ('prefix = "x"', 'prefix = "Green House"', 4, "write 1 to 27 of a-z, 0-9 and -, as"),
        ('prefix = "x"', f'prefix = "{"x" * 28}"', 4, "write 1 to 27 of a-z, 0-9 and -, as"),
        ("[flash]", "[flash", 7, "is not TOML: Expected"),
    ],
)
def test_a_wrong_file_is_named_with_line_and_key(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    path = tmp_path / "x.toml"
    assert old in _GOOD
    path.write_text(_GOOD.replace(old, new))
    with pytest.raises(TomlError) as raised:
        load_model(path)
    assert str(raised.value).startswith(f"{path}:{line}: ")
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a = 1\n" * 200_000, "larger than 1 MiB"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (None, "cannot be read: No such file"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "x.toml:1: is no configuration: it has brackets"),
        (b"a = " + b"9" * 5000, "x.toml:1: is no configuration: .* thousands of digits"),
        (b'a = 1\n[b]\nc = [{d = "x\\u0000y"}]', "x.toml:3: a text has a zero character"),
        (b'"\\U00000000" = 1', "x.toml:1: a text has a zero character"),
    ],
)
def test_what_is_no_configuration_is_refused(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "x.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TomlError, match=words):
        read_toml(path)


@pytest.mark.parametrize("number", ["nan", "-inf", "1e999"])
def test_a_number_without_a_value_is_no_limit(tmp_path: Path, number: str) -> None:
    """Nothing would ever be beyond it."""
    (tmp_path / "x.toml").write_text(f"[limits]\nfinance = 1.5\nrtt_p99_ms = {number}\n")
    with pytest.raises(TomlError, match=rf"x\.toml:3: {number.strip('-+')}|x\.toml:3: {number}"):
        read_toml(tmp_path / "x.toml")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.toml")
    with pytest.raises(TomlError, match="cannot be read: no file"):
        read_toml(tmp_path / "x.toml")


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    (tmp_path / "x.toml").write_bytes(b"\xef\xbb\xbf[a]\r\nb = 1\r\n")
    toml = read_toml(tmp_path / "x.toml")
    assert (toml.data, toml.line("a.b")) == ({"a": {"b": 1}}, 2)


def test_lines_are_found_around_values_of_many_lines() -> None:
    text = '''\
# a = 1
one = """
two = 2
[three]
"""
four = [
  "[five]",  # six = 6
]
[seven."ei.ght"]
"nine".ten = \'\'\'
eleven = 1\'\'\'
[[twelve]]
thirteen = "a \\" # b"
fourteen = { x = [
 1 ] }
fifteen = 1979-05-27
'''
    assert key_lines(text) == {
        ("one",): 2,
        ("four",): 6,
        ("seven", "ei.ght"): 9,
        ("seven", "ei.ght", "nine"): 10,
        ("seven", "ei.ght", "nine", "ten"): 10,
        ("twelve",): 12,
        ("twelve", "thirteen"): 13,
        ("twelve", "fourteen"): 14,
        ("twelve", "fifteen"): 16,
    }


@given(st.text(max_size=200))
def test_the_scanner_ends_on_any_text(text: str) -> None:
    assert all(1 <= line <= text.count("\n") + 1 for line in key_lines(text).values())
