"""The parts without sockets on MicroPython 1.27, which Debian does not have: npm does, for Node."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from boards.virtual.rp2040.node import find_node
from firmware import cache
from tests.client_upy.interpreters import Interpreter, run_checks

_HERE = Path(__file__).parent / "wasm"
_INSTALL_S = 120


@pytest.fixture(scope="module")
def wasm() -> Interpreter:
    """MicroPython in Node, installed into the user's cache once."""
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

    entry = cache.build_once("micropython-wasm", "1.27.0", install)
    package = entry / "node_modules/@micropython/micropython-webassembly-pyscript"
    return Interpreter((str(tools.node), str(_HERE / "run.mjs"), str(package)))


def test_it_is_micropython_1_27(wasm: Interpreter, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(sys.implementation[:2], sys.argv[1])\nsys.exit(3)\n")
    code, text = wasm.output(script, "argument")
    assert (code, text) == (1, "('micropython', (1, 27, 0, '')) argument\n")


@pytest.mark.parametrize("name", ["topic", "fmqp", "lightmq"])
def test_client_over_memory(wasm: Interpreter, name: str) -> None:
    run_checks(wasm, name)


@pytest.mark.parametrize("protocol", ["fmqp", "lightmq"])
def test_vectors(wasm: Interpreter, protocol: str, vectors: dict[str, str]) -> None:
    run_checks(wasm, f"vectors_{protocol}", vectors[protocol])
