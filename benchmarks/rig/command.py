"""``python -m benchmarks rig``."""

import signal
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

import click

from benchmarks.rig import desk
from benchmarks.rig.runs import Run, judge


@click.command()
@click.option("--runs", default=50, show_default=True, type=click.IntRange(1, 1000))
@click.option(
    "--virtual",
    multiple=True,
    metavar="KIND:COUNT",
    default=("rp2040:2", "esp32:1"),
    show_default=True,
    help="The desk: rp2040, esp32, or a kind of fault board.",
)
@click.option(
    "--lan",
    is_flag=True,
    help="Instead: an ESP32 and a Pico W on a LAN that loses frames, a Pico by one cable, one by "
    "UART; needs root.",
)
@click.option(
    "--one-cable",
    is_flag=True,
    help="Instead: two Picos and two ESP32s, each with nothing but the line of its REPL.",
)
@click.option(
    "--loss",
    default=0.01,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Of the frames of --lan, each way.",
)
@click.option("--checks", help="As for motemq rig run.  [default: all]")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where results and logs stay.  [default: nowhere]",
)
def command(
    runs: int,
    virtual: tuple[str, ...],
    lan: bool,
    one_cable: bool,
    loss: float,
    checks: str | None,
    out: Path | None,
) -> None:
    """Run the rig's checks on one desk of virtual boards again and again; count flakes.

    The boards stay up and flashed, so all but the first run are warm. A healthy board that fails
    is a flake, so is one that needed a second try; a fault board must be told in every run. With
    --lan each board must have passed will_power, so that in each run its power was cut. Ctrl-C or
    SIGTERM ends after the run at hand is stopped, and the table is of what was done.

    Exit codes: 0 no flake, 1 some, 2 usage, 130 interrupted.
    """
    if lan and one_cable:
        raise click.UsageError("--lan or --one-cable, not both in one row of runs")
    for number in (signal.SIGINT, signal.SIGTERM):  # the first is ignored in the background
        signal.signal(number, signal.default_int_handler)
    done: list[Run] = []
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="motemq-runs-") as scratch:
        folder = Path(scratch)
        try:
            with _desk(folder, virtual, loss, lan=lan, one_cable=one_cable) as there:
                for number in range(1, runs + 1):
                    run = there.run((out or folder) / f"run-{number:03}", checks)
                    done.append(run)
                    click.echo(run.line(number), err=True)
        except KeyboardInterrupt:
            interrupted = True
    good = judge(done, click.echo)
    raise SystemExit(130 if interrupted else 0 if good else 1)


def _desk(
    folder: Path, virtual: tuple[str, ...], loss: float, *, lan: bool, one_cable: bool
) -> AbstractContextManager[desk.Desk]:
    if lan:
        return desk.lan_up(folder, loss)
    return desk.cable_up(folder) if one_cable else desk.up(folder, virtual)
