"""``motemq bridge``: join serial ports to a broker, or give them to programs on the network."""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from boards.bridge import status, status_view
from boards.bridge.bridge_pool import BridgePool
from boards.bridge.config import (
    DEFAULT_BAUD,
    DEFAULT_SILENCE_S,
    MIN_BAUD,
    MIN_SILENCE_S,
    MODES,
    ExposePlan,
    Plan,
    PlanError,
    load_config,
    plan_of,
    with_token,
)
from boards.bridge.console_end import ConsoleError
from boards.bridge.expose import ListenError
from boards.bridge.log import Log
from boards.runtime_folder import Untrusted, make_private, runtime_folder
from boards.serial_port import PortError
from boards.toml_file import TomlError
from host_broker.printable import printable

if sys.platform != "win32":
    import resource

_POLL_S = 0.2
_REFRESH_S = 1.0


@click.command()
@click.option("--serial", metavar="URL", help="Device or pyserial URL.")
@click.option(
    "--baud", default=DEFAULT_BAUD, show_default=True, type=click.IntRange(MIN_BAUD, 2**31 - 1)
)
@click.option("--rtscts", is_flag=True, help="The line has RTS/CTS flow control.")
@click.option(
    "--to",
    metavar="fmqp://HOST:PORT",
    help="The broker: fmqp, fmqps, lightmq …; or tcp://HOST:PORT, for the bytes are not looked at.",
)
@click.option(
    "--mode", type=click.Choice(MODES), default="raw", show_default=True, help="With --to."
)
@click.option(
    "--silence",
    "silence_s",
    default=DEFAULT_SILENCE_S,
    show_default=True,
    type=click.FloatRange(min=MIN_SILENCE_S),
    metavar="SECONDS",
    help="Raw mode: close the TCP session when the board sent nothing for so long.",
)
@click.option(
    "--console",
    metavar="PATH",
    help="Reliable mode over a board's own console: make a terminal for the console there.",
)
@click.option(
    "--listen",
    metavar="[HOST:]PORT",
    help="Instead of --to: one program at a time may connect here and use the port.",
)
@click.option("--rfc2217", is_flag=True, help="With --listen: also rates and control lines.")
@click.option(
    "--token-file", metavar="FILE", help="With --listen: the first line that a program must send."
)
@click.option("--insecure", is_flag=True, help="With --listen: everybody may connect, no token.")
@click.option(
    "--wait/--no-wait",
    default=None,
    help="Wait for ports that are missing at the start (the default with --config).",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Many ports: a TOML file, see docs/bridge.md.",
)
@click.option(
    "--end", "ends", metavar="NAME", help="Take the port of that name from the program that has it."
)
@click.option("--status", "asks", is_flag=True, help="Show what running bridges do.")
@click.option("--json", "as_json", is_flag=True, help="With --status: once, as JSON.")
@click.option(
    "--runtime-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where --status finds the bridges.  [default: a folder of the user's]",
)
def command(**options: Any) -> None:
    """Join a serial port to a broker, or many (--config); or give it to programs (--listen).

    Raw mode is a transparent pipe: the first byte of the board opens a TCP connection, SECONDS of
    silence close it. Reliable mode needs the client's reliable stream on the board; it also works
    over the line of the board's REPL, which --console keeps within reach. A port or broker that
    goes away is tried again.

    Limits of raw mode: a serial line has no connection, so a board must send keepalives more
    often than the silence; a board reset within the silence goes on in its old stream; a byte
    lost on the line shifts all FMQP frames after it; a board is not told that the broker closed.

    Exit codes: 0 terminated, 1 a port cannot be opened, 2 usage, 130 interrupted.
    """
    try:
        folder = options["runtime_dir"] or runtime_folder()
    except Untrusted as error:
        raise click.ClickException(str(error)) from None
    if options["asks"]:
        _show_status(folder, as_json=options["as_json"])
        return
    if options["ends"] is not None:
        _end_holder(folder, options["ends"])
        return
    plans = _plans(options)
    wait = options["wait"] if options["wait"] is not None else options["config"] is not None
    _run(plans, folder, wait_for_ports=wait)


def _plans(options: dict[str, Any]) -> list[Plan]:
    if options["config"] is not None:
        if options["serial"] or options["to"] or options["listen"]:
            raise click.UsageError("with --config the ports are those of the file only")
        try:
            return load_config(options["config"])
        except TomlError as error:
            raise click.UsageError(str(error)) from None
    if not options["serial"] or bool(options["to"]) == bool(options["listen"]):
        raise click.UsageError(
            "name a port and where it leads: --serial URL with --to BROKER or --listen PORT; "
            "or --config FILE, or --status"
        )
    if options["to"] and (options["rfc2217"] or options["token_file"] or options["insecure"]):
        raise click.UsageError("--rfc2217, --token-file and --insecure go with --listen")
    if options["console"] and not options["to"]:
        raise click.UsageError("--console goes with --to and --mode reliable")
    given = {key: value for key, value in options.items() if value is not None}

    def wrong(key: str, error: PlanError) -> click.BadParameter:
        return click.BadParameter(str(error), param_hint=f"'--{key}'")

    return [plan_of(given, wrong)]


def _with_tokens(plans: list[Plan], folder: Path, stack: contextlib.ExitStack) -> list[Plan]:
    """Have ports for programs ask for a token, a new one where none is given."""
    found: list[Plan] = []
    for plan in plans:
        if isinstance(plan, ExposePlan) and not (plan.token or plan.insecure):
            try:
                make_private(folder)
                plan = with_token(plan, folder)
            except (Untrusted, OSError) as error:
                raise click.ClickException(
                    f"no token can be made for {plan.name}: {error}; give one by --token-file, or "
                    "let everybody in by --insecure"
                ) from None
            if plan.token_file is not None:
                stack.callback(plan.token_file.unlink, missing_ok=True)
        found.append(plan)
    return found


def _end_holder(folder: Path, name: str) -> None:
    try:
        ended = status.end_holder(folder, name)
    except status.StatusError as error:
        raise click.ClickException(str(error)) from None
    if not ended:
        raise click.ClickException(
            f"no program has a port {name!r} of a bridge of yours (looked in {folder}); "
            "'motemq bridge --status' lists them"
        )
    for peer in ended:
        click.echo(f"{name}: {printable(peer)} has the port no longer")


def _run(plans: list[Plan], folder: Path, *, wait_for_ports: bool) -> None:
    done = threading.Event()
    received: list[int] = []

    def _on_signal(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        done.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _on_signal)
    _allow_descriptors()
    with contextlib.ExitStack() as tokens, Log(click.echo) as log:
        pool = BridgePool(_with_tokens(plans, folder, tokens), log.say)
        _serve(pool, folder, done, wait_for_ports=wait_for_ports)
        pool.farewell()
    if signal.SIGINT in received:
        raise SystemExit(130)


def _serve(pool: BridgePool, folder: Path, done: threading.Event, *, wait_for_ports: bool) -> None:
    """Run until ``done`` is set."""
    try:
        with contextlib.ExitStack() as stack:
            pool.start(stack, wait_for_ports=wait_for_ports)
            _serve_status(stack, folder, pool)
            while not done.wait(_POLL_S) and pool.running:
                continue
            if not done.is_set():
                raise click.ClickException("a bridge ended by itself; that is a bug")
    except (PortError, ListenError, ConsoleError) as error:
        raise click.ClickException(str(error)) from None


def _allow_descriptors() -> None:
    """Have as many files open as the system lets us: a port takes eight."""
    if sys.platform == "win32":
        return  # it sets no such limit
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _serve_status(stack: contextlib.ExitStack, folder: Path, pool: BridgePool) -> None:
    try:
        server = status.StatusServer(folder, lambda: pool.snapshot(os.getpid()), pool.end)
        stack.enter_context(server)
    except status.StatusError as error:
        # The bytes are more important than the news about them.
        click.echo(f"warning: {error}", err=True)


def _show_status(folder: Path, *, as_json: bool) -> None:
    try:
        answers = status.ask_all(folder)
        if as_json:
            click.echo(json.dumps({"ts": status_view.now_text(), "processes": answers}))
            return
        if not answers:
            raise click.ClickException(f"no bridge of yours is running (looked in {folder})")
        if not sys.stdout.isatty():
            Console(width=160, highlight=False).print(status_view.table(answers, []))
            return
        with Live(status_view.table(answers, []), auto_refresh=False) as live:
            while True:
                time.sleep(_REFRESH_S)
                before, answers = answers, status.ask_all(folder)
                live.update(status_view.table(answers, before), refresh=True)
    except status.StatusError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
