"""The client and the node on a board: copied by mpremote, compared by the board's own digests."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boards.inventory.models import Model, Uart
from boards.mpremote_cli import copy_to_board
from boards.session.plan import BoardPlan
from boards.session.run_certificates import RunCertificates
from boards.tool import OnLine
from firmware.node_files import compile_client, compile_node

TELEMETRY: Mapping[str, int] = {"seconds": 60, "rate_hz": 10}  # what a node sends: docs/node.md
_KEEPALIVE_MS = 500
# Between two steps of a check nobody polls the board's end of the link, and a step may take a
# while to reach an emulated board.
_PATIENCE_MS = 8000

_ROOT = ":"  # as mpremote calls it

_HASH_CODE = """
import binascii, hashlib
def _hash(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while True:
            b = f.read(512)
            if not b:
                break
            h.update(b)
    return binascii.hexlify(h.digest()).decode()
for p in {paths!r}:
    print(p, _hash(p))
import sys
if "/lib" not in sys.path:  # the unix port: it has no soft reset, either
    if "lib" not in sys.path:
        sys.path.append("lib")
    for m in list(sys.modules):
        if m in ("agent", "confirmed", "line", "node", "traffic") or m.startswith("umotemq"):
            del sys.modules[m]
"""


def stage_node(folder: Path) -> Path:
    """Lay out in ``folder`` what goes on a board's filesystem, as it is there.

    Raises ``CompileError``. Returns ``folder``.
    """
    shutil.rmtree(folder, ignore_errors=True)
    compiled = folder.with_name(folder.name + ".compiled")
    for source, board_path in compile_node(compiled):
        target = folder / board_path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    shutil.rmtree(compiled, ignore_errors=True)
    return folder


def stage_client(folder: Path) -> Path:
    """Lay out the client alone, as ``stage_node`` does."""
    shutil.rmtree(folder, ignore_errors=True)
    compile_client(folder)
    return folder


def root_of(model: Model) -> str:
    """Return where on a board everything is installed, in mpremote's words."""
    # The root of the unix port is the PC's: there it is the folder where it was started.
    return ":." if model.kind == "unix" else _ROOT


def node_config(
    board: BoardPlan,
    uart: Uart | None,
    broker: tuple[str, int],
    *,
    autostart: bool,
    certificates: RunCertificates | None = None,
) -> str:
    """Return ``node.json`` as docs/node.md says.

    ``uart`` None: over the console, if that is what the board has, else by TCP to ``broker``, with
    ``certificates`` by TLS.
    """
    is_console = uart is None and "console" in board.has
    config: dict[str, Any] = {
        "board": board.id,
        "protocol": board.protocol,
        "transport": "console" if is_console else "tcp" if uart is None else "uart",
        "keepalive_ms": _KEEPALIVE_MS,
        "autostart": autostart,
        "telemetry": TELEMETRY,
    }
    if is_console:
        config["patience_ms"] = _PATIENCE_MS
    elif uart is None:
        config |= {"host": broker[0], "port": broker[1]}
        if certificates is not None:
            config["tls"] = certificates.of_board()
    else:
        config["uart"] = {"id": uart.id, "baud": uart.baud, "tx": uart.tx, "rx": uart.rx}
        if "reliable" in board.has:
            config["uart"] |= {"reliable": True, "patience_ms": _PATIENCE_MS}
    return json.dumps(config)


def copy_node(
    url: str, node_dir: Path, config: Path, *, deadline_s: float, on_line: OnLine, into: str = _ROOT
) -> int:
    """Copy ``node_dir`` and ``config`` as ``copy_folder`` does; return the bytes of the node."""
    copy_folder(url, node_dir, config, deadline_s=deadline_s, on_line=on_line, into=into)
    return sum(path.stat().st_size for path in node_dir.rglob("*") if path.is_file())


def copy_folder(
    url: str, folder: Path, *more: Path, deadline_s: float, on_line: OnLine, into: str = _ROOT
) -> None:
    """Copy what is in ``folder``, laid out as on the board, and the files ``more``.

    What is there already is not sent again. The board then has nothing of an older program in
    memory. Raises ``ToolError``, ``ToolTimeout``.
    """
    # main.py last: an interrupted installation starts nothing.
    files = sorted(
        (path for path in folder.iterdir() if path.is_file()),
        key=lambda path: (path.name == "main.py", path.name),
    )
    copy_to_board(
        url,
        folders=sorted(path for path in folder.iterdir() if path.is_dir()),
        files=[*more, *files],
        deadline_s=deadline_s,
        on_line=on_line,
        forget=into == _ROOT,
        into=into,
    )


def digests(folder: Path, *more: Path) -> dict[str, str]:
    """Return what the board must hold: path, from where its REPL is, to SHA-256 in hex."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    wanted = {str(path.relative_to(folder)): _sha256(path) for path in files}
    return wanted | {path.name: _sha256(path) for path in more}


def hash_code(wanted: Mapping[str, str]) -> str:
    """Return the code that lets a board print the digests of these files."""
    return _HASH_CODE.format(paths=sorted(wanted))


def differing(wanted: Mapping[str, str], printed: str) -> str:
    """Return the first file that ``printed`` does not show as wanted, "" if all are."""
    found = dict(line.split(" ", 1) for line in printed.splitlines() if " " in line)
    return next((path for path, digest in wanted.items() if found.get(path) != digest), "")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
