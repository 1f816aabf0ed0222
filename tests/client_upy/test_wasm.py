"""The parts without sockets on MicroPython 1.28, which Debian does not have: npm does, for Node."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from boards.virtual.rp2040.node import find_node
from tests.client_upy.interpreters import DEVICE, Begun, Interpreter, begun, judged
from tests.npm_packages import node_modules

_HERE = Path(__file__).parent / "wasm"


@pytest.fixture(scope="module")
def wasm() -> Interpreter:
    """MicroPython in Node, installed into the user's cache once."""
    tools = find_node()
    packages = node_modules("micropython-wasm", _HERE, tools)
    package = packages / "@micropython/micropython-webassembly-pyscript"
    return Interpreter((str(tools.node), str(_HERE / "run.mjs"), str(package)))


def test_it_is_micropython_1_28(wasm: Interpreter, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(sys.implementation[:2], sys.argv[1])\nsys.exit(3)\n")
    code, text = wasm.output(script, "argument")
    assert (code, text) == (1, "('micropython', (1, 28, 0, '')) argument\n")


_VECTORS = ["vectors_fmqp", "vectors_lightmq", "vectors_micromsg2", "vectors_link"]
_NAMES = [
    "topic",
    "fmqp",
    "fmqp_alike",
    "batch",
    "fmqp_peer",
    "lightmq",
    "lightmq_peer",
    "micromsg2",
    "micromsg2_peer",
    "fragments",
    "link",
    "outage",
    "reliable",
    "wifi",
    "recovery",
    "misuse",
    "confirm",
    "confirm_order",
    "confirm_micromsg2",
    "fragments_window",
    "store",
    "store_count",
    "peers",
]
# What this build cannot do, and what it says then.
_UNABLE = {
    **dict.fromkeys(
        ["broker", "broker_micromsg2", "chunks", "faults", "soak", "tls"],
        "ImportError: no module named 'socket'",
    ),
    # Its asyncio is the browser's.
    **dict.fromkeys(
        ["aio", "aio_handlers", "aio_loss", "aio_micromsg2", "aio_queues", "aio_waits"],
        "module 'asyncio' has no attribute 'run'",
    ),
    "uart": "FAIL asyncio_works_over_it",
    "heap": "a_long_run_leaves_nothing_behind",  # it collects between two calls from JavaScript
}


@pytest.fixture(scope="module")
def runs(
    wasm: Interpreter, vectors: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Begun]:
    none = tmp_path_factory.mktemp("none") / "ports.json"
    none.write_text('{"fmqp": 1, "cut": 1}')
    arguments = {name: [vectors[name.removeprefix("vectors_")]] for name in _VECTORS}
    arguments |= {name: ["sync"] for name in ("recovery", "misuse", "peers")}
    arguments |= {
        name: ["sync"]
        for name in ("confirm", "confirm_order", "confirm_micromsg2", "fragments_window")
    }
    arguments |= {name: [str(none)] for name in _UNABLE} | {"heap": ["memory"]}
    names = [*reversed(_NAMES), *_VECTORS, *_UNABLE]
    chosen = [(name, *arguments.get(name, [])) for name in names]
    # When it sleeps it keeps a core busy.
    with begun(wasm, chosen, at_once=2) as runs:
        yield {run[:1]: result for run, result in runs.items()}


@pytest.mark.parametrize("name", _NAMES + _VECTORS)
def test_checks(runs: Begun, name: str) -> None:
    judged(*runs[name,].result())


@pytest.mark.parametrize("name", _UNABLE)
def test_it_cannot(runs: Begun, name: str) -> None:
    code, text = runs[name,].result()
    assert code != 0
    assert _UNABLE[name] in text


def test_no_check_file_is_forgotten() -> None:
    every = {path.stem.removeprefix("check_") for path in DEVICE.glob("check_*.py")}
    assert {*_NAMES, *_VECTORS, *_UNABLE} == every
