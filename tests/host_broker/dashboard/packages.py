"""Packages of npm that tests need, as the lock file has them, installed once."""

import os
import shutil
import subprocess
from pathlib import Path

from boards.virtual.rp2040.node import find_node
from firmware import cache

_HERE = Path(__file__).parent / "npm"
_INSTALL_S = 120


def node_modules() -> Path:
    """Return the folder of the locked packages, in the user's cache."""
    tools = find_node()

    def install(folder: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_HERE / name, folder)
        done = subprocess.run(
            [*tools.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_INSTALL_S,
            check=False,
            env={**os.environ, "PATH": f"{tools.node.parent}{os.pathsep}{os.environ['PATH']}"},
        )
        assert done.returncode == 0, done.stderr

    return cache.build_once("npm-dashboard", "1", install) / "node_modules"
