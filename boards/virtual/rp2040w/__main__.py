"""``python -m boards.virtual.rp2040w``: one virtual Pico W until its end."""

import json
from pathlib import Path

import click

from boards.virtual.lan.nic import LanError
from boards.virtual.lifetime import FolderInUse, log_to_stderr
from boards.virtual.rp2040w.supervisor import PicoW


@click.command()
@click.option("--id", "board_id", required=True, help="Name of the board; its unique id follows.")
@click.option(
    "--state-dir",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for its flash; made if absent. A board started again finds its files.",
)
@click.option(
    "--lan",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder of the access point within reach.  [default: this machine's own sockets]",
)
@click.option("--detached", is_flag=True, help="Outlive the parent; stopped by its control port.")
def main(board_id: str, state_dir: Path, lan: Path | None, detached: bool) -> None:
    """Run a virtual Pico W until standard input ends.

    Prints one JSON line when it is ready: serial_url (console), serial_urls, data_url (UART 1),
    bootsel_dir, control_port and uid. A blank board is in BOOTSEL: copy a UF2 file into that
    folder. Messages go to standard error.

    Exit codes: 0 stopped, 1 the state folder cannot be used.
    """
    log_to_stderr()
    try:
        supervisor = PicoW(board_id, state_dir.absolute(), lan=lan, detached=detached)
    except (FolderInUse, LanError, OSError) as error:
        raise click.ClickException(str(error)) from None
    supervisor.run(lambda ready: click.echo(json.dumps(ready)))


if __name__ == "__main__":
    main()
