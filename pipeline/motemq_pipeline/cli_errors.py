"""How every command of ``motemq pipeline`` refuses and is interrupted."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from motemq_pipeline.errors import PipelineError
from motemq_pipeline.storage import Storage

FOLDER = click.Path(path_type=Path, file_okay=False)


def _place(made: bool) -> Callable[[click.Context, click.Parameter, str], Storage]:
    """Return what reads a folder or a URI; ``made``: the folder need not be there."""

    def read(ctx: click.Context, param: click.Parameter, value: str) -> Storage:
        try:
            found = Storage.at(value)
        except PipelineError as error:
            raise click.BadParameter(str(error), ctx, param) from None
        if not made and found.folder is not None:
            need(found.folder)
        return found

    return read


TABLES = click.option(
    "--tables",
    "place",
    callback=_place(made=False),
    required=True,
    metavar="DIR|URI",
    help="What 'run' or 'backfill' wrote.",
)
NEW_TABLES = click.option(
    "--tables",
    "place",
    callback=_place(made=True),
    required=True,
    metavar="DIR|URI",
    help="Folder, or s3://BUCKET/PATH, for the tables; made if missing, tables in it are replaced.",
)
_CANNOT = 3
_INTERRUPTED = 130


class Refused(click.ClickException):
    """One line on stderr, exit code 3."""

    exit_code = _CANNOT

    def show(self, file: object = None) -> None:
        """Say why, in red on a terminal; several mistakes are several lines."""
        for line in self.message.splitlines():
            click.secho(f"pipeline: error: {line}", fg="red", err=True)


def need(*paths: Path) -> None:
    """Refuse what is not there, or is a URI, as wrong usage."""
    for path in paths:
        if ":/" in str(path):
            raise click.UsageError(f"'{path}' is a URI; this must be on a disk of this machine")
        if not path.exists():
            raise click.UsageError(f"'{path}' does not exist")


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn ``PipelineError`` into its text and exit code 3."""
    try:
        yield
    except PipelineError as error:
        raise Refused(str(error)) from None


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn Ctrl-C into a word and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        click.secho("pipeline: interrupted; Spark is stopped", fg="red", err=True)
        raise SystemExit(_INTERRUPTED) from None
