"""``python -m boards.virtual.esp32``: one virtual ESP32 until its standard input ends."""

import json
import logging
import sys
from pathlib import Path

import click

from boards.virtual.esp32.supervisor import StateDirInUse, Supervisor

_MAX_LOG_LINES = 10_000  # a board that crashes for ever must not fill the disk


class _Capped(logging.StreamHandler):  # type: ignore[type-arg]  # not generic when it runs
    """Writes the first lines to standard error and drops the rest."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._left = _MAX_LOG_LINES

    def emit(self, record: logging.LogRecord) -> None:
        if self._left > 0:
            self._left -= 1
            super().emit(record)


@click.command()
@click.option("--id", "board_id", required=True, help="Name of the board; its MAC follows.")
@click.option(
    "--state-dir",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for its flash; made if absent. A board started again finds its files.",
)
def main(board_id: str, state_dir: Path) -> None:
    """Run a virtual ESP32 until standard input ends.

    Prints one JSON line when it is ready: serial_url (console and loader), control_port and uid.
    A blank board prints the boot loader's complaint and waits: hold BOOT through the control port
    and flash it with esptool. Messages go to standard error.

    Exit codes: 0 stopped, 1 the state folder cannot be used.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", handlers=[_Capped()])
    try:
        supervisor = Supervisor(board_id, state_dir.absolute())
    except (StateDirInUse, OSError) as error:
        raise click.ClickException(str(error)) from None
    supervisor.run(lambda ready: click.echo(json.dumps(ready)))


if __name__ == "__main__":
    main()
