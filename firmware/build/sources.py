"""The unpacked source trees, fetched once for all recipes."""

import shutil
from collections.abc import Callable
from pathlib import Path

from firmware.build.apt import PrivateApt
from firmware.build.commands import BuildError, Runner, require_tools
from firmware.build.pins import MBEDTLS, MICROPYTHON, PACKAGES

_UNPACK_S = 120.0
_TOOLS = {
    "apt-get": "apt",
    "dpkg-source": "dpkg-dev",
    "dpkg-deb": "dpkg",
    "gpgv": "gpgv",
    "tar": "tar",
    "xz": "xz-utils",
    "bzip2": "bzip2",
}


def fetch_sources(folder: Path, runner: Runner, progress: Callable[[str], None]) -> None:
    """Fill ``folder`` with ``micropython/`` (Mbed TLS in its ``lib/``) and ``debian/usr/src/``."""
    require_source_tools()
    progress("fetching MicroPython 1.25.0 and its libraries from Debian (about 40 MB)…")
    downloads, debian, tree = folder / "downloads", folder / "debian", folder / "micropython"
    downloads.mkdir()
    apt = PrivateApt(folder / "apt", runner)
    apt.update()
    for package in PACKAGES:
        apt.fetch(package, downloads, progress)
    unpack_micropython(downloads, tree, runner)
    unpack_binaries(downloads, debian, runner)
    # The source package without Debian's patches is where MicroPython expects its submodule.
    mbedtls = tree / "lib" / "mbedtls"
    mbedtls.mkdir(exist_ok=True)
    archive = _one(downloads, f"{MBEDTLS.name}_*.orig.tar.*")
    into: list[str | Path] = ["--strip-components=1", "--no-same-owner", "-C", mbedtls]
    runner.run("unpacking Mbed TLS", ["tar", *into, "-xf", archive], deadline_s=_UNPACK_S)
    _fill_gaps(tree, debian)
    shutil.rmtree(folder / "apt")
    shutil.rmtree(downloads)


def require_source_tools() -> None:
    """Raise ``BuildError`` unless all that fetches and unpacks Debian packages is installed."""
    require_tools("fetching MicroPython's sources", _TOOLS)


def unpack_micropython(downloads: Path, tree: Path, runner: Runner) -> None:
    """Unpack the source package that lies in ``downloads`` as the new folder ``tree``."""
    # Debian's patches replace the bundled Mbed TLS and the version header by its own: skip them.
    description = _one(downloads, f"{MICROPYTHON.name}_*.dsc")
    unpack: list[str | Path] = [
        "dpkg-source",
        "--no-copy",
        "--skip-patches",
        "-x",
        description,
        tree,
    ]
    runner.run("unpacking MicroPython", unpack, deadline_s=_UNPACK_S)
    # Its makefiles take this file as the sign that the submodule is there.
    (tree / "lib" / "micropython-lib").mkdir(exist_ok=True)
    (tree / "lib" / "micropython-lib" / "README.md").touch()


def unpack_binaries(downloads: Path, root: Path, runner: Runner) -> None:
    """Unpack all binary packages in ``downloads`` over each other in the folder ``root``."""
    for archive in sorted(downloads.glob("*.deb")):
        runner.run(
            f"unpacking {archive.name}", ["dpkg-deb", "-x", archive, root], deadline_s=_UNPACK_S
        )


def _fill_gaps(tree: Path, debian: Path) -> None:
    """Stand in for the submodules that Debian's source package leaves empty."""
    tinyusb = tree / "lib" / "tinyusb"
    shutil.rmtree(tinyusb, ignore_errors=True)
    # Relative, because the folder is renamed when it is complete.
    tinyusb.symlink_to("../../debian/usr/src/tinyusb")
    if not (debian / "usr/src/tinyusb/src").is_dir() or not (debian / "usr/src/pico-sdk").is_dir():
        raise BuildError(
            "Debian's pico-sdk-source or tinyusb-source is laid out in another way than expected; "
            "the recipe in firmware/build/sources.py must follow it"
        )


def _one(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise BuildError(f"expected one file {pattern} from Debian, found {len(found)}")
    return found[0]
