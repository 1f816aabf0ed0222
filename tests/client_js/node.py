"""Node for the tests of the JavaScript client: found, or they fail."""

import functools
import os
import re
import subprocess
from pathlib import Path

from boards.virtual.rp2040.node import NodeTools, find_node
from tests.npm_packages import node_modules

CLIENT = Path(__file__).parents[2] / "client_js"
_RUN_S = 300
_LEAST_NODE = 20
NODE_OPTIONS = "--experimental-websocket"  # Node 20 has a WebSocket then; later ones have it anyway


@functools.cache
def node() -> NodeTools:
    """Return Node and npm, new enough for the client. Raises ``NodeError`` without them."""
    return find_node(_LEAST_NODE, "the JavaScript client")


def environment(**more: str) -> dict[str, str]:
    """Return what a script runs in: what npm runs finds this Node."""
    path = f"{node().node.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "NODE_OPTIONS": NODE_OPTIONS, **more}


def run_tests(*arguments: str, **variables: str) -> int:
    """Run Node's tests, all of which must pass; returns how many there were."""
    argv = [str(node().node), "--test", "--test-reporter=tap", *arguments]
    done = subprocess.run(
        argv,
        cwd=CLIENT,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    counts = dict(re.findall(r"^# (\w+) (\d+)$", done.stdout, re.MULTILINE))
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = {name: counts[name] for name in ("fail", "cancelled", "skipped", "todo")}
    assert set(wrong.values()) == {"0"}, done.stdout
    assert counts["tests"] == counts["pass"], done.stdout
    return int(counts["pass"])


def typescript() -> Path:
    """Return the compiler of the client's package-lock.json, installed into the cache once."""
    modules = node_modules("client-js-types", CLIENT, node())
    return modules / "typescript" / "bin" / "tsc"
