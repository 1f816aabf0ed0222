"""``motemq rig list``: the desk as it is now."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from boards.commands.exits import ending, open_rig, rig_option
from boards.inventory.rig_file import RIG_FILE, new_rig
from boards.inventory.states import NOT_ON_DESK, BoardStatus, inventory_states
from boards.session.plan import PlanError

_COLORS = {"ready": "green", "in use": "yellow", "loader": "yellow", "unknown": "cyan"}
_COLORS[NOT_ON_DESK] = "cyan"


def _rows(rig_file: Path | None) -> list[BoardStatus]:
    try:
        rig = open_rig(rig_file)
    except PlanError:
        if rig_file is None and (plugged := inventory_states(new_rig(Path(RIG_FILE)))):
            return plugged
        raise
    return inventory_states(rig)


def table(rows: Sequence[BoardStatus]) -> Table:
    """Return what a terminal shows, however narrow it is."""
    shown = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("board", "model", "port", "state"):
        # What may be long gives way: one device can be a board of many models.
        shown.add_column(name, overflow="fold", no_wrap=name in ("board", "state"))
    for row in rows:
        style = _COLORS.get(row.state, "red")
        shown.add_row(row.id or "-", row.model, row.port or "-", f"[{style}]{row.state}[/]")
    return shown


@click.command()
@rig_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per board and device.")
def command(rig_file: Path | None, as_json: bool) -> None:
    """List the boards of the desk: port, state, and who has them. Touches no board.

    Virtual boards that are up and not on this desk follow; devices that are plugged in and could be
    boards, but have no file, come last as unknown. These are shown where there is no desk yet, too.

    Exit codes: 0, 2 usage, or the desk's files are wrong.
    """
    with ending():
        rows = _rows(rig_file)
        if as_json:
            for row in rows:
                click.echo(json.dumps(dataclasses.asdict(row)))
            return
        console = Console(soft_wrap=False)
        console.print(table(rows))
        for row in rows:
            if row.detail:
                text = f"{row.id or row.port} {row.state}: {row.detail}"
                console.print(text, markup=False, highlight=False, soft_wrap=True)
        if any(row.state == "unknown" for row in rows):
            click.echo("an unknown one gets a file by: motemq rig add")
        if any(row.state == NOT_ON_DESK for row in rows):
            click.echo("virtual boards are on this desk with virtual = true in its rig.toml")
