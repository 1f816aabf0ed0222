"""MicroPython's unix port as a 32-bit program: objects and pointers are as wide as a board's.

Its bytes of heap are those of an ESP32 or RP2040, which a 64-bit interpreter's are not. It is
linked statically with a libc of our own, so that nothing has to be installed: neither the 32-bit
libc to build it nor the 32-bit loader to run it. Debian's gcc for amd64 compiles for both widths.
"""

import platform
import shutil
from collections.abc import Callable
from pathlib import Path

from firmware.build.apt import PrivateApt
from firmware.build.commands import BuildError, Runner
from firmware.build.pins import LIBC_32
from firmware.build.sources import require_source_tools, unpack_binaries
from firmware.build.unixport import NO_BUILD_ID, build_unix_port


def build_unix32(
    sources: Path,
    mpy_cross: Path,
    folder: Path,
    runner: Runner,
    progress: Callable[[str], None],
) -> None:
    """Build ``folder/micropython`` for 32 bits.

    Raises ``BuildError`` if this machine is none of the x86-64 family.
    """
    if platform.machine() != "x86_64":
        raise BuildError(
            f"the 32-bit MicroPython is a program for x86, but this machine is {platform.machine()}"
        )
    require_source_tools()
    root, downloads = folder / "libc", folder / "downloads"
    progress("fetching a 32-bit libc from Debian (about 9 MB)…")
    downloads.mkdir()
    apt = PrivateApt(folder / "apt", runner)
    apt.update()
    for package in LIBC_32:
        apt.fetch(package, downloads, progress)
    unpack_binaries(downloads, root, runner)
    libraries = [root / "usr" / "lib32", _libgcc(root)]
    include = root / "usr" / "include"
    headers = f"--sysroot={root} -isystem {include} -isystem {include / 'x86_64-linux-gnu'}"
    places = " ".join(f"-B{place}/ -L{place}" for place in libraries)
    compiler = [
        "MICROPY_FORCE_32BIT=1",
        f"CFLAGS_EXTRA={headers}",
        f"LDFLAGS_EXTRA=-static --sysroot={root} {places} {NO_BUILD_ID}",
    ]
    build_unix_port(sources, mpy_cross, "unix", folder, runner, progress, compiler=compiler)
    for part in (root, downloads, folder / "apt"):
        shutil.rmtree(part)


def _libgcc(root: Path) -> Path:
    found = sorted(root.glob("usr/lib/gcc/x86_64-linux-gnu/*/32"))
    if len(found) != 1:
        raise BuildError(
            "Debian's lib32gcc package is laid out in another way than expected; "
            "the recipe in firmware/build/unix32.py must follow it"
        )
    return found[0]
