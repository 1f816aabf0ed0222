"""``motemq broker``: run the broker."""

import functools
import gc
import logging
import resource
from pathlib import Path

import click

from host_broker.address import (
    AUTO,
    DEFAULT_PORT,
    LISTEN_OPTIONS,
    AddressError,
    parse_address,
)
from host_broker.cli import service_manager
from host_broker.cli.failure import failing_clearly
from host_broker.cli.log_format import LogFormat, set_up_logging
from host_broker.net.access.access_error import AccessError
from host_broker.net.freed_memory import keep_freed_memory
from host_broker.net.journal.scan import JournalError
from host_broker.net.listening.listen_error import ListenError
from host_broker.net.service import ServiceOptions, configuration_faults, serve
from host_broker.net.settings_source import SettingsError, load_settings
from host_broker.net.storage.data_dir import DataDirError
from host_broker.net.storage.message_store import MessageStoreError
from host_broker.net.storage.protocol_tables import TableFileError
from host_broker.registry import RegistryError

_log = logging.getLogger(__name__)

_DEFAULT_LISTEN = f"auto://127.0.0.1:{DEFAULT_PORT}"
_NEXT_STEP = (
    f"motemq sub fmqp://127.0.0.1:{DEFAULT_PORT} 'home/*' -v, and in another terminal "
    f"motemq pub fmqp://127.0.0.1:{DEFAULT_PORT} home/lamp on"
)
_FILES_BESIDE_CONNECTIONS = 64
_BROKEN = 2  # an installed protocol cannot be used
_FAILURES = (
    ListenError,
    AccessError,
    DataDirError,
    JournalError,
    MessageStoreError,
    TableFileError,
)


@click.command()
@click.option(
    "--listen",
    "listen",
    multiple=True,
    metavar="PROTOCOL://HOST:PORT",
    help=(
        "Where to listen, as often as wanted; port 0 is any free port. PROTOCOL is auto (every "
        "protocol, and TLS), fmqp, lightmq, lightmq+fmqp or micromsg2 (TCP), autos, fmqps … (TLS), "
        f"auto+unix, fmqp+unix ….  [default: {_DEFAULT_LISTEN}]"
    ),
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the journal, retained messages and queues in DIR; made if missing.",
)
@click.option("--ephemeral", is_flag=True, help="Keep nothing (the default without --data).")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.toml",
    help="Settings: tables [bus], [net], [journal], [http], and one a protocol.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="One setting, e.g. lightmq.dialect=gbaranski; wins over --config.",
)
@click.option(
    "--insecure-bind",
    is_flag=True,
    help="Allow addresses other machines can reach without TLS or authentication.",
)
@click.option("-v", "--verbose", is_flag=True, help="Say why each connection was closed.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: one object a line, with ts, level, logger, pid, message.",
)
@click.option(
    "--check-config",
    is_flag=True,
    help="Only say whether options, --config and certificates are right, and end.",
)
@click.option("--print-systemd-unit", is_flag=True, help="Print a unit for systemd, and end.")
def command(
    listen: tuple[str, ...],
    data: Path | None,
    ephemeral: bool,
    config: Path | None,
    assignments: tuple[str, ...],
    insecure_bind: bool,
    verbose: bool,
    log_format: LogFormat,
    check_config: bool,
    print_systemd_unit: bool,
) -> None:
    """Run the broker until SIGTERM or Ctrl-C.

    When ready it prints one line per listener on stdout: 'listening auto 127.0.0.1:8765'.
    A stop sends what is waiting, runs last wills and writes everything out; receivers get
    net.drain_s to take it. SIGHUP loads certificates, users, rules and --config again, and says
    what has changed and what needs a restart.

    \b
    TLS:   --listen 'auto://127.0.0.1:8765?cert=FILE&key=FILE&client_ca=FILE';
           autos:// takes nothing but TLS
    unix:  --listen 'auto+unix:///run/motemq.sock?mode=660' (600 without mode)
    slow receivers: ?slow=pause|drop-oldest|drop-newest|disconnect on any of
           them; pause makes publishers wait, the default (net.slow_consumer)

    who:   ?principal=NAME is who everybody is on that listener who says nothing better;
           users and their rights: --set access.users=FILE, 'motemq users --help'

    Exit codes: 0 stopped by SIGTERM, 130 by Ctrl-C, 3 ended by $/signals/terminate, 1 a port,
    folder, the journal, users or rules could not be used, 2 a wrong option or setting, or an
    installed protocol that cannot be used.
    """
    if print_systemd_unit:
        click.echo(service_manager.unit(), nl=False)
        if reason := service_manager.out_of_reach():
            click.echo(
                f"broker: warning: the unit's user cannot run this installation: {reason}; "
                "install motemq elsewhere, e.g. into a venv in /opt",
                err=True,
            )
        return
    if ephemeral and data is not None:
        raise click.UsageError("--ephemeral and --data exclude each other; give one")
    try:
        settings = load_settings(config, assignments)
        addresses = [parse_address(text, LISTEN_OPTIONS) for text in listen or [_DEFAULT_LISTEN]]
    except (SettingsError, AddressError) as error:
        raise click.UsageError(str(error)) from error
    except RegistryError as error:
        # What was typed is right; what is installed is not.
        click.echo(f"broker: error: {error}", err=True)
        raise SystemExit(_BROKEN) from error
    if check_config:
        _check(ServiceOptions(addresses, data, settings, insecure_bind), config)
        return
    set_up_logging(log_format, verbose=verbose)
    if data is None and not ephemeral:
        _log.warning("no --data folder given, so nothing is kept (--ephemeral)")
    with failing_clearly("broker", *_FAILURES):
        reload = functools.partial(load_settings, config, assignments)
        options = ServiceOptions(addresses, data, settings, insecure_bind, reload)
        try:
            code = _run(options, "" if listen or log_format == "json" else _NEXT_STEP)
        except RegistryError as error:
            click.echo(f"broker: error: {error}", err=True)
            code = _BROKEN
        raise SystemExit(code)


def _check(options: ServiceOptions, config: Path | None) -> None:
    """Say what would be wrong with a start, and end with 2 then; nothing is opened for long."""
    faults = configuration_faults(options)
    for fault in faults:
        click.echo(f"broker: error: {fault}", err=True)
    if faults:
        raise SystemExit(_BROKEN)
    where = ", ".join(map(str, options.listen))
    click.echo(f"configuration is right: {config or 'no --config'}; to listen: {where}")


def _run(options: ServiceOptions, next_step: str) -> int:
    net = options.settings.net
    strangers = net.max_unrecognised * sum(each.protocol == AUTO for each in options.listen)
    _allow_open_files(net.max_connections + strangers + _FILES_BESIDE_CONNECTIONS)
    keep_freed_memory()
    # An ended connection is freed by its reference count, so the collector finds next to nothing. A
    # full collection looks at all of 10 000 clients for 30 ms, and while so many came there were
    # three; now there is one for every million and a half objects that stay. Of what the
    # journal has yet to write there are thousands at any time, which are so looked at once at most.
    gc.set_threshold(10_000, 10, 14)

    def say_listening(where: list[str]) -> None:
        gc.freeze()  # what is loaded now stays; the collector need not look at it again
        for line in where:
            click.echo(f"listening {line}")
        service_manager.notify("READY=1")
        if next_step:
            click.echo(f"broker: try {next_step}", err=True)

    return serve(options, say_listening)


def _allow_open_files(wanted: int) -> None:
    """Raise our own limit of open files as far as is needed and allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            _log.warning(
                "the system allows %d open files, so fewer than net.max_connections connections; "
                "see 'ulimit -Hn'",
                hard,
            )
            wanted = hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
