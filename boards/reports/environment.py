"""Where a run was made and of what: what a reader of its report needs to make it again."""

import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import boards

_TOOLS = ("motemq", "esptool", "mpremote", "pyserial")
_GIT_S = 10.0
_ABOUT_LIMIT = 2000  # characters of the command


def environment(command: Sequence[str]) -> dict[str, str]:
    """Return names and texts; ``command`` is the command line that started the run."""
    about = {"command": shlex.join(command)[:_ABOUT_LIMIT]}
    if commit := _commit():
        about["git"] = commit
    about["python"] = platform.python_version()
    about["system"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    load = ", ".join(f"{average:.2f}" for average in os.getloadavg())
    about["cores"] = f"{os.cpu_count()}, load at the start {load}"
    for name in _TOOLS:
        try:
            about[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return about


def _commit() -> str:
    """Return the commit of this code, "" if it is in no repository of git."""
    root = Path(boards.__file__).parents[1]
    if not (root / ".git").exists():
        return ""
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return ""
    return commit + (" with changes" if changed else "")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), "--no-optional-locks", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_GIT_S,
        check=True,
    )
    return done.stdout.strip()
