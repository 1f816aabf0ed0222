"""Find a finished build or make it: one entry in the cache per recipe and pinned versions."""

import errno
import hashlib
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from firmware.build.commands import BuildError, Runner
from firmware.build.rp2 import build_rpi_pico, require_rp2_tools
from firmware.build.sources import fetch_sources
from firmware.build.unix32 import build_unix32
from firmware.build.unix126 import build_unix126
from firmware.build.unixport import build_mpy_cross, build_unix_port, require_unix_tools
from firmware.build.vesp32 import as_uf2, build_vesp32
from firmware.cache import build_once, cache_dir, use

_FIRMWARE = Path(__file__).resolve().parent.parent
_NEEDED_BYTES = 1_000_000_000  # sources, one build tree, and room to breathe

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One thing that can be built: the file it makes, and everything its content depends on."""

    artifact: str
    about: str
    inputs: tuple[str, ...]  # files and folders under firmware/
    build: Callable[[Path, Runner, Progress], None]


def _sources(progress: Progress) -> Path:
    return _entry("micropython-source", progress)


def _mpy_cross(progress: Progress) -> Path:
    return _entry("mpy-cross", progress) / "mpy-cross"


def _make_sources(folder: Path, runner: Runner, progress: Progress) -> None:
    fetch_sources(folder, runner, progress)


def _make_mpy_cross(folder: Path, runner: Runner, progress: Progress) -> None:
    require_unix_tools()
    build_mpy_cross(_sources(progress), folder, runner, progress)


def _make_unix(folder: Path, runner: Runner, progress: Progress) -> None:
    require_unix_tools()
    build_unix_port(_sources(progress), _mpy_cross(progress), "unix", folder, runner, progress)


def _make_unix32(folder: Path, runner: Runner, progress: Progress) -> None:
    require_unix_tools()
    build_unix32(_sources(progress), _mpy_cross(progress), folder, runner, progress)


def _make_unix126(folder: Path, runner: Runner, progress: Progress) -> None:
    require_unix_tools()
    build_unix126(_sources(progress), folder, runner, progress)


def _make_rpi_pico(folder: Path, runner: Runner, progress: Progress) -> None:
    require_rp2_tools()
    build_rpi_pico(_sources(progress), _mpy_cross(progress), folder, runner, progress)


def _make_vesp32(folder: Path, runner: Runner, progress: Progress) -> None:
    require_unix_tools()
    build_vesp32(_sources(progress), _mpy_cross(progress), folder, runner, progress)


def _make_vpico_w(folder: Path, _runner: Runner, progress: Progress) -> None:
    image = _entry("vesp32", progress) / "firmware.bin"
    (folder / "firmware.uf2").write_bytes(as_uf2(image.read_bytes()))


_SOURCE_INPUTS = ("build/pins.py", "build/apt.py", "build/sources.py")
_CROSS_INPUTS = (*_SOURCE_INPUTS, "build/unixport.py")
_VESP32_INPUTS = (
    *_CROSS_INPUTS,
    *("build/vesp32.py", "build/esp_image.py", "serialrepl", "unixport/vesp32"),
)
_RECIPES = {
    "micropython-source": Recipe("micropython", "sources", _SOURCE_INPUTS, _make_sources),
    "mpy-cross": Recipe("mpy-cross", "the compiler of the builds", _CROSS_INPUTS, _make_mpy_cross),
    "unix": Recipe(
        "micropython",
        "MicroPython 1.25.0 for this machine, with a board's REPL",
        (*_CROSS_INPUTS, "serialrepl", "unixport/unix"),
        _make_unix,
    ),
    "unix32": Recipe(
        "micropython",
        "the same as a 32-bit program: its heap counts as a board's",
        (*_CROSS_INPUTS, "build/unix32.py", "serialrepl", "unixport/unix"),
        _make_unix32,
    ),
    "unix126": Recipe(
        "micropython",
        "MicroPython 1.26.1 for this machine",
        (*_CROSS_INPUTS, "build/unix126.py", "serialrepl", "unixport/unix"),
        _make_unix126,
    ),
    "rpi_pico": Recipe(
        "firmware.uf2",
        "MicroPython 1.25.0 for the Raspberry Pi Pico (UF2)",
        (*_CROSS_INPUTS, "build/rp2.py", "rp2port"),
        _make_rpi_pico,
    ),
    "vesp32": Recipe(
        "firmware.bin",
        "flash image for the virtual ESP32 (no real ESP32 can run it)",
        _VESP32_INPUTS,
        _make_vesp32,
    ),
    "vpico_w": Recipe(
        "firmware.uf2",
        "UF2 for the virtual Pico W (no real Pico takes it)",
        _VESP32_INPUTS,
        _make_vpico_w,
    ),
}
NAMES = ("unix", "unix32", "unix126", "rpi_pico", "vesp32", "vpico_w")


def ensure(name: str, progress: Progress | None = None) -> Path:
    """Return the built file ``name`` (one of ``NAMES``), building it if it is not in the cache.

    ``progress`` is called with one line at the start of each long step. Raises ``BuildError`` with
    one line that names the cause, the log and the remedy. A second process that wants the same
    build waits for the first and shares the result.
    """
    _check_name(name)
    return _entry(name, progress or (lambda line: None)) / _RECIPES[name].artifact


def cached(name: str) -> Path | None:
    """Return the built file ``name`` if it is in the cache, else None; builds nothing."""
    _check_name(name)
    entry = _entry_path(name)
    file = entry / _RECIPES[name].artifact
    return file if use(entry) and file.exists() else None


def current_entries() -> list[Path]:
    """Return where in the cache everything is, or would be, that this checkout builds."""
    return [_entry_path(name) for name in _RECIPES]


def about(name: str) -> str:
    """Return what the build ``name`` is, in a few words."""
    return _RECIPES[name].about


def _entry_path(name: str) -> Path:
    return cache_dir() / name / _key(_RECIPES[name].inputs)


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise BuildError(f"there is no firmware {name!r}; there are: {', '.join(NAMES)}")


def _entry(name: str, progress: Progress) -> Path:
    recipe = _RECIPES[name]
    log = cache_dir() / "logs" / f"{name}.log"

    def build(folder: Path) -> None:
        free = shutil.disk_usage(folder).free
        if free < _NEEDED_BYTES:
            raise BuildError(
                f"building {name} needs 1 GB in {folder.parent}, but {free // 1_000_000} MB are "
                "free; free some space, or set MOTEMQ_CACHE to a folder on a larger disk"
            )
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
        recipe.build(folder, Runner(log), progress)
        log.unlink()  # kept on failure only

    try:
        return build_once(name, _key(recipe.inputs), build, has=recipe.artifact)
    except OSError as error:
        where = error.filename or cache_dir()
        remedy = "free some disk space" if error.errno == errno.ENOSPC else "make it writable"
        raise BuildError(
            f"building {name}: {where}: {error.strerror}; {remedy}, or set MOTEMQ_CACHE to "
            "another folder"
        ) from error


def _key(inputs: Iterable[str]) -> str:
    """Hash the content of every input file; paths count, times and owners do not."""
    digest = hashlib.sha256()
    for path in _files(inputs):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(_FIRMWARE)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:20]


def _files(inputs: Iterable[str]) -> Iterable[Path]:
    for name in sorted(inputs):
        path = _FIRMWARE / name
        if path.is_dir():
            yield from sorted(p for p in path.rglob("*") if p.is_file() and p.suffix != ".pyc")
        else:
            yield path
