"""``python -m boards.virtual.lan``: one access point until its end."""

import json
from pathlib import Path

import click

from boards.virtual.lan.access_point import AccessPoint
from boards.virtual.lan.nic import LanError
from boards.virtual.lifetime import FolderInUse, log_to_stderr


@click.command()
@click.option(
    "--state-dir",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for its socket and lock; made if absent.",
)
@click.option("--ssid", required=True, help="The network's name.")
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Its first line is the network's password.  [default: an open network]",
)
@click.option("--detached", is_flag=True, help="Outlive the parent; stopped by its socket.")
def main(state_dir: Path, ssid: str, key_file: Path | None, detached: bool) -> None:
    """Run the access point of virtual boards until standard input ends.

    Prints one JSON line when it is ready: host (this machine's address on the LAN), network, ssid.
    Messages go to standard error.

    Exit codes: 0 stopped, 1 there can be no LAN here.
    """
    log_to_stderr()
    key = key_file.read_text().splitlines()[:1] if key_file else []
    try:
        access_point = AccessPoint(
            state_dir.absolute(), ssid, key[0] if key else "", detached=detached
        )
    except (FolderInUse, LanError, OSError) as error:
        raise click.ClickException(str(error)) from None
    access_point.run(lambda ready: click.echo(json.dumps(ready)))


if __name__ == "__main__":
    main()
