"""``motemq rig report``: reports of a run that is over, from its files alone."""

from pathlib import Path

import click

from boards.rig.commands.exits import ending
from boards.rig.junit import junit_xml, read_events
from boards.rig.markdown import markdown
from boards.rig.plan import PlanError


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="JUnit XML.")
@click.option(
    "--markdown",
    "markdown_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Markdown; $GITHUB_STEP_SUMMARY is such a file. Appended to it.",
)
def command(run: Path, junit: Path | None, markdown_file: Path | None) -> None:
    """Write reports of RUN again: the run's folder, or the --out of 'rig run' for its last run.

    Without options the matrix is printed as Markdown.

    Exit codes: 0, 2 there is no such run.
    """
    with ending("nothing was written"):
        rows = read_events(_folder(run))
        if junit is not None:
            junit.write_bytes(junit_xml(rows))
        if markdown_file is not None:
            with markdown_file.open("a", encoding="utf-8") as file:
                file.write(markdown(rows))
        if junit is None and markdown_file is None:
            click.echo(markdown(rows), nl=False)


def _folder(run: Path) -> Path:
    if (run / "events.jsonl").is_file():
        return run
    runs = sorted(
        (run / "rig").glob("date=*/rig=*/run=*/events.jsonl"), key=lambda file: file.parent.name
    )
    if not runs:
        raise PlanError(f"{run}: neither a run's folder nor the --out of one")
    return runs[-1].parent
