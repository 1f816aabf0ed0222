"""The ``motemq`` command: a table of sub-commands, each imported only when it is used."""

import errno
import importlib
import importlib.util
import io
import os
import sys
from dataclasses import dataclass
from typing import Any

import click

from motemq import __version__
from motemq.core_dumps import forbid_core_dumps


@dataclass(frozen=True, slots=True)
class _SubCommand:
    """Where a sub-command lives, and what ``motemq --help`` says of it without importing it."""

    target: str
    help: str
    extra: str | None = None
    systems: tuple[str, ...] = ()  # as sys.platform begins there; empty: every one
    later: tuple[str, ...] = ()  # packages that it needs and imports only when it runs


_LINUX = ("linux",)  # USB, its power and who has a port open: by /sys and /proc
_UNIX = ("linux", "darwin")  # locks of files, terminals, signals

_SUB_COMMANDS = {
    "broker": _SubCommand("host_broker.cli.broker:command", "Run the broker.", systems=_UNIX),
    "pub": _SubCommand("host_broker.cli.pub:command", "Publish messages."),
    "sub": _SubCommand("host_broker.cli.sub:command", "Print messages as they arrive."),
    "top": _SubCommand(
        "host_broker.cli.top:command", "Show the busiest topics, live.", systems=_UNIX
    ),
    "ping": _SubCommand("host_broker.cli.ping:command", "Measure round trips to a broker."),
    "call": _SubCommand("host_broker.cli.call:command", "Ask a LightMQ client, print its answer."),
    "journal": _SubCommand(
        "host_broker.cli.journal:command",
        "Check, repair or convert a broker's journal.",
        systems=_UNIX,
    ),
    "backup": _SubCommand("host_broker.cli.backup:command", "Back up a broker that runs."),
    "restore": _SubCommand(
        "host_broker.cli.restore:command", "Make a broker's data folder from a backup."
    ),
    "doctor": _SubCommand(
        "host_broker.cli.doctor:command",
        "Say what would keep a broker from doing well.",
        systems=_UNIX,
    ),
    "users": _SubCommand("host_broker.cli.users:command", "Say who a broker knows.", systems=_UNIX),
    "acl": _SubCommand("host_broker.cli.acl:command", "Ask what the rules of a broker say."),
    "certs": _SubCommand(
        "host_broker.cli.certs:command", "Make a private CA and certificates.", "certs"
    ),
    "bridge": _SubCommand("boards.bridge.cli:command", "Join a serial port to a broker.", "rig"),
    "firmware": _SubCommand("firmware.cli:command", "Build or find board firmware.", "rig", _UNIX),
    "rig": _SubCommand("boards.cli:command", "Flash, install and verify boards.", "rig", _LINUX),
    "pipeline": _SubCommand(
        "motemq_pipeline.cli:command",
        "Turn journals into tables and reports.",
        "pipeline",
        later=(
            *("cbor2", "datasketches", "deltalake", "duckdb", "jinja2", "matplotlib", "msgspec"),
            *("pandas", "plotly", "pyarrow", "pydantic", "pyspark"),
        ),
    ),
    "completion": _SubCommand("motemq.completion:command", "Complete this with Tab in a shell."),
    "demo": _SubCommand(
        "motemq.demo:command", "Blank boards to a Spark report.", "rig,pipeline", _LINUX
    ),
}
_NO_VERDICT = 3  # what a CI may not take for a failed check
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _WrongSystem(click.ClickException):
    exit_code = _NO_VERDICT


class _LazyGroup(click.Group):
    def main(self, *arguments: Any, **options: Any) -> Any:
        if "_MOTEMQ_COMPLETE" in os.environ:  # a shell asks what could come next
            from motemq.completion import register

            register()
        # A character that the terminal's encoding lacks is written by its number.
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            return super().main(*arguments, **options)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            from host_broker.cli import standard_output

            standard_output.forget()
            click.echo(f"Error: cannot write: {error.strerror}", err=True)
            raise SystemExit(_NO_VERDICT) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_SUB_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _SUB_COMMANDS.get(cmd_name)
        if entry is None:
            return None
        if entry.systems and not sys.platform.startswith(entry.systems):
            names = " or ".join({"linux": "Linux", "darwin": "macOS"}[one] for one in entry.systems)
            raise _WrongSystem(f"'motemq {cmd_name}' needs {names}; this is {sys.platform}")
        module_name, _, attribute = entry.target.partition(":")
        try:
            for package in entry.later:
                if importlib.util.find_spec(package) is None:
                    raise ModuleNotFoundError(name=package)
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            own = ("motemq", "host_broker", "boards", "firmware", "motemq_pipeline")
            if entry.extra is None or (error.name or "").startswith(own):
                raise
            raise click.ClickException(
                f"'motemq {cmd_name}' needs the package '{error.name}', which is not installed; "
                f"install it with: pip install 'motemq[{entry.extra}]'"
            ) from error
        command: click.Command = getattr(module, attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in _SUB_COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="motemq")
def main() -> None:
    """MoteMQ: lightweight messaging for sensor boards, proven on real MicroPython."""
    forbid_core_dumps()
