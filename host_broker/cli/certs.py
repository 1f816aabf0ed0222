"""``motemq certs``: a private CA, certificates for the broker, its boards and users."""

from pathlib import Path

import click

from host_broker.access.users import name_fault
from host_broker.cli.failure import failing_clearly
from host_broker.net.access.access_error import AccessError
from host_broker.net.access.certificates import CA, SERVER, SERVER_KEY, make_authority, make_client

_DIR = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
_days = click.option(
    "--days", type=click.IntRange(1, 3650), default=825, show_default=True, help="Valid so long."
)


@click.group()
def command() -> None:
    """Make a private certificate authority and certificates of it.

    ca-key.pem signs whatever you let it; keep it away from the broker's machine if you can.

    Exit codes: 0, 1 a file cannot be read or written, or is there already, 2 wrong usage.
    """


@command.command()
@_DIR
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME-OR-ADDRESS",
    help="How clients call the broker, as often as needed.  [default: localhost, 127.0.0.1]",
)
@_days
def init(folder: Path, hosts: tuple[str, ...], days: int) -> None:
    """Make the CA and the broker's certificate in DIR."""
    with failing_clearly("certs", AccessError):
        for file in make_authority(folder, list(hosts) or ["localhost", "127.0.0.1"], days):
            click.echo(str(file))
        cert = f"cert={folder / SERVER}&key={folder / SERVER_KEY}&client_ca={folder / CA}"
        click.echo(
            f"certs: try motemq broker --listen 'autos://127.0.0.1:8765?{cert}', and for each "
            f"client motemq certs add {folder} NAME",
            err=True,
        )


@command.command()
@_DIR
@click.argument("name")
@_days
def add(folder: Path, name: str, days: int) -> None:
    """Make a client certificate for the board or user NAME, by the CA in DIR.

    PEM for programs, DER for boards. With users (motemq users add NAME --certificate) it is NAME's.
    """
    if fault := name_fault(name):
        raise click.UsageError(f"{name!r} is no name: {fault}")
    with failing_clearly("certs", AccessError):
        for file in make_client(folder, name, days):
            click.echo(str(file))
