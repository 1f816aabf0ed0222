"""``motemq demo``: the main job from end to end, by the commands a person would type.

broker -> virtual boards flashed, installed and verified by the rig -> journal -> Spark tables ->
report. Every step is a ``motemq`` command of its own with a deadline.
"""

import contextlib
import os
import shlex
import shutil
import time
from pathlib import Path

import click

from boards.virtual.board import NodeError, find_node
from host_broker.protocol import DEFAULT_PORT
from motemq.children import ChildFailed, Service, motemq, run, service
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.java import find_java

_MARKER = ".motemq-demo"
_BUILD_S = 1800.0
_BROKER_START_S = 60.0  # on a machine that has much to do
# Without a change of what they write, however long all of it takes on a busy machine.
_RIG_S = 600.0
_PIPELINE_S = 600.0
# Each kind of check once; all that there are take as long again.
_CHECKS = (
    "pubsub_*,boards_together,request_up,baseline,ping,will_clean,will_abrupt,will_silent,heap_free"
)


def _fresh(out: Path) -> None:
    """Empty ``out``, but never a folder that a demo did not make."""
    if out.exists():
        if any(out.iterdir()) and not (out / _MARKER).exists():
            raise click.ClickException(
                f"{out} exists and was not written by a demo; choose another folder with --out"
            )
        shutil.rmtree(out)
    try:
        (out / "logs").mkdir(parents=True)
        (out / _MARKER).touch()
    except OSError as error:
        raise click.ClickException(f"cannot make {out}: {error.strerror}") from error


def _need_tools(boards: tuple[str, ...]) -> None:
    """Say now, not after minutes of work, that Java or Node is missing."""
    find_java(os.environ)
    if any(board.startswith("rp2040") for board in boards):
        find_node()


def _address(broker: Service) -> str:
    """Read ``listening auto HOST:PORT``; returns HOST:PORT, which takes every protocol."""
    (line,) = broker.ready_lines
    return line.split()[2]


def _step(number: int, text: str) -> None:
    click.secho(f"[{number}/4] {text}", bold=True)


def _board_arguments(boards: tuple[str, ...]) -> list[str]:
    return [argument for board in boards for argument in ("--virtual", board)]


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("out/demo"),
    show_default=True,
    help="Folder for everything the demo writes; emptied first.",
)
@click.option(
    "--virtual",
    "boards",
    multiple=True,
    default=("rp2040:2", "esp32:1"),
    show_default=True,
    metavar="KIND:COUNT",
    help="Virtual boards to put on the desk.",
)
@click.option(
    "--keep", is_flag=True, help="Run the broker again at the end, until Ctrl-C, to look at it."
)
def command(out: Path, boards: tuple[str, ...], keep: bool) -> None:
    """Take virtual boards from blank flash to a Spark report.

    Starts a broker on loopback, builds or finds the firmware, flashes, installs and verifies
    every board with the real tools, lets them send telemetry, and turns the broker's journal
    into tables and OUT/report.html. The broker's dashboard shows all of it in a browser, while it
    happens and, with --keep, afterwards.

    Exit codes: 0 all passed, 1 a check failed, 3 a board, the broker or the pipeline could not
    do its part, 130 interrupted.
    """
    started = time.monotonic()
    out = out.absolute()
    try:
        _need_tools(boards)
        _fresh(out)
        rig_code, pipeline_code = _run_parts(out, boards)
    except (ChildFailed, NodeError, PipelineError) as error:
        click.secho(f"demo: error: {error}", fg="red", err=True)
        raise SystemExit(3) from None
    except KeyboardInterrupt:
        click.secho("demo: interrupted, everything is stopped", fg="red", err=True)
        raise SystemExit(130) from None
    seconds = time.monotonic() - started
    if pipeline_code == 0:
        click.echo(f"report: {out / 'report.html'}")
    if rig_code or pipeline_code:
        part = "the rig" if rig_code else "the pipeline"
        click.secho(f"demo: FAILED in {part} after {seconds:.0f} s; logs: {out / 'logs'}", fg="red")
        raise SystemExit(rig_code or 3)
    click.secho(f"demo: passed in {seconds:.0f} s", fg="green")
    if keep:
        _keep(out)
    else:
        again = ["motemq", "broker", "--data", str(out / "broker"), "--set", f"http.rig={out}"]
        click.echo(f"dashboard: http://127.0.0.1:{DEFAULT_PORT}/ after: {shlex.join(again)}")


def _keep(out: Path) -> None:
    """Run the broker with what the demo has left, until Ctrl-C."""
    try:
        with _broker(out, "kept.log") as running:
            click.echo(f"dashboard: http://{_address(running)}/ until Ctrl-C")
            running.process.wait()  # that it has ended is an error
    except KeyboardInterrupt:
        click.echo("demo: the broker is stopped")
    except ChildFailed as error:
        click.secho(f"demo: error: {error}", fg="red", err=True)
        raise SystemExit(3) from None


def _broker(out: Path, log: str) -> contextlib.AbstractContextManager[Service]:
    """Return a context manager that runs a broker with data and the rig's runs in ``out``."""
    arguments = ("--listen", "auto://127.0.0.1:0", "--data", str(out / "broker"))
    return service(
        motemq("broker", *arguments, "--set", f"http.rig={out}"),
        ready_count=1,
        ready_prefix="listening ",
        log=out / "logs" / log,
        deadline_s=_BROKER_START_S,
    )


def _written(folder: Path) -> tuple[int, int]:
    """Return how many files are in a folder, and how many bytes are in them."""
    sizes = []
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # it was there a moment ago
                sizes.append(Path(parent, name).stat().st_size)
    return len(sizes), sum(sizes)


def _run_parts(out: Path, boards: tuple[str, ...]) -> tuple[int, int]:
    """Run build, broker + rig, pipeline; return the exit codes of rig and pipeline."""
    _step(1, "firmware (built once, then cached)")
    code = run(motemq("firmware", "build", "rpi_pico", "vesp32"), deadline_s=_BUILD_S)
    if code:
        raise ChildFailed("the firmware could not be built (reason above)")
    _step(2, "broker")
    with _broker(out, "broker.log") as running:
        address = _address(running)
        click.echo(f"broker: {address}, all protocols at one port")
        click.echo(f"dashboard: http://{address}/ while the demo runs")
        _step(3, "boards: flash, install, verify, telemetry")
        rig_code = run(
            motemq(
                *("rig", "run", *_board_arguments(boards), "--checks", _CHECKS),
                *("--fmqp", address, "--lightmq", address),
                *("--out", str(out)),
            ),
            deadline_s=_RIG_S,
            progress=lambda: _written(out / "rig"),
        )
    _step(4, "Spark: journal and rig results to tables and a report")
    pipeline_code = run(
        motemq(
            *("pipeline", "backfill", "--journal", str(out / "broker" / "journal")),
            *("--rig", str(out / "rig"), "--tables", str(out / "tables")),
            *("--report", str(out / "report.html")),
        ),
        deadline_s=_PIPELINE_S,
        progress=lambda: _written(out / "tables"),
    )
    return rig_code, pipeline_code
