"""The same check files on the virtual boards: from flash, with the compiled client, by mpremote."""

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from boards.bridge.bridge import RawBridge
from boards.virtual.board import BoardKind
from tests.client_upy.broker_side import BrokerSide
from tests.client_upy.check_board import CheckBoard, compile_checks
from tests.client_upy.fault_server import FaultServer
from tests.client_upy.fault_sides import fault_sides
from tests.client_upy.interpreters import DEVICE, judged
from tests.client_upy.tls_side import tls_side

_BAUD = 921600
# An emulated chip on a busy machine may say nothing for 2 s, which ends a session of a raw bridge
# that is as patient as usual.
_SILENCE_S = 4.0
_FOLDERS = {
    "rp2040": ["lib", "device", "vectors", "live"],
    "esp32": ["lib", "device", "vectors", "live", "tls", "faults"],
}
# Two of each share the work: an emulated chip is slow, and faults take their time.
_BOARDS: dict[BoardKind, int] = {"rp2040": 2, "esp32": 2}
_Run = tuple[str, ...]  # the name of a check file, and its arguments on the board

_ANYWHERE: list[_Run] = [
    *((name,) for name in ("lightmq", "lightmq_peer", "topic", "fmqp", "fmqp_alike", "fmqp_peer")),
    *((name,) for name in ("link", "outage", "store", "store_count", "uart", "wifi")),
    *(
        (name,)
        for name in ("micromsg2", "micromsg2_peer", "fragments", "batch", "aio_waits", "reliable")
    ),
    *(
        (name, "-", driver)
        for name in (
            *("recovery", "misuse", "confirm", "confirm_order", "confirm_micromsg2"),
            *("fragments_window", "peers"),
        )
        for driver in ("sync", "aio")
    ),
    ("vectors_fmqp", "/vectors/fmqp.jsonl"),
    ("vectors_lightmq", "/vectors/lightmq.jsonl"),
    ("vectors_micromsg2", "/vectors/micromsg2.jsonl"),
    ("vectors_link", "/vectors/link.jsonl"),
    ("heap", "memory"),
]
_RUNS: dict[BoardKind, list[_Run]] = {
    # Its network is its UART: a real driver, a bridge, the real broker.
    "rp2040": [
        *_ANYWHERE,
        *((name, "/live/uart.json") for name in ("chunks", "aio", "aio_handlers")),
    ],
    "esp32": [
        *_ANYWHERE,
        ("heap", "/live/faults.json"),
        *(
            (name, "/live/ports.json")
            for name in (
                *("broker", "chunks", "aio", "aio_handlers", "aio_loss"),
                *("broker_micromsg2", "aio_micromsg2", "aio_queues"),
            )
        ),
        ("soak", "/live/ports.json", "5000", "10"),
        ("tls", "/tls"),
        *(
            ("faults", "/faults/tcp.json", "tcp", "0/1", "fmqp+lightmq", driver)
            for driver in ("sync", "aio")
        ),
        ("faults", "/faults/tls.json", "tls", "0/1", "fmqp+lightmq", "sync"),
    ],
}
# What a board cannot do, and what it says when it is asked to.
_UNABLE: dict[BoardKind, dict[_Run, str]] = {
    "rp2040": dict.fromkeys(
        [
            ("broker", "/live/ports.json"),
            ("broker_micromsg2", "/live/ports.json"),
            ("aio_loss", "/live/ports.json"),
            ("aio_micromsg2", "/live/ports.json"),
            ("aio_queues", "/live/ports.json"),
            ("soak", "/live/ports.json"),
            ("tls", "/tls"),
            ("faults", "/faults/tcp.json", "tcp", "0/1", "fmqp+lightmq", "sync"),
        ],
        "ImportError: no module named 'socket'",
    ),
    "esp32": {},
}


def _each(runs: dict[BoardKind, list[_Run]]) -> list[object]:
    return [
        pytest.param(kind, run, id="-".join((kind, run[0], *run[2:])))
        for kind, its in runs.items()
        for run in its
    ]


@pytest.fixture(scope="module")
def started(
    tmp_path_factory: pytest.TempPathFactory, vectors: dict[str, str]
) -> Iterator[dict[tuple[BoardKind, _Run], "Future[tuple[int, str]]"]]:
    """What comes of each run; the boards are at work from the first question on."""
    root = tmp_path_factory.mktemp("boards")
    files = root / "files"
    for folder in ("live", "tls", "faults", "vectors"):
        (files / folder).mkdir(parents=True)
    compile_checks(files)
    for protocol, file in vectors.items():
        (files / "vectors" / f"{protocol}.jsonl").write_text(Path(file).read_text())
    with contextlib.ExitStack() as stack:
        live = stack.enter_context(BrokerSide())
        faults = stack.enter_context(FaultServer())
        stack.enter_context(tls_side(files / "tls"))
        stack.enter_context(fault_sides(files / "faults"))
        live.written_to(files / "live" / "ports.json")
        (files / "live" / "faults.json").write_text(json.dumps(faults.ports))
        uart = [1, _BAUD, 4, 5, 4096, int(_SILENCE_S * 1000) + 500]
        (files / "live" / "uart.json").write_text(json.dumps({"fmqp": uart}))
        results = {}
        for kind, count in _BOARDS.items():
            runs = [*_RUNS[kind], *_UNABLE[kind]]
            for part in range(count):
                folders = [files / name for name in _FOLDERS[kind]]
                board = stack.enter_context(CheckBoard(kind, root / f"{kind}-{part}", folders))
                if url := board.board.address.data_url:
                    port = live.ports["fmqp"]
                    stack.enter_context(
                        RawBridge(url, _BAUD, "127.0.0.1", port, silence_s=_SILENCE_S)
                    )
                thread = ThreadPoolExecutor(1)
                stack.callback(thread.shutdown, cancel_futures=True)
                installed = thread.submit(board.install)
                for run in runs[part::count]:
                    results[kind, run] = thread.submit(_run, installed, board, run)
        yield results


def _run(installed: "Future[None]", board: CheckBoard, run: _Run) -> tuple[int, str]:
    installed.result()
    return board.output(*run)


@pytest.mark.parametrize(("kind", "run"), _each(_RUNS))
def test_it_passes(started: dict[object, "Future[tuple[int, str]]"], kind: str, run: _Run) -> None:
    judged(*started[kind, run].result())


@pytest.mark.parametrize(("kind", "run"), _each({k: list(runs) for k, runs in _UNABLE.items()}))
def test_it_cannot(
    started: dict[object, "Future[tuple[int, str]]"], kind: BoardKind, run: _Run
) -> None:
    code, text = started[kind, run].result()
    assert code == 1
    assert _UNABLE[kind][run] in text


@pytest.mark.parametrize("kind", _RUNS)
def test_no_check_file_is_forgotten(kind: BoardKind) -> None:
    every = {path.stem.removeprefix("check_") for path in DEVICE.glob("check_*.py")}
    assert {run[0] for run in [*_RUNS[kind], *_UNABLE[kind]]} == every
