"""The whole page: one file that needs nothing else, not even a script."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from boards.reports import measured, sections
from boards.reports.axes import amount, short
from boards.reports.change import FEWEST, Comparison, compare
from boards.reports.history import read_runs
from boards.reports.markup import Html, joined, style_sheet, tag
from boards.reports.record import RunRecord, read_run

_QUIET_ROWS = 200

PAGE = "report.html"  # in a run's own folder


def html_page(run: RunRecord, former: Sequence[RunRecord] = ()) -> str:
    """Return the page of ``run``, compared with ``former`` runs, oldest first."""
    title = f"Rig {run.rig}: {run.outcome}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        # The page may not fetch anything, whatever a board has written into it.
        tag(
            "meta",
            http_equiv="Content-Security-Policy",
            content="default-src 'none'; style-src 'unsafe-inline'",
        ),
        tag("title", title),
        style_sheet((files("boards.reports") / "page.css").read_text(encoding="utf-8")),
    )
    parts = (
        sections.failures(run),
        sections.matrix(run),
        sections.not_run(run),
        sections.states(run),
        measured.round_trips(run),
        measured.throughput(run),
        measured.last_wills(run),
        measured.heap(run),
        _comparison(run, former),
        measured.measurements(run),
        sections.console(run),
        sections.environment(run),
    )
    body = tag("body", tag("main", _header(run), *parts))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def write_page(folder: Path, file: Path | None = None, former: Sequence[Path] = ()) -> Path:
    """Write the page of the run in ``folder`` to ``file``, by default beside its other files.

    ``former`` are folders of runs. Returns the file. Raises ``FileNotFoundError``, ``OSError``.
    """
    file = file or folder / PAGE
    page = html_page(read_run(folder), read_runs(former))
    file.write_text(page, encoding="utf-8", errors="replace")
    return file


def _header(run: RunRecord) -> Html:
    began = run.ts[:19].replace("T", " ")
    count = f"{len(run.boards)} board" + "s" * (len(run.boards) != 1)
    about = f"run {run.run_id}, began {began} UTC, {amount(run.seconds, 's')}, {count}"
    ended = "" if run.outcome != "aborted" else "The run has no end: it was killed, or runs still."
    virtual = tag(
        "p",
        tag("span", "virtual boards", class_="tag virtual"),
        " Their times say nothing about hardware.",
    )
    return tag(
        "header",
        tag("h1", f"Rig {run.rig} ", sections.outcome_tag(run.outcome)),
        tag("p", about, class_="soft"),
        tag("p", ended) if ended else None,
        virtual if run.is_virtual else None,
    )


def _comparison(run: RunRecord, former: Sequence[RunRecord]) -> Html | None:
    if not former:
        return None
    rows = compare(run, former)
    flagged = [row for row in rows if row.beyond]
    quiet = [row for row in rows if not row.beyond and row.former]
    called = sections.names(run)
    if len(former) == 1:
        note = f"Side by side with run {former[0].run_id}. Two runs prove no change."
    else:
        note = (
            f"Against the last {len(former)} runs: median ± MAD. A flag asks to look, and judges "
            f"nothing; there is none with fewer than {FEWEST} former runs of a figure."
        )
    parts: list[object] = [tag("p", note, class_="soft")]
    if flagged:
        parts.append(_table(flagged, called))
    elif len(former) >= FEWEST:
        parts.append(tag("p", "Nothing stands out."))
    if quiet:
        summary = tag("summary", f"{len(quiet)} figures within their usual range or unjudged")
        parts.append(tag("details", summary, _table(quiet[:_QUIET_ROWS], called)))
    return sections.part("comparison", "Compared with former runs", *parts)


def _table(rows: Sequence[Comparison], called: dict[str, str]) -> Html:
    head = ("board", "check", "figure", "this run", "before", "difference")
    body = [tag("tr", *(tag("td", cell) for cell in _cells(row, called))) for row in rows]
    return sections.scroll(
        tag(
            "table",
            tag("thead", tag("tr", *(tag("th", name) for name in head))),
            tag("tbody", *body),
        )
    )


def _cells(row: Comparison, called: dict[str, str]) -> list[object]:
    before = ""
    if row.center is not None:
        before = amount(row.center, row.unit)
        if row.spread is not None:
            before += f" ± {amount(row.spread, row.unit)}"
        before += f" (n {len(row.former)})"
    difference = "" if row.share is None else f"{'+' * (row.share >= 0)}{short(100 * row.share)} %"
    said = {0: "", 1: "unusual, once"}.get(row.beyond, f"changed, {row.beyond} runs in a row")
    # Beneath the name, where a phone shows it too.
    board = joined(called[row.board], tag("br"), tag("span", said, class_="tag flag"))
    figure = joined(row.metric, f" {row.statistic}" if row.statistic else "")
    value = amount(row.value, row.unit)
    who = board if said else called[row.board]
    return [who, row.check, figure, value, before, difference]
