"""The builds are what they say: real tools and real formats are the judges."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from firmware.build import BuildError, ensure
from firmware.build.apt import PrivateApt
from firmware.build.commands import Runner
from firmware.build.ensure import cached
from firmware.build.pins import NEWER_SUITE, Package
from firmware.cache import cache_dir

_UF2_BLOCK = 512
_UF2_MAGIC = b"UF2\nWQ]\x9e"
_RP2040_FAMILY = (0xE48BFF56).to_bytes(4, "little")


def _python(program: Path, code: str) -> str:
    done = subprocess.run(
        [program, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.strip()


def test_unix_is_micropython_1_25(unix_port: Path) -> None:
    assert _python(unix_port, "import sys; print(sys.implementation[:2])") == (
        "('micropython', (1, 25, 0, ''))"
    )
    assert "v1.25.0 on 2025-04-15" in _python(unix_port, "import sys; print(sys.version)")


def test_unix32_has_the_object_sizes_of_a_board() -> None:
    program = ensure("unix32")
    assert _python(program, "import sys; print(sys.implementation[:2], sys.maxsize)") == (
        f"('micropython', (1, 25, 0, '')) {2**31 - 1}"
    )
    # A block of its heap is four words: 16 bytes, as on an ESP32 and RP2040.
    code = (
        "import gc\nkept = [None] * 100\ngc.collect()\nbefore = gc.mem_alloc()\n"
        "for i in range(100): kept[i] = bytearray(1)\n"
        "print((gc.mem_alloc() - before) // 100)"
    )
    assert _python(program, code) == "32"  # the object and its byte


def test_unix32_needs_no_32_bit_system() -> None:
    # An absolute interpreter would be looked for on this machine, and is not installed.
    header = subprocess.run(
        ["readelf", "--file-header", "--program-headers", ensure("unix32")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "ELF32" in header.stdout
    assert "INTERP" not in header.stdout


def test_unix126_is_micropython_1_26() -> None:
    program = ensure("unix126")
    assert _python(program, "import sys; print(sys.implementation[:2])") == (
        "('micropython', (1, 26, 1, ''))"
    )
    assert "v1.26.1 on 2025-09-11" in _python(program, "import sys; print(sys.version)")


def test_a_version_that_debian_replaced_is_named(tmp_path: Path) -> None:
    apt = PrivateApt(tmp_path / "apt", Runner(tmp_path / "log"), NEWER_SUITE)
    apt.update()
    gone = Package("micropython", "1.3.0-1", "source", series="1.3.")
    with pytest.raises(BuildError, match=r"^Debian sid has micropython \d.*, but .* 1\.3\.0-1; "):
        apt.fetch(gone, tmp_path, lambda line: None)


@pytest.mark.parametrize(
    "module",
    ["asyncio", "cryptolib", "deflate", "hashlib", "json", "select", "socket", "struct", "tls"],
)
@pytest.mark.parametrize("build", ["unix", "unix32", "unix126"])
def test_unix_has_what_board_code_uses(build: str, module: str) -> None:
    assert module in _python(ensure(build), f"import {module}; print({module})")


def test_unix_honours_a_small_heap(unix_port: Path) -> None:
    code = "import gc; gc.collect(); print(gc.mem_free())"
    done = subprocess.run(
        [unix_port, "-X", "heapsize=160k", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert 150_000 < int(done.stdout) < 160 * 1024


def test_rpi_pico_is_a_whole_uf2_for_the_rp2040() -> None:
    data = ensure("rpi_pico").read_bytes()
    blocks = [data[start : start + _UF2_BLOCK] for start in range(0, len(data), _UF2_BLOCK)]
    assert len(data) == len(blocks) * _UF2_BLOCK
    for number, block in enumerate(blocks):
        assert block[:8] == _UF2_MAGIC
        assert int.from_bytes(block[12:16], "little") == 0x1000_0000 + 256 * number
        assert int.from_bytes(block[20:24], "little") == number
        assert int.from_bytes(block[24:28], "little") == len(blocks)
        assert block[28:32] == _RP2040_FAMILY
    assert b"Raspberry Pi Pico" in data


def test_vesp32_is_an_image_that_esptool_accepts() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "esptool", "image-info", ensure("vesp32")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "Detected image type: ESP32" in done.stdout
    assert done.stdout.count("(valid)") == 2  # checksum and hash
    assert "Chip ID: 0 (ESP32)" in done.stdout


def test_a_second_time_nothing_is_built(unix_port: Path) -> None:
    said: list[str] = []
    assert ensure("unix", said.append) == unix_port
    assert said == []
    assert cached("unix") == unix_port


def test_what_a_cleaner_of_caches_took_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removes files that nobody has used for long, and leaves their folders."""
    image = ensure("vesp32")
    here = tmp_path / image.relative_to(cache_dir())
    here.parent.mkdir(parents=True)
    shutil.copy(image, here)
    monkeypatch.setenv("MOTEMQ_CACHE", str(tmp_path))
    uf2 = ensure("vpico_w")
    content = uf2.read_bytes()
    uf2.unlink()
    assert cached("vpico_w") is None
    assert ensure("vpico_w") == cached("vpico_w") == uf2
    assert uf2.read_bytes() == content


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(BuildError, match="no firmware 'esp9000'; there are: unix, unix32, "):
        ensure("esp9000")
