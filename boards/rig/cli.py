"""``motemq rig``: flash, install, check and judge boards."""

import hashlib
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from boards.models import ModelError, virtual_models
from boards.rig.plan import STEP_LIMITS_S, BoardPlan, Job, PlanError, plan_boards
from boards.rig.run import run as run_rig
from firmware import build
from firmware.node_files import CompileError, client_sha, compile_node

_FAULT = 3
_PLAIN_WIDTH = 150
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Terminated(BaseException):
    """SIGTERM, as an exception, so that every ``with`` block ends what it started."""


@click.group()
def command() -> None:
    """Flash, install, check and judge every board on the desk."""


def _address(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise click.BadParameter(f"{value!r} is not HOST:PORT, e.g. 127.0.0.1:8765")
    return value


def _pairs(
    _context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    pairs = dict(value.partition("=")[::2] for value in values)
    if not all(pairs.values()):
        raise click.BadParameter(f"write {parameter.metavar}")
    return pairs


@command.command("run")
@click.option(
    "--virtual",
    "virtual",
    multiple=True,
    required=True,
    metavar="KIND:COUNT",
    help="Virtual boards to start: rp2040 or esp32. Within a kind they speak FMQP and LightMQ "
    "in turn.",
)
@click.option("--fmqp", required=True, callback=_address, metavar="HOST:PORT", help="The broker.")
@click.option("--lightmq", required=True, callback=_address, metavar="HOST:PORT")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for results (OUT/rig) and logs (OUT/logs).",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where virtual boards keep their flash.  [default: OUT/boards]",
)
@click.option("--keep-flash", is_flag=True, help="Start with the flash of the last run, not blank.")
@click.option(
    "--image",
    "images",
    multiple=True,
    callback=_pairs,
    metavar="BOARD=FILE",
    help="Flash FILE instead of our own firmware, e.g. vpico-1=my.uf2.",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    callback=_pairs,
    metavar="STEP=SECONDS",
    help=f"How long a step may take; steps: {', '.join(STEP_LIMITS_S)}.",
)
@click.option("--name", default="desk", show_default=True, help="The rig's name in the results.")
def run_command(
    virtual: tuple[str, ...],
    fmqp: str,
    lightmq: str,
    out: Path,
    state_dir: Path | None,
    keep_flash: bool,
    images: dict[str, str],
    limits: dict[str, str],
    name: str,
) -> None:
    """Take boards from blank flash to a verdict, all in parallel.

    For each board: start, flash, install the client, run the checks against the broker, let it
    send a minute of telemetry, stop. A board that fails never stops the others.

    Exit codes: 0 all passed, 1 a check failed, 2 usage, 3 rig fault (a board could not be
    flashed, never answered, …: no verdict on the code), 4 nothing ran, 130 interrupted.
    """
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        console = Console(width=_PLAIN_WIDTH)
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    out = out.absolute()
    try:
        models = virtual_models()
        plans = plan_boards(virtual, models)
        steps_s = _limits(limits)
        _known_boards(images, plans)
        (out / "logs").mkdir(parents=True, exist_ok=True)
        paths = {
            plan.id: images.get(plan.id)
            or str(build.ensure(models[plan.kind].image, lambda line: click.echo(line)))
            for plan in plans
        }
        node_dir = _stage_node(out / "node")
        jobs = [
            Job(
                board=plan,
                image=paths[plan.id],
                node_dir=str(node_dir),
                state_dir=str((state_dir or out / "boards").absolute() / plan.id),
                log_dir=str(out / "logs"),
                fmqp=fmqp,
                lightmq=lightmq,
                keep_flash=keep_flash,
                fw_sha=hashlib.sha256(Path(paths[plan.id]).read_bytes()).hexdigest(),
                client_sha=client_sha(),
                limits_s=steps_s,
            )
            for plan in plans
        ]
        code = run_rig(jobs, models, out=out, rig=name, console=console)
    except PlanError as error:
        raise click.UsageError(str(error)) from None
    except (build.BuildError, CompileError, ModelError, OSError) as error:
        click.secho(f"rig: error: {error}", fg="red", err=True)
        raise SystemExit(_FAULT) from None
    except KeyboardInterrupt:
        click.secho("rig: interrupted, every board is stopped", fg="red", err=True)
        raise SystemExit(130) from None
    except _Terminated:
        click.secho("rig: terminated, every board is stopped", fg="red", err=True)
        raise SystemExit(143) from None
    sys.exit(code)


def _interrupt(received: int, _frame: FrameType | None) -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # once is enough: we are stopping already
    raise KeyboardInterrupt if received == signal.SIGINT else _Terminated


def _limits(limits: dict[str, str]) -> dict[str, float]:
    chosen = dict(STEP_LIMITS_S)
    for step, text in limits.items():
        if step not in chosen:
            raise PlanError(f"no step {step!r}; there are {', '.join(chosen)}")
        try:
            chosen[step] = float(text)
        except ValueError:
            raise PlanError(f"step {step}: {text!r} is no number of seconds") from None
    return chosen


def _known_boards(images: dict[str, str], plans: list[BoardPlan]) -> None:
    ids = [plan.id for plan in plans]
    for id, path in images.items():
        if id not in ids:
            raise PlanError(f"--image: no board {id!r} in this run; there are {', '.join(ids)}")
        if not Path(path).is_file():
            raise PlanError(f"--image {id}: {path} is no file")


def _stage_node(folder: Path) -> Path:
    """Lay out in ``folder`` what goes on a board's filesystem, as it is there."""
    shutil.rmtree(folder, ignore_errors=True)
    compiled = folder.with_name(folder.name + ".compiled")
    for source, board_path in compile_node(compiled):
        target = folder / board_path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    shutil.rmtree(compiled, ignore_errors=True)
    return folder
