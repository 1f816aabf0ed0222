"""The client's packages for ``mip`` with compiled files: less to copy, less heap to import."""

import json
from pathlib import Path

from firmware.board_sources import files_for_boards
from firmware.node_files import compile_modules

_CLIENT = Path(__file__).parents[1] / "client_upy"


def write_packages(out: Path) -> list[Path]:
    """Write what ``client_upy/package*.json`` list into the folder ``out``, compiled.

    The files are for MicroPython 1.23 and later (.mpy version 6.3). Returns the package lists, in
    the order of their names. Raises CompileError, OSError.
    """
    packages = []
    for source in sorted(_CLIENT.glob("package*.json")):
        package = json.loads(source.read_text())
        urls = []
        # A folder for each, as the file __init__ differs.
        folder = source.stem
        modules = [_CLIENT / name for _, name in package["urls"]]
        for name, parts in files_for_boards(modules).items():
            compile_modules(parts, out / folder / f"{name}.mpy")
            urls.append([f"umotemq/{name}.mpy", f"{folder}/{name}.mpy"])
        package["urls"] = urls
        target = out / source.name
        target.write_text(json.dumps(package, indent=2) + "\n")
        packages.append(target)
    return packages
