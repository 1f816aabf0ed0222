"""The client's packages for ``mip`` with compiled files: less to copy, less heap to import."""

import hashlib
import json
from pathlib import Path

from firmware.node_files import compile_module

_CLIENT = Path(__file__).parents[1] / "client_upy"


def write_packages(out: Path) -> list[Path]:
    """Write what ``client_upy/package*.json`` list into the folder ``out``, compiled.

    The files are for MicroPython 1.23 and later (.mpy version 6.3). Returns the package lists, in
    the order of their names. Raises CompileError, OSError.
    """
    packages = []
    for source in _package_lists():
        package = json.loads(source.read_text())
        for url in package["urls"]:
            module = Path(url[1])
            url[:] = [f"umotemq/{module.stem}.mpy"] * 2
            compile_module(_CLIENT / module, out / url[1])
        target = out / source.name
        target.write_text(json.dumps(package, indent=2) + "\n")
        packages.append(target)
    return packages


def write_index(out: Path) -> list[str]:
    """Write an index for ``mip install --index``: sources and compiled files, by their hashes.

    It is laid out as micropython-lib's: ``package/py/NAME/latest.json`` for sources and
    ``package/6/…`` for .mpy version 6, also by the version; and ``file/``. Returns the packages'
    names. Raises CompileError, OSError.
    """
    names = []
    for source in _package_lists():
        package = json.loads(source.read_text())
        name = source.stem.replace("package", "umotemq")
        modules = [_CLIENT / url for _, url in package["urls"]]
        compiled = [
            compile_module(path, out / "mpy" / "umotemq" / f"{path.stem}.mpy") for path in modules
        ]
        for kind, files in (("py", modules), ("6", compiled)):
            document = {
                "v": 1,
                "version": package["version"],
                "hashes": [[f"umotemq/{path.name}", _filed(path, out)] for path in files],
            }
            for version in ("latest", package["version"]):
                target = out / "package" / kind / name / f"{version}.json"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(json.dumps(document) + "\n")
        names.append(name)
    return names


def _package_lists() -> list[Path]:
    """Return them by name. Raises ``FileNotFoundError`` where there is no clone."""
    lists = sorted(_CLIENT.glob("package*.json"))
    if not lists:
        raise FileNotFoundError(
            f"{_CLIENT} has no package*.json: the client's packages are made in a clone of MoteMQ"
        )
    return lists


def _filed(path: Path, out: Path) -> str:
    """Copy a file to where the index has it; return its short hash."""
    content = path.read_bytes()
    short = hashlib.sha256(content).hexdigest()[:8]
    target = out / "file" / short[:2] / short
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return short
