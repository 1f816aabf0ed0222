"""``python -m boards.virtual.rp2040``: one virtual Pico until its standard input ends."""

import json
from pathlib import Path

import click

from boards.virtual.lifetime import FolderInUse, log_to_stderr
from boards.virtual.rp2040.node import NodeError
from boards.virtual.rp2040.supervisor import Supervisor


@click.command()
@click.option("--id", "board_id", required=True, help="Name of the board; its unique id follows.")
@click.option(
    "--state-dir",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for its flash; made if absent. A board started again finds its files.",
)
@click.option("--detached", is_flag=True, help="Outlive the parent; stopped by its control port.")
def main(board_id: str, state_dir: Path, detached: bool) -> None:
    """Run a virtual Raspberry Pi Pico until standard input ends.

    Prints one JSON line when it is ready: serial_url (console), serial_urls (the same by kind:
    pty, socket), data_url (UART1), uart0_url, control_port, bootsel_dir and uid. A blank board
    waits in BOOTSEL: copy a UF2 into bootsel_dir. Messages go to standard error.

    Exit codes: 0 stopped, 1 the emulator failed, 3 Node, its package or the folder is missing.
    """
    log_to_stderr()
    try:
        supervisor = Supervisor(board_id, state_dir.absolute(), detached=detached)
    except (NodeError, FolderInUse) as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(3) from None
    raise SystemExit(supervisor.run(lambda ready: click.echo(json.dumps(ready))))


if __name__ == "__main__":
    main()
