"""MicroPython's unix port with the ``serialrepl`` module: an interpreter for this machine."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from firmware.build.commands import Runner, require_tools
from firmware.build.pins import MICROPYTHON_1_25, Release

_FIRMWARE = Path(__file__).resolve().parent.parent
_TOOLS = {"gcc": "gcc", "make": "make", "pkg-config": "pkg-config", "python3": "python3"}
_BUILD_S = 900.0
NO_BUILD_ID = "-Wl,--build-id=none"  # it would depend on the cache folder's name


def build_env(release: Release) -> dict[str, str]:
    """Return what makes the same sources and compilers give the same bytes on every machine."""
    return {
        # Without the tag, makeversionhdr.py asks git and finds the project around the sources.
        "MICROPY_GIT_TAG": release.tag,
        "MICROPY_GIT_HASH": "",
        "SOURCE_DATE_EPOCH": str(release.date_epoch),
        "PYTHONHASHSEED": "0",  # the generators put modules in the order of a set
    }


def require_unix_tools() -> None:
    """Raise ``BuildError`` unless all that the builds below run is installed."""
    require_tools("building MicroPython", _TOOLS)


def build_mpy_cross(
    sources: Path,
    folder: Path,
    runner: Runner,
    progress: Callable[[str], None],
    release: Release = MICROPYTHON_1_25,
) -> None:
    """Build the compiler that belongs to this MicroPython: ``folder/mpy-cross``."""
    progress("building mpy-cross (about 10 s, cached afterwards)…")
    port = sources / "micropython" / "mpy-cross"
    _make(port, folder, runner, "building mpy-cross", [], build_env(release))
    _keep(folder, "mpy-cross")


def build_unix_port(
    sources: Path,
    mpy_cross: Path,
    variant: str,
    folder: Path,
    runner: Runner,
    progress: Callable[[str], None],
    release: Release = MICROPYTHON_1_25,
    compiler: Sequence[str] = (),
) -> None:
    """Build ``folder/micropython`` in the ``variant`` described in ``firmware/unixport/``.

    ``compiler``: further settings of its makefile.
    """
    what = f"building the unix port of MicroPython ({variant})"
    progress(f"{what} (about 30 s, cached afterwards)…")
    settings = [
        f"VARIANT_DIR={_FIRMWARE / 'unixport' / variant}",
        f"USER_C_MODULES={_FIRMWARE / 'serialrepl'}",
        f"MICROPY_MPYCROSS_DEPENDENCY={mpy_cross}",
        *(compiler or [f"LDFLAGS_EXTRA={NO_BUILD_ID}"]),
    ]
    env = {**build_env(release), "MICROPY_MPYCROSS": str(mpy_cross)}
    _make(sources / "micropython" / "ports" / "unix", folder, runner, what, settings, env)
    _keep(folder, "micropython")


def _make(
    port: Path, folder: Path, runner: Runner, what: str, settings: list[str], env: dict[str, str]
) -> None:
    runner.run(
        what,
        ["make", "-C", port, "-j2", f"BUILD={folder / 'build'}", *settings],
        deadline_s=_BUILD_S,
        env=env,
    )


def _keep(folder: Path, program: str) -> None:
    (folder / "build" / program).rename(folder / program)
    shutil.rmtree(folder / "build")
