"""``motemq journal``: look at a journal, check and repair it, convert an old one."""

import datetime
import json
from pathlib import Path
from typing import Any

import click

from host_broker.cli.failure import failing_clearly
from host_broker.net.journal.check import Report, check
from host_broker.net.journal.convert import convert
from host_broker.net.journal.groups import GROUPS_FILE, read_groups
from host_broker.net.journal.identity import read_identity
from host_broker.net.journal.reader import JournalReader
from host_broker.net.journal.repair import DAMAGED, repair
from host_broker.net.journal.scan import JournalError
from host_broker.printable import printable

_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)
_MOST_LINES = 1000  # findings that are told


@click.group()
def command() -> None:
    """Look at a journal, check and repair it, convert one of an older version.

    DIR is the journal's folder: DATA/journal, of motemq broker --data DATA.
    """


@command.command()
@click.argument("journal", metavar="DIR", type=_FOLDER)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def info(journal: Path, as_json: bool) -> None:
    """Say what there is: id, messages, times and bytes of each partition, consumer groups.

    A broker may be using the journal. Exit codes: 0, 1 the journal cannot be read, 2 wrong usage.
    """
    with failing_clearly("journal", JournalError, OSError):
        found = _facts(journal)
        if as_json:
            click.echo(json.dumps(found))
            return
        click.echo(f"journal {found['id']}, format 2")
        for each in found["partitions"]:
            size = f"{each['bytes']:,} bytes in {each['segments']} segments"
            times = f", {each['from']} to {each['to']}" if each["to"] else ""
            click.echo(
                f"partition {each['partition']}: {each['messages']:,} messages, {each['first']} to "
                f"{each['next'] - 1}, {size}{times}"
            )
        for name, group in found["groups"].items():
            read = ", ".join(f"partition {number} up to {at}" for number, at in group.items())
            click.echo(f"group {printable(name)}: has read {read}")


def _facts(journal: Path) -> dict[str, Any]:
    identity = read_identity(journal)
    if identity is None:
        raise JournalError(f"{journal} has no journal; give the broker's DATA/journal")
    partitions = []
    reader = JournalReader(journal, identity)
    for state in reader.partitions():
        indexes = reader.indexes(state.partition)
        partitions.append(
            {
                "partition": state.partition,
                "first": state.first,
                "next": state.next,
                "messages": state.next - state.first,
                "segments": len(indexes),
                "bytes": state.size,
                "from": _time(reader.earliest_ns(state.partition)),
                "to": _time(max(index.latest_ns for index in indexes)),
            }
        )
    try:
        groups = read_groups(journal / GROUPS_FILE)
    except ValueError as error:
        raise JournalError(f"{journal / GROUPS_FILE} is torn: {error}") from error
    return {
        "format": 2,
        "id": str(identity),
        "partitions": partitions,
        "groups": {name: dict(group.positions) for name, group in groups.items()},
    }


def _time(time_ns: int) -> str:
    if not time_ns:
        return ""
    seconds = datetime.datetime.fromtimestamp(time_ns // 10**9, datetime.UTC)
    return seconds.isoformat().replace("+00:00", "Z")


@command.command(name="check")
@click.argument("journal", metavar="DIR", type=_FOLDER)
def check_command(journal: Path) -> None:
    """Read everything, and name what is torn or corrupt and which messages are lost.

    Changes nothing; a broker may be using the journal. Exit codes: 0 nothing is wrong but for what
    was never whole (torn), 1 something is corrupt, or the journal cannot be read, 2 wrong usage.
    """
    with failing_clearly("journal", JournalError, OSError):
        report = check(journal)
        _tell(report)
        if report.corrupt:
            click.echo(
                f"journal: 'motemq journal repair {journal}' goes on without what is wrong",
                err=True,
            )
            raise SystemExit(1)


@command.command(name="repair")
@click.argument("journal", metavar="DIR", type=_FOLDER)
def repair_command(journal: Path) -> None:
    """Make a journal whole again without what is torn or corrupt in it, while no broker uses it.

    Messages that are lost keep their numbers, so all others do; what is replaced is kept in
    DIR/damaged. Exit codes: 0 it is whole now, 1 it could not be repaired, 2 wrong usage.
    """
    with failing_clearly("journal", JournalError, OSError):
        report = repair(journal)
        _tell(report)
        if report.findings:
            click.echo(f"repaired; what was replaced is in {journal / DAMAGED}")


@command.command(name="convert")
@click.argument("old", metavar="OLD", type=_FOLDER)
@click.argument("new", metavar="NEW", type=click.Path(path_type=Path, file_okay=False))
def convert_command(old: Path, new: Path) -> None:
    """Write the journal OLD, of format version 1, to the folder NEW as version 2.

    While no broker uses OLD, which is left as it is. Messages keep their numbers and times,
    segments their ages, consumer groups what they have read. Exit codes: 0 done, 1 it could not be
    converted, 2 wrong usage.
    """
    with failing_clearly("journal", JournalError, OSError):
        messages = convert(old, new, click.echo)
        click.echo(f"{messages:,} messages; now put {new} in the place of {old}")


def _tell(report: Report) -> None:
    for finding in report.findings[:_MOST_LINES]:
        click.echo(("torn: " if finding.torn else "corrupt: ") + printable(str(finding)))
    if len(report.findings) > _MOST_LINES:
        click.echo(f"and {len(report.findings) - _MOST_LINES} more")
    lost = f"; {report.lost:,} messages are lost" if report.lost else ""
    staged = f"; {report.staged:,} more are staged for the next start" if report.staged else ""
    click.echo(
        f"{len(report.partitions)} partitions, {report.segments} segments, {report.messages:,} "
        f"messages{lost}{staged}"
    )
