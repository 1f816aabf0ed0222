"""Board models as data."""

from pathlib import Path

import pytest

from boards.models import ModelError, Uart, load_model, virtual_models

_GOOD = """
id = "x"
kind = "rp2040"
prefix = "x"
virtual = true
[flash]
method = "uf2_drive"
image = "rpi_pico"
[link]
transport = "uart"
uart = { id = 1, baud = 115200, tx = 4, rx = 5 }
"""


def test_the_models_that_ship() -> None:
    models = virtual_models()
    assert models["rp2040"].flash_method == "uf2_drive"
    assert models["rp2040"].uart == Uart(id=1, baud=921600, tx=4, rx=5)
    assert models["esp32"].flash_method == "esptool"
    assert models["esp32"].offset == 0x1000
    assert models["esp32"].uart is None


def test_a_good_file_loads(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(_GOOD)
    assert load_model(path).uart == Uart(1, 115200, 4, 5)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('id = "x"', "", "key id is missing"),
        ('"uf2_drive"', '"magic"', "flash.method = 'magic' is not one of uf2_drive, esptool"),
        ("baud = 115200", 'baud = "fast"', "link.uart.baud = 'fast' is no int"),
        ("baud = 115200", "baud = true", "link.uart.baud = True is no int"),
        ("rx = 5", "rx = 5, cts = 6", "unknown key link.uart.cts"),
        ("virtual = true", "virtual = true\ncolour = 1", "unknown key colour"),
        ('[link]\ntransport = "uart"', "[link]", "key link.transport is missing"),
        ("[flash]", "[flash", "Expected"),
    ],
)
def test_a_wrong_file_is_named_with_the_key(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "x.toml"
    assert old in _GOOD
    path.write_text(_GOOD.replace(old, new))
    with pytest.raises(ModelError) as raised:
        load_model(path)
    assert str(path) in str(raised.value)
    assert words in str(raised.value)
