"""``python -m benchmarks client``."""

import json
import tempfile
from pathlib import Path

import click

import firmware.build
from benchmarks.client import faults, measures, report, size
from benchmarks.client.goals import Row
from benchmarks.client.installed import NotInstalled, install
from benchmarks.client.runs import Device, RunFailed, endpoint
from firmware.node_files import CompileError


@click.command()
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1, 50))
@click.option(
    "--interpreter",
    default="unix32",
    show_default=True,
    type=click.Choice(["unix32", "unix", "unix126"]),
    help="Which MicroPython of ours runs the clients; bytes of heap are a board's on unix32 only.",
)
@click.option(
    "--mqtt-as",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Compare mqtt_as too: mqtt_as/__init__.py of a clone of its repository; pip has none.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write every figure to this file too.",
)
def command(rounds: int, interpreter: str, mqtt_as: Path | None, json_file: Path | None) -> None:
    """Measure our MicroPython client, umqtt's three, mqtt_async and mqtt_as; print the ratios.

    The others are fetched with pip. One process stands in for their broker and for ours.

    Exit codes: 0 measured (reached or not), 1 something failed, 2 wrong usage.
    """
    try:
        executable = firmware.build.ensure(interpreter, _tell)
        with tempfile.TemporaryDirectory(prefix="motemq-bench-") as folder, endpoint() as ports:
            installed = install(Path(folder), mqtt_as)
            device = Device(executable, installed.lib, ports)
            what, width = device.what()
            rows: list[Row] = [*measures.sizes(installed, size.budget())]
            for measure in (
                measures.memory,
                measures.heap,
                measures.calls,
                measures.idle,
                measures.confirm,
            ):
                rows += measure(device)
            rows += measures.echo(device)
            rows += measures.rates(device, rounds, _tell)
            found = faults.measure(device, width)
    except (NotInstalled, RunFailed, CompileError, firmware.build.BuildError) as failed:
        click.echo(f"client benchmark: {failed}", err=True)
        raise SystemExit(1) from None
    click.echo(f"{report.heading(what)}\n\n{report.table(rows)}\n\n{report.faults(found)}")
    if json_file is not None:
        json_file.write_text(json.dumps(report.document(what, rows, found), indent=1) + "\n")


def _tell(line: str) -> None:
    click.echo(line, err=True)
