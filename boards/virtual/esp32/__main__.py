"""``python -m boards.virtual.esp32``: one virtual ESP32 until its end."""

import json
from pathlib import Path

import click

from boards.virtual.esp32.faults import FAULTS
from boards.virtual.esp32.supervisor import Supervisor
from boards.virtual.lan.nic import LanError
from boards.virtual.lifetime import FolderInUse, log_to_stderr


@click.command()
@click.option("--id", "board_id", required=True, help="Name of the board; its MAC follows.")
@click.option(
    "--state-dir",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for its flash; made if absent. A board started again finds its files.",
)
@click.option("--fault", type=click.Choice(sorted(FAULTS)), help="What is to be wrong with it.")
@click.option(
    "--lan",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder of the access point within reach.  [default: this machine's own sockets]",
)
@click.option("--detached", is_flag=True, help="Outlive the parent; stopped by its control port.")
def main(
    board_id: str, state_dir: Path, fault: str | None, lan: Path | None, detached: bool
) -> None:
    """Run a virtual ESP32 until standard input ends.

    Prints one JSON line when it is ready: serial_url (console and loader), serial_urls (the same
    by kind: socket, pty, rfc2217), data_url (UART 1), control_port and uid. A blank board prints
    the boot loader's complaint and waits: hold BOOT through the control port, or use DTR and RTS
    of rfc2217, and flash it with esptool. Messages go to standard error.

    Exit codes: 0 stopped, 1 the state folder cannot be used.
    """
    log_to_stderr()
    try:
        supervisor = Supervisor(
            board_id, state_dir.absolute(), fault=fault, lan=lan, detached=detached
        )
    except (FolderInUse, LanError, OSError) as error:
        raise click.ClickException(str(error)) from None
    supervisor.run(lambda ready: click.echo(json.dumps(ready)))


if __name__ == "__main__":
    main()
