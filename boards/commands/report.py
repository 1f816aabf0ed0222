"""``motemq rig report``: reports of a run that is over, from its files alone."""

import webbrowser
from pathlib import Path

import click

from boards.commands.exits import ending, open_rig
from boards.inventory.models import Models, TomlError, all_models
from boards.reports.history import FORMER, NoRun, find_run, runs_before
from boards.reports.junit import junit_xml
from boards.reports.markdown import markdown
from boards.reports.page import PAGE, write_page
from boards.reports.record import read_run
from boards.session.plan import PlanError

_FILE = click.Path(dir_okay=False, path_type=Path)
_PLACE = click.Path(path_type=Path)
_LAST = Path("out/rig")  # the --out of rig run


@click.command()
@click.argument("run", type=_PLACE, required=False)
@click.option("--html", type=_FILE, help="One HTML page that needs nothing else.")
@click.option(
    "--last",
    default=FORMER,
    show_default=True,
    type=click.IntRange(0, 1000),
    metavar="N",
    help="With --html: compare with the last N runs of the same rig before this one.",
)
@click.option(
    "--compare",
    type=_PLACE,
    nargs=2,
    metavar="A B",
    help="Instead of RUN, with --html: the page of run B, compared with run A only.",
)
@click.option("--open", "opens", is_flag=True, help="Show the page in a browser.")
@click.option("--junit", type=_FILE, help="JUnit XML, one suite per board.")
@click.option(
    "--markdown",
    "markdown_file",
    type=_FILE,
    help="Markdown; $GITHUB_STEP_SUMMARY is such a file. Appended to it.",
)
def command(
    run: Path | None,
    html: Path | None,
    last: int,
    compare: tuple[Path, Path] | None,
    opens: bool,
    junit: Path | None,
    markdown_file: Path | None,
) -> None:
    """Write reports of RUN again: the run's folder, or the --out of 'rig run' for its last run.

    RUN is out/rig, where 'rig run' writes, unless you name one. Without options the matrix is
    printed as Markdown. --open without --html shows the page in the
    run's own folder, as it is now.

    Exit codes: 0, 2 there is no such run, 3 no browser could be started.
    """
    if run is not None and compare is not None:
        raise click.UsageError("name one RUN, or two with --compare A B")
    if compare and html is None:
        raise click.UsageError("--compare goes with --html FILE")
    with ending("nothing was written"):
        folder = _folder(compare[1] if compare else run)
        former = [_folder(compare[0])] if compare else runs_before(folder, last)
        record = read_run(folder)
        page = html or (folder / PAGE if opens else None)
        if page is not None:
            write_page(folder, page, former)
        if junit is not None:
            junit.write_bytes(junit_xml(record, _models()))
        if markdown_file is not None:
            with markdown_file.open("a", encoding="utf-8") as file:
                file.write(markdown(record))
        if page is None and junit is None and markdown_file is None:
            click.echo(markdown(record), nl=False)
        if opens and page is not None and not webbrowser.open(page.absolute().as_uri()):
            raise OSError(f"no browser could be started; the page is {page}")


def _models() -> Models:
    """Return the models of the desk here, if there is one: a run's files say no more than names."""
    try:
        return open_rig(None).models
    except (PlanError, TomlError):
        return all_models()


def _folder(place: Path | None) -> Path:
    try:
        return find_run(place or _LAST)
    except NoRun as error:
        raise PlanError(str(error)) from None
