"""``motemq rig run``: boards from whatever they are to a verdict."""

import contextlib
import hashlib
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console

from boards.checks.declared import Check
from boards.checks.registry import CHECKS, NoSuchCheck, choose
from boards.commands.exits import boards_option, ending, open_rig, rig_option
from boards.faults.process import FaultProxy, can_stand_at
from boards.flash.image_identity import image_of
from boards.inventory.board_file import id_fault
from boards.inventory.models import all_models, virtual_models
from boards.inventory.rig_file import Rig
from boards.inventory.target import BoardHandle
from boards.reports.junit import junit_xml
from boards.reports.record import read_run
from boards.session.installation import stage_node
from boards.session.own_files import OwnFiles
from boards.session.plan import STEP_LIMITS_S, BoardPlan, Job, PlanError, plan_boards, plan_desk
from boards.session.run import run as run_rig
from boards.session.run_brokers import (
    RunBrokers,
    broker_address,
    faced_by,
    facing,
    host_and_number,
    is_open_to_others,
    named,
    open_broker,
    own,
)
from firmware.build import BuildError
from firmware.images import ImageUnknown
from firmware.node_files import client_sha
from host_broker.scratch_folder import scratch_folder

_PLAIN_WIDTH = 150
_PIPE_CLOSED = 141  # 128 + SIGPIPE


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """End as after ``| head`` other programs do: rich's own 1 would be a failed check."""
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()
        raise SystemExit(_PIPE_CLOSED)


def _address(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        return broker_address(value, "fmqp" if parameter.name == "fmqp" else "lightmq")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and (fault := id_fault(value)):
        raise click.BadParameter(f"{value!r}: {fault}")
    return value


def _pairs(
    _context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    pairs = dict(value.partition("=")[::2] for value in values)
    if not all(pairs.values()):
        raise click.BadParameter(f"write {parameter.metavar}")
    return pairs


def _seconds(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, float]:
    seconds = {}
    for step, text in _pairs(context, parameter, values).items():
        if step not in STEP_LIMITS_S:
            known = ", ".join(STEP_LIMITS_S)
            raise click.BadParameter(f"no step {step!r}; there are {known}")
        try:
            seconds[step] = float(text)
        except ValueError:
            seconds[step] = 0.0
        if not 0 < seconds[step] < math.inf:
            raise click.BadParameter(f"step {step}: {text!r} is no number of seconds")
    return seconds


def _list_checks(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    width = max(map(len, CHECKS))
    for check in CHECKS.values():
        only = "" if len(check.protocols) > 1 else f" [{check.protocols[0]}]"
        needs = f" [needs {', '.join(sorted(check.needs))}]" if check.needs else ""
        click.echo(f"{check.name:<{width}}  {check.about}{only}{needs}")
    context.exit()


@click.command()
@rig_option
@boards_option()
@click.option("--cap", "caps", multiple=True, help="Only boards of the desk that have CAP.")
@click.option(
    "--virtual",
    "virtual",
    multiple=True,
    metavar="KIND:COUNT",
    help="Instead of the desk: virtual boards to start, rp2040 or esp32. Within a kind they speak "
    "FMQP and LightMQ in turn.",
)
@click.option(
    "--fmqp",
    callback=_address,
    metavar="HOST:PORT",
    help="The broker of boards that speak FMQP, or its URL.  [default: where --lightmq is; without "
    "both one of the run's own, where the boards reach it]",
)
@click.option(
    "--lightmq",
    callback=_address,
    metavar="HOST:PORT",
    help="The same for boards that speak LightMQ.  [default: where --fmqp is]",
)
@click.option(
    "--out",
    default=Path("out/rig"),
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for results (OUT/rig) and logs (OUT/logs).",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where virtual boards keep their flash, and the rig its locks when there is no rig.toml.  "
    "[default: OUT/boards]",
)
@click.option("--keep-flash", is_flag=True, help="Start with the flash of the last run, not blank.")
@click.option("--force", is_flag=True, help="Write the firmware even where it is already.")
@click.option(
    "--trust-ledger",
    is_flag=True,
    help="Believe the rig's own book about what is in a board's flash; saves reading it.",
)
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
    callback=_seconds,
    metavar="STEP=SECONDS",
    help=f"How long a step may take; steps: {', '.join(STEP_LIMITS_S)}.",
)
@click.option(
    "--checks",
    "patterns",
    multiple=True,
    metavar="PATTERN,…",
    help="Only checks whose names fit, e.g. 'pubsub*,ping', or those in a file of yours, "
    "my_checks.py.  [default: all that the board can do]",
)
@click.option(
    "--list-checks",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_checks,
    help="Say which checks there are, and end.",
)
@click.option(
    "--retries",
    default=2,
    show_default=True,
    type=click.IntRange(0, 5),
    help="How often a step is tried again that failed through no verdict; it is flaky then.",
)
@click.option(
    "--repeat",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Do each check N times and judge it by all of them; those that need a peer once.",
)
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write JUnit XML there, one suite per board.",
)
@click.option(
    "--name",
    callback=_name,
    help="The rig's name in the results.  [default: that of rig.toml, or desk]",
)
def command(
    rig_file: Path | None,
    board_ids: tuple[str, ...],
    caps: tuple[str, ...],
    virtual: tuple[str, ...],
    fmqp: str | None,
    lightmq: str | None,
    out: Path,
    state_dir: Path | None,
    keep_flash: bool,
    force: bool,
    trust_ledger: bool,
    images: dict[str, str],
    limits: dict[str, float],
    patterns: tuple[str, ...],
    retries: int,
    repeat: int,
    junit: Path | None,
    name: str | None,
) -> None:
    """Take boards to a verdict, all in parallel: those of the desk, or virtual ones.

    For each board: take its lock, flash (unless the same firmware is there), install the client,
    run the checks against the broker, let it send a minute of telemetry, leave it quiet. A board
    that fails never stops the others.

    Exit codes: 0 all passed, 1 a check failed, 2 usage, 3 rig fault (a board could not be
    flashed, never answered, …: no verdict on the code), 4 nothing ran, 130 interrupted, 143
    terminated, 141 nobody reads the output any more.
    """
    console = _Console(soft_wrap=False)
    if not console.is_terminal:
        console = _Console(width=_PLAIN_WIDTH)
    out = out.absolute()
    with ending(), ExitStack() as stack:
        checks, check_files = _checks(patterns)
        boards_dir = (state_dir or out / "boards").absolute()
        if virtual:
            if rig_file or board_ids or caps:
                raise PlanError("--virtual boards or boards of the desk, not both in one run")
            rig = None
            plans = plan_boards(virtual, virtual_models())
        else:
            rig = open_rig(rig_file)
            plans = plan_desk(rig, board_ids, caps)
        if junit is not None:
            junit.parent.mkdir(parents=True, exist_ok=True)  # not after all has been done
        _known_boards(images, plans)
        if rig is not None:
            stack.callback(_say_what_is_kept, rig, plans)
        (out / "logs").mkdir(parents=True, exist_ok=True)
        # Programs of a user's own find the broker by its address, and may know no TLS.
        tls = not check_files and (rig is None or rig.tls)
        brokers = stack.enter_context(_brokers(fmqp, lightmq, plans, rig, out / "logs", tls=tls))
        firmware = {plan.id: _image(plan, rig, images) for plan in plans}
        # Of this run alone: another one on this desk, for other boards, may have the same OUT.
        scratch = stack.enter_context(scratch_folder("motemq-node-"))
        node_dir = stage_node(scratch / "node")
        plans = [_reachable(plan, getattr(brokers, plan.protocol)) for plan in plans]
        proxy = FaultProxy.start(out / "logs" / "proxy.jsonl")
        stack.enter_context(proxy)
        towards = {plan.id: _facing(plan, rig, brokers) for plan in plans}
        certificates = str(brokers.certificates.folder) if brokers.certificates else ""
        jobs = [
            Job(
                board=plan,
                image=str(firmware[plan.id].path),
                image_fault=firmware[plan.id].fault,
                node_dir=str(node_dir),
                state_dir=str(boards_dir / plan.id),
                rig_dir=str(rig.state_dir if rig else boards_dir),
                log_dir=str(out / "logs"),
                fmqp=brokers.fmqp,
                lightmq=brokers.lightmq,
                keep_flash=keep_flash,
                force=force,
                trust_ledger=trust_ledger,
                flash_parallel=rig.flash_parallel if rig else 1,
                retries=retries,
                repeat=repeat,
                fw_sha=_sha256(firmware[plan.id].path),
                client_sha=client_sha(),
                limits_s=_limits(limits, _fitting(checks, plan), repeat),
                checks=tuple(check.name for check in _fitting(checks, plan)),
                left_out={
                    check.name: why
                    for check in checks
                    if (why := check.why_not(plan.protocol, plan.has))
                },
                check_files=tuple(map(str, check_files)),
                proxy_port=proxy.port if "proxy" in plan.has else 0,
                wifi_ssid=rig.wifi_ssid if rig else "",
                wifi_psk_env=rig.wifi_psk_env if rig else "",
                models_dir=str(rig.models_dir) if rig else "",
                facing=towards[plan.id],
                tls_dir=certificates if towards[plan.id] else "",
            )
            for plan in plans
        ]
        name = name or (rig.name if rig else "desk")
        models = rig.models if rig else all_models()
        code, folder = run_rig(jobs, checks, models, out=out, rig=name, console=console)
        if junit is not None:
            junit.write_bytes(junit_xml(read_run(folder), models))
    sys.exit(code)


@contextmanager
def _brokers(
    fmqp: str | None,
    lightmq: str | None,
    plans: list[BoardPlan],
    rig: Rig | None,
    logs: Path,
    *,
    tls: bool,
) -> Iterator[RunBrokers]:
    if fmqp or lightmq:
        # One port speaks both, unless somebody says otherwise.
        chosen = RunBrokers(fmqp or lightmq or "", lightmq or fmqp or "")
        yield named(chosen, sorted({plan.protocol for plan in plans}))
        return
    host = facing(plans, rig)
    others = is_open_to_others(host)
    if others and not tls:
        click.secho(f"rig: {open_broker(host)}", fg="yellow", err=True)
    with own(host, logs / "broker.log", tls=others and tls) as brokers:
        yield brokers


def _facing(plan: BoardPlan, rig: Rig | None, brokers: RunBrokers) -> str:
    """Return where a board on a network finds the run's own broker by TLS, "" for all others."""
    by_tls = brokers.certificates is not None and faced_by(plan, rig)
    return brokers.facing[plan.protocol] if by_tls else ""


def _reachable(plan: BoardPlan, broker: str) -> BoardPlan:
    """A broker on another machine is reached without the proxy: it listens where brokers do."""
    here = can_stand_at(host_and_number(broker)[0])
    return replace(plan, has=plan.has | {"proxy"}) if here else plan


def _sha256(image: Path) -> str:
    return hashlib.sha256(image.read_bytes()).hexdigest() if image.is_file() else ""


@dataclass(frozen=True, slots=True)
class _Firmware:
    path: Path
    fault: str = ""  # why there is none: its board's, and no other's


def _image(plan: BoardPlan, rig: Rig | None, images: dict[str, str]) -> _Firmware:
    if plan.id in images:
        return _Firmware(Path(images[plan.id]).absolute())
    board = rig.board(plan.id) if rig else None
    if board is not None and board.method == "none":
        return _Firmware(Path())  # nothing of ours is on it
    folder = board.file.parent if board else Path()
    name = board.image if board else all_models()[plan.model].flash.image
    lock = rig.firmware_lock if rig else None
    try:
        return _Firmware(image_of(name, folder, click.echo, lock=lock))
    except (BuildError, ImageUnknown) as error:
        return _Firmware(Path(), str(error))


def _checks(patterns: tuple[str, ...]) -> tuple[list[Check], list[Path]]:
    try:
        return choose(patterns)
    except NoSuchCheck as error:
        raise PlanError(str(error)) from None


def _fitting(checks: list[Check], plan: BoardPlan) -> list[Check]:
    return [check for check in checks if not check.why_not(plan.protocol, plan.has)]


def _limits(limits: dict[str, float], checks: list[Check], repeat: int) -> dict[str, float]:
    # Of a step that hangs, the pool tells; no single check may take the others' time.
    most_s = repeat * sum(check.deadline_s for check in checks)
    return {**STEP_LIMITS_S, "check": max(STEP_LIMITS_S["check"], most_s), **limits}


def _say_what_is_kept(rig: Rig, plans: list[BoardPlan]) -> None:
    """Who interrupts a run, or whose board dies in it, learns where the board's files are."""
    for board in (rig.board(plan.id) for plan in plans):
        if OwnFiles(rig.state_dir, BoardHandle(board)).are_kept:
            click.secho(
                f"rig: {board.id}: its own main.py and boot.py are kept on this host; the next run "
                f"puts them back, or: motemq rig recover {board.id}",
                fg="yellow",
                err=True,
            )


def _known_boards(images: dict[str, str], plans: list[BoardPlan]) -> None:
    ids = [plan.id for plan in plans]
    for id, path in images.items():
        if id not in ids:
            raise PlanError(f"--image: no board {id!r} in this run; there are {', '.join(ids)}")
        if not Path(path).is_file():
            raise PlanError(f"--image {id}: {path} is no file")
