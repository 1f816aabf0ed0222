"""``python -m benchmarks link``."""

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import click

import firmware.build
from benchmarks.client.runs import Device, RunFailed
from benchmarks.link.far_end import FarEnd
from benchmarks.link.real_line import real_line
from boards.bridge.bridge import PortSettings, SerialBridge
from boards.bridge.counters import BridgeCounters
from boards.bridge.link_mode import LinkMode
from boards.bridge.mode import LineMode
from boards.bridge.raw_mode import RawMode
from boards.mpremote_cli import mpremote
from boards.tool import ToolError
from boards.virtual.board import VirtualBoard
from firmware.node_files import compile_client
from host_broker.address import Address

_POUR = Path(__file__).parent / "device" / "pour.py"
_BAUDS = (115200, 921600)
_LINE_S = 1.5  # of line time per run
_BOARD_BYTES = 20_080
_FLASH_S, _RUN_S = 60.0, 120.0
_WANTED = 0.85  # of raw mode


@dataclass(frozen=True, slots=True)
class Rate:
    """One figure: bytes/s of payload."""

    board: str
    baud: int
    direction: str
    mode: str
    faults: str
    bytes_per_s: float

    @property
    def of_line(self) -> float:
        """The share of what the line carries, ten bits a byte."""
        return self.bytes_per_s * 10 / self.baud


@click.command()
@click.option("--no-board", is_flag=True, help="Leave the virtual RP2040 out.")
@click.option("--no-line", is_flag=True, help="Leave the paced lines out.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write every figure to this file too.",
)
def command(no_board: bool, no_line: bool, json_file: Path | None) -> None:
    """Measure raw and reliable mode: a paced line, one with faults, the virtual RP2040's UART1.

    On the paced line MicroPython's unix port is the board. The RP2040's time is its own: that of
    its emulated chip.

    Exit codes: 0 measured (reached or not), 1 something failed, 2 wrong usage.
    """
    rates: list[Rate] = []
    try:
        with tempfile.TemporaryDirectory(prefix="motemq-link-") as folder:
            compile_client(Path(folder))
            lib = Path(folder) / "lib"
            if not no_line:
                rates += _lines(lib)
            if not no_board:
                rates += _rp2040(lib)
    except (RunFailed, ToolError, firmware.build.BuildError) as failed:
        click.echo(f"link benchmark: {failed}", err=True)
        raise SystemExit(1) from None
    click.echo(_table(rates))
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(rate) for rate in rates], indent=1) + "\n")


def _lines(lib: Path) -> list[Rate]:
    device = Device(firmware.build.ensure("unix"), lib, {})
    found = []
    for baud in _BAUDS:
        for faults in ("", "--flip 1e-3"):
            for direction in ("up", "down"):
                for mode in ("reliable",) if faults else ("raw", "reliable"):
                    count = int(baud / 10 * _LINE_S)
                    with (
                        real_line(baud, *faults.split()) as line,
                        _bridged(line.serial, baud, mode, count),
                    ):
                        arguments = ("tcp", line.port, mode, direction, count)
                        took = device.run("128k", str(_POUR), *arguments)
                    rate = took["bytes"] / took["us"] * 1e6
                    found.append(Rate("unix port", baud, direction, mode, faults, rate))
                    click.echo(_row(found[-1]), err=True)
    return found


def _rp2040(lib: Path) -> list[Rate]:
    found = []
    with _pico(lib) as (board, data_url):
        for baud in _BAUDS:
            for direction in ("up", "down"):
                for mode in ("raw", "reliable"):
                    words = f"'uart', {baud}, '{mode}', '{direction}', {_BOARD_BYTES}"
                    code = f"import pour; pour.run({words})"
                    with _bridged(data_url, baud, mode, _BOARD_BYTES):
                        url = board.address.serial_url
                        said = mpremote(url, ["soft-reset", "exec", code], deadline_s=_RUN_S)
                    took = dict(line.split() for line in said.splitlines() if line)
                    rate = float(took["bytes"]) / float(took["us"]) * 1e6
                    found.append(Rate("virtual RP2040", baud, direction, mode, "", rate))
                    click.echo(_row(found[-1]), err=True)
    return found


@contextlib.contextmanager
def _pico(lib: Path) -> Iterator[tuple[VirtualBoard, str]]:
    """Run a virtual RP2040 with the client and the script; yield it, and its UART1's URL."""
    with (
        tempfile.TemporaryDirectory(prefix="motemq-pico-") as folder,
        VirtualBoard.start("rp2040", "bench-link", Path(folder)) as board,
    ):
        drive = board.address.bootsel_dir
        data_url = board.address.data_url
        if drive is None or data_url is None:
            raise RunFailed("the virtual RP2040 has no drive or no UART")
        shutil.copy(firmware.build.ensure("rpi_pico"), drive)
        until = time.monotonic() + _FLASH_S
        while board.control.state()["state"] != "running":
            if time.monotonic() > until:
                raise RunFailed(f"the virtual RP2040 was not flashed in {_FLASH_S:g} s")
            time.sleep(0.05)
        copy = ["mkdir", ":lib", "+", "mkdir", ":lib/umotemq"]
        for name in ("__init__", "reliable", "uart"):
            copy += ["+", "cp", str(lib / "umotemq" / f"{name}.mpy"), f":lib/umotemq/{name}.mpy"]
        copy += ["+", "cp", str(_POUR), ":pour.py"]
        mpremote(board.address.serial_url, copy, deadline_s=_RUN_S)
        yield board, f"socket://{urlsplit(data_url).netloc}"


@contextlib.contextmanager
def _bridged(serial: str, baud: int, mode_name: str, count: int) -> Iterator[None]:
    """Run a bridge in this mode to a far end; raises ``RunFailed`` if that saw wrong bytes."""
    counters = BridgeCounters()
    mode: LineMode = LinkMode(counters)
    if mode_name == "raw":
        mode = RawMode(counters, silence_s=_RUN_S)  # who only listens is silent
    with FarEnd(count) as far:
        broker = Address("tcp", "127.0.0.1", far.port)
        with SerialBridge(PortSettings(serial, baud), broker, mode, counters):
            yield
        if far.wrong:
            raise RunFailed(f"{mode_name}, {baud}: {'; '.join(far.wrong)}")


def _row(rate: Rate) -> str:
    what = f"{rate.board}, {rate.baud} baud, {rate.direction}, {rate.mode} {rate.faults}"
    return f"{what:<58} {rate.bytes_per_s:>8.0f} B/s, {rate.of_line:.1%} of the line"


def _table(rates: list[Rate]) -> str:
    lines = [
        "| board | baud | direction | raw, B/s | reliable, B/s | of raw | at 1e-3 flips a byte |",
        "|---|---|---|---|---|---|---|",
    ]
    for raw in (rate for rate in rates if rate.mode == "raw"):
        same = [r for r in rates if (r.board, r.baud, r.direction) == _where(raw)]
        clean = next(r for r in same if r.mode == "reliable" and not r.faults)
        faulty = next((f"{r.bytes_per_s:.0f}, {r.of_line:.0%}" for r in same if r.faults), "-")
        ratio = clean.bytes_per_s / raw.bytes_per_s
        verdict = "" if ratio >= _WANTED else f" (wanted: {_WANTED:.0%})"
        lines.append(
            f"| {raw.board} | {raw.baud} | {raw.direction} | {raw.bytes_per_s:.0f} "
            f"| {clean.bytes_per_s:.0f} | {ratio:.1%}{verdict} | {faulty} |"
        )
    return "\n".join(lines)


def _where(rate: Rate) -> tuple[str, int, str]:
    return rate.board, rate.baud, rate.direction
