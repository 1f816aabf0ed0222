"""``motemq doctor broker``: what would keep a broker from doing well here, before it is needed."""

import datetime
import http.client
import json
import os
import resource
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from host_broker.address import (
    AUTO,
    DEFAULT_PORT,
    HTTP,
    LISTEN_OPTIONS,
    Address,
    AddressError,
    parse_address,
)
from host_broker.net.journal.check import check
from host_broker.net.journal.identity import read_identity
from host_broker.net.journal.reader import JournalReader
from host_broker.net.journal.scan import JournalError
from host_broker.net.listening.port_owner import port_owner
from host_broker.net.service import ServiceOptions, configuration_faults
from host_broker.net.settings_source import SettingsError, load_settings
from host_broker.net.storage.data_dir import is_in_use
from host_broker.printable import printable
from host_broker.registry import RegistryError
from host_broker.settings import Settings

_DEFAULT_LISTEN = f"auto://127.0.0.1:{DEFAULT_PORT}"
_BACKLOG = 4096  # of a listener: who connects in a crowd waits there
_SOMAXCONN = Path("/proc/sys/net/core/somaxconn")
_FILES_BESIDE_CONNECTIONS = 64
_CHECKED_BYTES = 256 * 1024 * 1024  # of a journal, within a second
_SOON = datetime.timedelta(days=21)
_ANSWER_S = 3.0
_LONGEST_ANSWER_BYTES = 64 * 1024
_FIRST_SENSIBLE_YEAR = 2024
_MARKS = {"ok": "ok  ", "warning": "warn", "failure": "FAIL"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; ``advice`` says what to do about it, "" if it is well."""

    level: Literal["ok", "warning", "failure"]
    about: str
    text: str
    advice: str = ""


@click.group()
def command() -> None:
    """Say what would keep a part of MoteMQ from doing well. (For boards: motemq rig doctor.)"""


@command.command()
@click.option("--listen", multiple=True, metavar="PROTOCOL://HOST:PORT", help="As of the broker.")
@click.option("--data", type=click.Path(path_type=Path), metavar="DIR", help="As of the broker.")
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE.toml", help="As of the broker."
)
@click.option("--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="As there.")
@click.option("--insecure-bind", is_flag=True, help="As of the broker.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def broker(
    listen: tuple[str, ...],
    data: Path | None,
    config: Path | None,
    assignments: tuple[str, ...],
    insecure_bind: bool,
    as_json: bool,
) -> None:
    """Look at what 'motemq broker' with the same options needs; a broker may be running.

    Nothing is changed, and nobody is disturbed.

    Exit codes: 0 it would do well (warnings may be there), 1 it would not, 2 wrong usage.
    """
    try:
        addresses = [parse_address(text, LISTEN_OPTIONS) for text in listen or [_DEFAULT_LISTEN]]
    except (AddressError, RegistryError) as error:
        raise click.UsageError(str(error)) from error
    findings = list(_look(addresses, data, config, assignments, insecure_bind))
    failed = any(each.level == "failure" for each in findings)
    if as_json:
        found = [asdict(each) for each in findings]
        click.echo(json.dumps({"status": "failure" if failed else "ok", "findings": found}))
    else:
        for each in findings:
            click.echo(f"{_MARKS[each.level]}  {each.about}: {printable(each.text)}")
            if each.advice:
                click.echo(f"      {printable(each.advice)}")
    raise SystemExit(int(failed))


def _look(
    addresses: Sequence[Address],
    data: Path | None,
    config: Path | None,
    assignments: Sequence[str],
    insecure_bind: bool,
) -> Iterator[Finding]:
    try:
        settings = load_settings(config, assignments)
    except (SettingsError, RegistryError) as error:
        yield Finding("failure", "settings", str(error), "docs/settings.md lists all of them")
        settings = Settings()
    else:
        options = ServiceOptions(addresses, data, settings, insecure_bind)
        faults = configuration_faults(options)
        for fault in faults:
            yield Finding("failure", "settings", fault, "the broker would not start with this")
        if not faults:
            yield Finding("ok", "settings", str(config) if config else "the defaults, and --set")
    yield from _config_file(config)
    yield from _certificates(addresses, settings)
    yield from _ports(addresses)
    yield from _data(data, settings)
    yield from _system(settings)


def _config_file(config: Path | None) -> Iterator[Finding]:
    if config is None or not config.exists():
        return
    status = config.stat()
    if status.st_mode & 0o022 or status.st_uid not in (0, os.geteuid()):
        yield Finding(
            "failure",
            "settings",
            f"others than its user can change {config}",
            f"chmod go-w {config}, and have it belong to root or to the broker's user",
        )


def _certificates(addresses: Sequence[Address], settings: Settings) -> Iterator[Finding]:
    files = {address.options.get("cert", settings.net.tls_cert) for address in addresses}
    for file in sorted(files - {""}):
        try:
            from cryptography import x509
        except ImportError:
            yield Finding("warning", "certificate", f"{file}: not looked at, no 'cryptography'")
            return
        try:
            certificate = x509.load_pem_x509_certificate(Path(file).read_bytes())
        except (OSError, ValueError) as error:
            yield Finding("failure", "certificate", f"{file}: {error}", "give a PEM file")
            continue
        until = certificate.not_valid_after_utc
        left = until - datetime.datetime.now(datetime.UTC)
        text = f"{file} is valid until {until:%Y-%m-%d %H:%M} UTC"
        advice = "make a new one; SIGHUP loads it without a restart"
        if left <= datetime.timedelta(0):
            yield Finding("failure", "certificate", f"{file} has expired: {text}", advice)
        elif left < _SOON:
            yield Finding("warning", "certificate", text, advice)
        else:
            yield Finding("ok", "certificate", text)


def _ports(addresses: Sequence[Address]) -> Iterator[Finding]:
    for address in addresses:
        if address.transport == "unix" or not address.port:
            continue
        owner = port_owner(address.port)
        if not owner:
            yield Finding("ok", "port", f"{address.port} is free")
            continue
        says = _health(address)
        if says is None:
            yield Finding(
                "failure",
                "port",
                f"{address.port} is in use by {owner}",
                "stop it, or have the broker listen elsewhere",
            )
        elif says:
            yield Finding("failure", "broker", f"at {address}: {says}", "look into its log")
        else:
            yield Finding(
                "ok", "broker", f"{address.port}: {owner} is a broker that runs, and well"
            )


def _health(address: Address) -> str | None:
    """Return the troubles of a broker that runs, "" if it has none; None: it is no broker of ours,
    or does not say."""
    if address.protocol not in (AUTO, HTTP) or address.transport != "tcp":
        return None
    host = "127.0.0.1" if address.host in ("", "0.0.0.0", "localhost") else address.host
    connection = http.client.HTTPConnection(host, address.port, timeout=_ANSWER_S)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        said = answer.read(_LONGEST_ANSWER_BYTES)
        if answer.status in (401, 403):
            return ""  # it has rights, so it is one
        document = json.loads(said)
        return "" if answer.status == 200 else "; ".join(map(str, document["troubles"]))
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None
    finally:
        connection.close()


def _data(data: Path | None, settings: Settings) -> Iterator[Finding]:
    if data is None:
        yield Finding("ok", "data", "nothing is kept (no --data)")
        return
    place = data
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    most = settings.journal.max_bytes
    size = f"{free:,} bytes are free for {data}"
    if most and free < most and not data.exists():
        text = f"{size}, and journal.max_bytes is {most:,}"
        yield Finding("warning", "data", text, "a full disk holds publishers: set a lower limit")
    elif free < settings.journal.segment_bytes * settings.journal.partitions:
        yield Finding("failure", "data", size, "publishers would have to wait: make room")
    else:
        yield Finding("ok", "data", size)
    if not data.exists():
        writable = os.access(place, os.W_OK | os.X_OK)
        text = f"{data} is not there yet; it is made at the start"
        advice = "" if writable else f"we may not make it in {place}"
        yield Finding("ok" if writable else "failure", "data", text, advice)
        return
    status = data.stat()
    if not stat.S_ISDIR(status.st_mode):
        yield Finding("failure", "data", f"{data} is no folder", "choose another")
        return
    if status.st_uid != os.geteuid():
        yield Finding(
            "failure",
            "data",
            f"{data} belongs to user {status.st_uid}, and you are {os.geteuid()}",
            "ask as the broker's user, or give it to the one who runs it: chown -R",
        )
    if status.st_mode & 0o077:
        text = f"others may look into {data}; the broker takes that away at its start"
        yield Finding("warning", "data", text, f"chmod 700 {data}")
    yield from _journal(data)


def _journal(data: Path) -> Iterator[Finding]:
    try:
        with is_in_use(data) as used:
            if used:
                yield Finding("ok", "data", f"{data} is used by a broker that runs")
        journal = data / "journal"
        identity = read_identity(journal)
        if identity is None:
            return
        states = JournalReader(journal, identity).partitions()
    except (JournalError, OSError) as error:
        yield Finding("failure", "journal", str(error), "motemq journal check, then repair")
        return
    messages = sum(state.next - state.first for state in states)
    text = f"{messages:,} messages in {len(states)} partitions"
    if sum(state.size for state in states) > _CHECKED_BYTES:
        yield Finding("ok", "journal", f"{text} ('motemq journal check' looks at every byte)")
        return
    report = check(journal)
    if report.corrupt:
        worst = next(finding for finding in report.findings if not finding.torn)
        advice = "motemq journal check says all of it, motemq journal repair mends it"
        yield Finding("failure", "journal", f"{text}: {worst}", advice)
    else:
        yield Finding("ok", "journal", f"{text}, all of them whole")


def _system(settings: Settings) -> Iterator[Finding]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.net.max_connections + settings.net.max_unrecognised
    wanted += _FILES_BESIDE_CONNECTIONS
    if hard != resource.RLIM_INFINITY and hard < wanted:
        yield Finding(
            "warning",
            "open files",
            f"the system allows {hard}, and net.max_connections would need {wanted}",
            "ulimit -Hn, LimitNOFILE= in a unit, or a lower net.max_connections",
        )
    else:
        yield Finding("ok", "open files", f"{wanted} are allowed")
    try:
        backlog = int(_SOMAXCONN.read_text())
    except (OSError, ValueError):
        backlog = _BACKLOG
    if backlog < _BACKLOG:
        text = f"net.core.somaxconn is {backlog}: of a crowd that connects at once some wait long"
        yield Finding("warning", "network", text, f"sysctl net.core.somaxconn={_BACKLOG}")
    if datetime.datetime.now(datetime.UTC).year < _FIRST_SENSIBLE_YEAR:
        text = "the clock is years behind; the journal's times would be, too"
        yield Finding("failure", "clock", text, "set it, e.g. by NTP")
    if os.geteuid() == 0:
        text = "you are root; a broker needs no rights of root"
        advice = "a user of its own, e.g. by 'motemq broker --print-systemd-unit'"
        yield Finding("warning", "user", text, advice)
    if os.environ.get("MOTEMQ_CORE_DUMPS", "") not in ("", "0"):
        text = "a crash may write a core dump, with what clients have said in it"
        yield Finding("warning", "core dumps", text, "unset MOTEMQ_CORE_DUMPS")
    yield _compiled()


def _compiled() -> Finding:
    try:
        from host_broker.bus import _topic_table  # noqa: F401
        from host_broker.net.journal import _assembly, _selection  # noqa: F401
    except ImportError:
        text = "the compiled parts are missing, so the broker is several times slower"
        return Finding("warning", "speed", text, "install gcc and Python's headers, then again")
    return Finding("ok", "speed", f"compiled for Python {sys.version.split()[0]}")
