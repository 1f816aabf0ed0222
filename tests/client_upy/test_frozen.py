"""The client frozen into MicroPython by its own build, with our manifest: all but the client's own
code comes from a cached tree of objects, so that this takes seconds."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import firmware.build
from firmware import cache
from firmware.build.ensure import current_entries
from firmware.build.pins import MICROPYTHON_1_25
from firmware.build.unixport import NO_BUILD_ID, build_env
from firmware.node_files import client_sources
from tests.client_upy.interpreters import CLIENT, HEAP, ROOT, Begun, Interpreter, begun, judged

_BUILD_S = 300.0
_MEMORY = ["link", "outage", "fmqp_peer", "lightmq_peer", "uart"]
_BROKER = ["broker", "chunks", "aio", "aio_handlers", "aio_loss"]
_WITHOUT = 'include("$(MPY_DIR)/extmod/asyncio")\n'


def _make(folder: Path, manifest: str) -> Path:
    """Make the unix port in ``folder``/build, with what is there already; return its program."""
    made = {entry.parent.name: entry for entry in current_entries()}
    compiler = made["mpy-cross"] / "mpy-cross"
    (folder / "manifest.py").write_text(manifest)
    settings = {
        "BUILD": folder / "build",
        "FROZEN_MANIFEST": folder / "manifest.py",
        "VARIANT_DIR": ROOT / "firmware" / "unixport" / "unix",
        "USER_C_MODULES": ROOT / "firmware" / "serialrepl",
        "MICROPY_MPYCROSS_DEPENDENCY": compiler,
        "LDFLAGS_EXTRA": NO_BUILD_ID,
    }
    port = made["micropython-source"] / "micropython" / "ports" / "unix"
    command = ["make", "-C", str(port), "-j2", *(f"{key}={settings[key]}" for key in settings)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_BUILD_S,
        env={**os.environ, **build_env(MICROPYTHON_1_25), "MICROPY_MPYCROSS": str(compiler)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build" / "micropython"


@pytest.fixture(scope="module")
def frozen(unix_port: Path, tmp_path_factory: pytest.TempPathFactory) -> Interpreter:
    """MicroPython with the client in its flash, so to say, and nowhere else."""

    def build(folder: Path) -> None:
        _make(folder, _WITHOUT)

    # The entry of the port that is built from the same is named by the content of all that.
    key = firmware.build.ensure("unix").parent.name
    objects = cache.build_once("unix-objects", key, build)
    folder = tmp_path_factory.mktemp("frozen")
    shutil.copytree(objects, folder, dirs_exist_ok=True)
    program = _make(folder, _WITHOUT + f'include("{CLIENT / "manifest.py"}")\n')
    return Interpreter((str(program), "-X", f"heapsize={HEAP}"), folder / "nowhere")


def test_every_module_is_there(frozen: Interpreter, tmp_path: Path) -> None:
    names = [path.stem for path in client_sources() if path.stem != "__init__"]
    (tmp_path / "script.py").write_text(
        "import sys\n"
        "for name in sys.argv[1:]:\n"
        "    print(getattr(__import__('umotemq.' + name), name).__file__)\n"
    )
    code, text = frozen.output(tmp_path / "script.py", *names)
    assert (code, text.split()) == (0, [f"umotemq/{name}.py" for name in names])


@pytest.fixture(scope="module")
def runs(frozen: Interpreter, broker_ports: str) -> Iterator[Begun]:
    chosen = [*((name,) for name in _MEMORY), *((name, broker_ports) for name in _BROKER)]
    with begun(frozen, chosen) as runs:
        yield {run[:1]: result for run, result in runs.items()}


@pytest.mark.parametrize("name", _MEMORY + _BROKER)
def test_checks(runs: Begun, name: str) -> None:
    judged(*runs[name,].result())
