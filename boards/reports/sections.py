"""The parts of the page, each from the record of a run; a part with nothing to say is None."""

from boards.reports.axes import amount
from boards.reports.lanes import gantt
from boards.reports.markup import Html, joined, tag
from boards.reports.percentiles import percentile
from boards.reports.record import BoardRecord, RunRecord


def names(run: RunRecord) -> dict[str, str]:
    """Return what each board is called on the page: virtual ones always say so."""
    return {b.id: f"{b.id} (virtual)" if b.virtual else b.id for b in run.boards.values()}


def outcome_tag(outcome: str) -> Html:
    """Return an outcome as a word with a colour."""
    if outcome == "skipped":
        outcome = "not run"
    return tag("span", outcome, class_=f"tag o-{outcome.replace(' ', '-')}")


def part(id: str, title: str, *children: object) -> Html:
    """Return a part of the page with its heading."""
    return tag("section", tag("h2", title), *children, id=id)


def scroll(*children: object) -> Html:
    """Return what may be wider than a phone, in a frame of its own that scrolls."""
    return tag("div", *children, class_="scroll", tabindex="0")


def failures(run: RunRecord) -> Html | None:
    """List what did not pass, with its reason."""
    called, items = names(run), []
    for board in run.boards.values():
        rows, not_run = [], []
        for interval in board.intervals:
            shown = interval.shown_outcome
            if shown == "not run":
                not_run.append(interval.name)
            elif shown not in ("passed", "flaky", "skipped"):
                again = f", attempt {interval.attempt}" if interval.attempt > 1 else ""
                why = tag("span", interval.message or "no reason was given", class_="why")
                rows.append(tag("p", outcome_tag(shown), f" {interval.name}{again}: ", why))
        if not_run:
            rows.append(tag("p", f"After that not run: {', '.join(not_run)}.", class_="soft"))
        if rows:
            items.append(tag("li", tag("h3", called[board.id]), *rows))
    return (
        part("failures", "What did not pass", tag("ul", *items, class_="plain")) if items else None
    )


def not_run(run: RunRecord) -> Html | None:
    """List the checks that were not run, by the reason."""
    called = names(run)
    items = [
        tag("li", tag("h3", called[board.id]), *(_reason(*one) for one in reasons))
        for board in run.boards.values()
        if (reasons := board.not_run())
    ]
    return part("not-run", "What was not run", tag("ul", *items, class_="plain")) if items else None


def _reason(why: str, checks: list[str]) -> Html:
    return tag("p", f"{', '.join(checks)}: ", tag("span", why, class_="why soft"))


def rows_of(run: RunRecord) -> list[str]:
    """Return the names of all steps and checks, in the order of the board that did the most."""
    boards = sorted(run.boards.values(), key=lambda board: -len(board.last()))
    rows: list[str] = []
    for board in boards:
        last = ""
        for name in board.last():
            if name not in rows:
                rows.insert(rows.index(last) + 1 if last else 0, name)
            last = name
    return rows


def matrix(run: RunRecord) -> Html | None:
    """Boards by steps and checks; a cell holds the outcome and the first figure measured."""
    rows = rows_of(run)
    if not rows:
        return None
    head = [tag("th", b.id, tag("small", _kind(b))) for b in run.boards.values()]
    body = [
        tag(
            "tr",
            tag("th", _breakable(name)),
            *(_cell(board, name) for board in run.boards.values()),
        )
        for name in rows
    ]
    table = tag("table", tag("thead", tag("tr", tag("th"), *head)), tag("tbody", *body))
    return part("matrix", "Boards and checks", scroll(table))


def _kind(board: BoardRecord) -> str:
    return f"virtual {board.model.removeprefix('virtual-')}" if board.virtual else board.model


def _breakable(name: str) -> Html:
    """Let a narrow screen break a name where its words end."""
    first, *more = name.split("_")
    return joined(first, *(joined("_", tag("wbr"), word) for word in more))


def _cell(board: BoardRecord, name: str) -> Html:
    last = board.last().get(name)
    if last is None:
        return tag("td", "-", class_="soft")
    shown = last.shown_outcome
    figure = next((s for s in board.series.values() if s.check == name and s.values), None)
    number = amount(percentile(figure.values, 50), figure.unit) if figure else ""
    return tag(
        "td",
        tag("span", "ok", class_="tag o-passed") if shown == "passed" else outcome_tag(shown),
        tag("small", number) if number else None,
        title=f"{last.seconds:.1f} s" + (f": {last.message}" if last.message else ""),
    )


def states(run: RunRecord) -> Html | None:
    """The Gantt chart."""
    if not run.boards:
        return None
    called = names(run)
    chart = gantt(run, [(called[board.id], board) for board in run.boards.values()])
    return part("states", "What each board did when", chart)


def console(run: RunRecord) -> Html | None:
    """What each board said, by the step or check during which it said it."""
    called, boards = names(run), []
    for board in run.boards.values():
        if not board.console:
            continue
        said = joined(
            *(
                joined(tag("b", f"── {check or step}\n"), words.rstrip("\n"), "\n")
                for step, check, words in board.console
            )
        )
        log = tag("pre", said, tabindex="0")
        boards.append(tag("details", tag("summary", called[board.id]), log))
    return part("console", "What the boards said", *boards) if boards else None


def environment(run: RunRecord) -> Html:
    """Where and of what the run was made."""
    facts = [("run", run.run_id), *run.environment.items()]
    if run.unreadable:
        facts.append(("unreadable lines", str(run.unreadable)))
    for board in run.boards.values():
        last = board.last()
        words = [board.model, "virtual" if board.virtual else "", board.port]
        words.append(f"firmware {board.firmware or 'not read'}")
        told = [last[name] for name in ("flash", "install") if name in last]
        words += [one.message for one in told if one.outcome == "passed"]
        words.append(f"image {board.fw_sha[:12] or 'none of the rig'}")
        words.append(f"client {board.client_sha[:12] or 'unknown'}")
        facts.append((board.id, "; ".join(word for word in words if word)))
    rows = [joined(tag("dt", name), tag("dd", value)) for name, value in facts]
    return part("environment", "Environment", tag("dl", *rows))
