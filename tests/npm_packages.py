"""Packages of npm that tests need, exactly as their lock file has them."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from boards.virtual.rp2040.node import NodeTools
from firmware import cache

_INSTALL_S = 120


def node_modules(name: str, locked: Path, tools: NodeTools) -> Path:
    """Return the folder of the packages that ``package-lock.json`` in the folder ``locked`` names.

    They are installed once for each content of that file, as ``name`` in the user's cache, never
    into the repository; no script of theirs is run. Fails, with npm's words, if they cannot be had.
    """

    def install(folder: Path) -> None:
        for each in ("package.json", "package-lock.json"):
            shutil.copy(locked / each, folder)
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

    key = hashlib.sha256((locked / "package-lock.json").read_bytes()).hexdigest()[:16]
    return cache.build_once(name, key, install) / "node_modules"
