"""The whole page: one file that needs nothing else, not even a script."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from boards.reports import lanes
from boards.reports.axes import amount, percentile, short
from boards.reports.change import FEWEST, compare
from boards.reports.history import read_runs
from boards.reports.measured import measured
from boards.reports.record import RunRecord, read_run
from host_broker.printable import printable_lines

PAGE = "report.html"  # in a run's own folder


def html_page(run: RunRecord, former: Sequence[RunRecord] = ()) -> str:
    """Return the page of ``run``, compared with ``former`` runs, oldest first."""
    environment = templates()
    environment.filters |= {"amount": amount, "short": short, "percentile": percentile}
    environment.globals["lanes"] = lanes
    boards = run.boards.values()
    return environment.get_template("page.html.j2").render(
        run=run,
        rows=run.names(),
        failing=[board for board in boards if board.failures() or board.consequences()],
        skipping=[board for board in boards if board.not_run()],
        measured=measured(run),
        former=former,
        compared=compare(run, former),
        fewest=FEWEST,
        facts=list(_facts(run)),
    )


def write_page(folder: Path, file: Path | None = None, former: Sequence[Path] = ()) -> Path:
    """Write the page of the run in ``folder`` to ``file``, by default beside its other files.

    ``former`` are folders of runs. Returns the file. Raises ``FileNotFoundError``, ``OSError``.
    """
    file = file or folder / PAGE
    page = html_page(read_run(folder), read_runs(former))
    file.write_text(page, encoding="utf-8", errors="replace")
    return file


def _facts(run: RunRecord) -> Iterator[tuple[str, str]]:
    """Where and of what the run was made."""
    yield "run", run.run_id
    yield from run.environment.items()
    if run.unreadable:
        yield "unreadable lines", str(run.unreadable)
    for board in run.boards.values():
        last = board.last()
        words = [board.model, "virtual" if board.virtual else "", board.port]
        words.append(f"firmware {board.firmware or 'not read'}")
        told = [last[name] for name in ("flash", "install") if name in last]
        words += [one.message for one in told if one.outcome == "passed"]
        words.append(f"image {board.fw_sha[:12] or 'none of the rig'}")
        words.append(f"client {board.client_sha[:12] or 'unknown'}")
        yield board.id, "; ".join(word for word in words if word)


def templates() -> Environment:
    """Return the environment of the templates beside this module: what is put in is escaped.

    Boards, brokers and file names write what a page shows. Besides HTML's own characters, control
    characters and those that turn the direction of text are shown as they are written in Python.
    """
    return Environment(
        loader=PackageLoader("boards.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else printable_lines(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
