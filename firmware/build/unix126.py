"""MicroPython 1.26's unix port: what runs on 1.25 must run on the next release too.

Only Debian's unstable suite has it, and will one day have another instead; the pin then says so.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from firmware.build.apt import PrivateApt
from firmware.build.commands import Runner
from firmware.build.pins import MICROPYTHON_1_26, NEWER_SUITE
from firmware.build.sources import require_source_tools, unpack_micropython
from firmware.build.unixport import build_mpy_cross, build_unix_port


def build_unix126(
    sources: Path, folder: Path, runner: Runner, progress: Callable[[str], None]
) -> None:
    """Build ``folder/micropython``; ``sources`` are those of 1.25, for their Mbed TLS."""
    require_source_tools()
    progress("fetching MicroPython 1.26 from Debian (about 6 MB)…")
    downloads, trees = folder / "downloads", folder / "trees"
    downloads.mkdir()
    trees.mkdir()
    apt = PrivateApt(folder / "apt", runner, NEWER_SUITE)
    apt.update()
    apt.fetch(MICROPYTHON_1_26.source, downloads, progress)
    tree = trees / "micropython"
    unpack_micropython(downloads, tree, runner)
    mbedtls = tree / "lib" / "mbedtls"
    shutil.rmtree(mbedtls, ignore_errors=True)
    # Our own copy: makefiles look for it there, and another cache entry may vanish.
    shutil.copytree(sources / "micropython" / "lib" / "mbedtls", mbedtls, symlinks=True)
    build_mpy_cross(trees, folder, runner, progress, MICROPYTHON_1_26)
    cross = folder / "mpy-cross"
    build_unix_port(trees, cross, "unix", folder, runner, progress, MICROPYTHON_1_26)
    cross.unlink()
    for part in (trees, downloads, folder / "apt"):
        shutil.rmtree(part)
