"""MicroPython for the Raspberry Pi Pico: the UF2 that a person would flash."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from firmware.build.commands import BuildError, Runner, output_of, require_tools
from firmware.build.pins import MICROPYTHON_1_25
from firmware.build.unixport import build_env

_MANIFEST = Path(__file__).resolve().parent.parent / "rp2port" / "manifest.py"
_COMPILER = "arm-none-eabi-gcc"
_TOOLS = {
    _COMPILER: "gcc-arm-none-eabi",
    "arm-none-eabi-g++": "gcc-arm-none-eabi",
    "cmake": "cmake",
    "make": "make",
    "python3": "python3",
}
_UF2_FAMILY_RP2040 = "0xe48bff56"
_FLASH_BASE = "0x10000000"
_CONFIGURE_S = 120.0
_BUILD_S = 1200.0
_CONVERT_S = 60.0


def build_rpi_pico(
    sources: Path,
    mpy_cross: Path,
    folder: Path,
    runner: Runner,
    progress: Callable[[str], None],
) -> None:
    """Build ``folder/firmware.uf2`` for the board RPI_PICO."""
    progress("building RPI_PICO firmware (about 60 s, cached afterwards)…")
    tree, build = sources / "micropython", folder / "build"
    env = {**build_env(MICROPYTHON_1_25), "MICROPY_MPYCROSS": str(mpy_cross)}
    runner.run(
        "configuring RPI_PICO firmware",
        [
            "cmake",
            "-S",
            ".",
            "-B",
            build,
            f"-DPICO_SDK_PATH_OVERRIDE={sources / 'debian/usr/src/pico-sdk'}",
            "-DMICROPY_BOARD=RPI_PICO",
            "-DPICO_NO_PICOTOOL=1",  # not in Debian in a version that the SDK takes
            f"-DMICROPY_FROZEN_MANIFEST={_MANIFEST}",
        ],
        cwd=tree / "ports" / "rp2",
        deadline_s=_CONFIGURE_S,
        env=env,
    )
    runner.run(
        "building RPI_PICO firmware", ["make", "-C", build, "-j2"], deadline_s=_BUILD_S, env=env
    )
    convert: list[str | Path] = [
        sys.executable,
        tree / "tools" / "uf2conv.py",
        "-f",
        _UF2_FAMILY_RP2040,
    ]
    convert += ["-b", _FLASH_BASE, "-c", "-o", folder / "firmware.uf2", build / "firmware.bin"]
    runner.run("converting RPI_PICO firmware to UF2", convert, deadline_s=_CONVERT_S)
    shutil.rmtree(build)


def require_rp2_tools() -> None:
    """Raise ``BuildError`` unless all that ``build_rpi_pico`` runs is installed."""
    require_tools("building RPI_PICO firmware", _TOOLS)
    # Said now, and not after a minute in a compiler message.
    query = [_COMPILER, "-print-file-name=nosys.specs"]
    found = output_of("looking for newlib", query, deadline_s=_CONVERT_S).strip()
    if not Path(found).is_absolute():
        raise BuildError(
            "building RPI_PICO firmware needs newlib, not installed here; run 'make setup' or: "
            "sudo apt-get install libnewlib-arm-none-eabi libstdc++-arm-none-eabi-newlib"
        )
