"""A run as its two files tell it: boards, what they did when, and what was measured.

The files may be cut, damaged or written by a stranger: a line that is not as docs/rig-events.md
says is counted and left out, and memory is bounded however many samples there are.
"""

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]

ABORTED = "aborted"
_SCHEMA_VERSION = 1
_LINE_LIMIT = 1024 * 1024  # bytes; the longest that the rig writes is a tenth of it
_SERIES_LIMIT = 65_536  # values: a curve on a page shows no more
_BOARDS_LIMIT = 256
NOT_RUN = "not run: step "  # the beginning of the message of a step after one that failed
_TEXTS = ("run_id", "rig", "ts", "board_id", "model", "port", "fw_sha", "client_sha")
_EVENT_TEXTS = ("event", "step", "check", "outcome", "message")
_SAMPLE_TEXTS = ("check", "metric", "unit", "outcome")


@dataclass(frozen=True, slots=True)
class Interval:
    """One try of a step (``check`` is "") or of a check; times are the host's monotonic ns."""

    step: str
    check: str
    attempt: int
    outcome: str  # "" for a step that never ended
    start_ns: int
    end_ns: int
    message: str

    @property
    def name(self) -> str:
        """The check, or the step."""
        return self.check or self.step

    @property
    def tried(self) -> str:
        """The name, and the attempt if it is not the first."""
        return f"{self.name}, attempt {self.attempt}" if self.attempt > 1 else self.name

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def shown_outcome(self) -> str:
        """The outcome in the words of a report, which tell a late success and a mere consequence.

        ``flaky`` passed, though not at once; ``not run`` only because an earlier step failed.
        """
        if self.outcome == "passed" and self.attempt > 1:
            return "flaky"
        if self.outcome == "error" and self.message.startswith(NOT_RUN):
            return "not run"
        return self.outcome or "unfinished"


@dataclass(slots=True)
class Series:
    """What one check measured of one metric, in its last attempt."""

    check: str
    metric: str
    unit: str
    attempt: int = 1
    outcome: str = ""
    low: float | None = None  # the declared limits
    high: float | None = None
    count: int = 0  # of all values; those kept may be fewer
    values: "array[float]" = field(default_factory=lambda: array("d"))
    at_ns: "array[int]" = field(default_factory=lambda: array("q"))
    _stride: int = 1

    def add(self, value: float, at_ns: int) -> None:
        """Take a value; of very many every second, fourth, … is kept."""
        if self.count % self._stride == 0:
            if len(self.values) == _SERIES_LIMIT:
                self.values, self.at_ns = self.values[::2], self.at_ns[::2]
                self._stride *= 2
            if self.count % self._stride == 0:
                self.values.append(value)
                self.at_ns.append(at_ns)
        self.count += 1


@dataclass(slots=True)
class BoardRecord:
    """What is known of one board of the run."""

    id: str
    model: str = ""
    port: str = ""
    virtual: bool = False
    firmware: str = ""  # as the board says
    fw_sha: str = ""  # of the image that the rig has put there
    client_sha: str = ""
    outcome: str = ""  # "" if it never ended
    start_ns: int = 0
    end_ns: int = 0
    intervals: list[Interval] = field(default_factory=list)
    series: dict[tuple[str, str], Series] = field(default_factory=dict)  # check, metric
    console: list[tuple[str, str, str]] = field(default_factory=list)  # step, check, what it said

    @property
    def called(self) -> str:
        """What it is called in reports: a virtual one always says so."""
        return f"{self.id} (virtual)" if self.virtual else self.id

    def failures(self) -> list[Interval]:
        """Return the tries that did not pass; not what was not run."""
        fine = ("passed", "flaky", "not run", "skipped")
        return [one for one in self.intervals if one.shown_outcome not in fine]

    def consequences(self) -> list[str]:
        """Return the steps that were not run because an earlier one failed."""
        return [one.name for one in self.intervals if one.shown_outcome == "not run"]

    def figure(self, check: str) -> Series | None:
        """Return the first thing that a check measured."""
        return next((s for s in self.series.values() if s.check == check and s.values), None)

    def last(self) -> dict[str, Interval]:
        """Return the last try of each step and check, by name, in the order of their first.

        A check comes after the step it is part of.
        """
        first = {name: at for at, name in enumerate(dict.fromkeys(i.name for i in self.intervals))}
        steps = {i.step: first.get(i.step, first[i.name]) for i in reversed(self.intervals)}
        ordered = sorted(self.intervals, key=lambda i: (steps[i.step], bool(i.check)))
        return {interval.name: interval for interval in ordered}

    def not_run(self) -> list[tuple[str, list[str]]]:
        """Return why checks were not run, and which, by reason."""
        last = self.last().values()
        return by_reason((one.name, one.message) for one in last if one.outcome == "skipped")


@dataclass(slots=True)
class RunRecord:
    """One run. ``outcome`` is ``aborted`` if it has no end."""

    run_id: str = ""
    rig: str = ""
    ts: str = ""  # when it began, UTC
    outcome: str = ABORTED
    start_ns: int = 0
    end_ns: int = 0
    boards: dict[str, BoardRecord] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    unreadable: int = 0  # lines

    @property
    def seconds(self) -> float:
        """How long it took, or how long there were events."""
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def is_virtual(self) -> bool:
        """True if a board of it is virtual."""
        return any(board.virtual for board in self.boards.values())

    def names(self) -> list[str]:
        """Return all steps and checks, in the order of the board that did the most."""
        rows: list[str] = []
        for board in sorted(self.boards.values(), key=lambda board: -len(board.last())):
            last = ""
            for name in board.last():
                if name not in rows:
                    rows.insert(rows.index(last) + 1 if last else 0, name)
                last = name
        return rows


def by_reason(skipped: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Return reasons, each with the names of the checks that were not run for it."""
    found: dict[str, list[str]] = {}
    for name, why in skipped:
        found.setdefault(why or "no reason was given", []).append(name)
    return list(found.items())


def read_run(folder: Path, *, samples: bool = True) -> RunRecord:
    """Read the run in ``folder``; with ``samples`` False its events only.

    Raises ``FileNotFoundError``. Missing samples are no error: there may be none.
    """
    run = RunRecord()
    started: dict[str, Row] = {}  # board -> the step that runs
    for row in _rows(folder / "events.jsonl", run, _EVENT_TEXTS):
        _event(run, row, started)
    for id, row in started.items():
        _interval(run.boards[id], row, run.end_ns, "")
    run.boards = dict(sorted(run.boards.items()))
    if samples and (folder / "samples.jsonl").is_file():
        for row in _rows(folder / "samples.jsonl", run, _SAMPLE_TEXTS):
            _sample(run, row)
    return run


def _rows(path: Path, run: RunRecord, texts: tuple[str, ...]) -> Iterator[Row]:
    with path.open("rb") as file:
        while line := file.readline(_LINE_LIMIT):
            if not line.endswith(b"\n") and len(line) < _LINE_LIMIT:
                return  # the run was killed while it wrote, or it writes just now
            row = _row(line, texts)
            if row is None:
                run.unreadable += 1
            else:
                yield row


def _row(line: bytes, texts: tuple[str, ...]) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or row.get("schema_version") != _SCHEMA_VERSION:
        return None
    if not all(isinstance(row.get(name), str) for name in (*_TEXTS, *texts)):
        return None
    if type(row.get("mono_ns")) is not int or type(row.get("attempt")) is not int:
        return None
    return row if abs(row["mono_ns"]) < 2**63 else None


def _event(run: RunRecord, row: Row, started: dict[str, Row]) -> None:
    now = row["mono_ns"]
    if not run.run_id:
        run.run_id, run.rig, run.ts = row["run_id"], row["rig"], row["ts"]
        run.start_ns = run.end_ns = now
    run.end_ns = max(run.end_ns, now)
    event = row["event"]
    if event == "run_finished":
        run.outcome = row["outcome"]
    elif event == "environment":
        run.environment |= _environment(row["message"])
    board = _board(run, row)
    if board is None:
        return
    if event == "board_started":
        board.start_ns = now
    elif event == "step_started":
        started[board.id] = row
    elif event in ("step_finished", "check_finished"):
        if event == "step_finished":
            started.pop(board.id, None)
        _interval(board, row, now, row["outcome"])
    elif event == "console":
        board.console.append((row["step"], row["check"], row["message"]))
    elif event == "board_finished":
        board.outcome, board.end_ns = row["outcome"], now


def _environment(text: str) -> dict[str, str]:
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return {str(k): str(v) for k, v in said.items()} if isinstance(said, dict) else {}


def _board(run: RunRecord, row: Row) -> BoardRecord | None:
    id = row["board_id"]
    if not id or (id not in run.boards and len(run.boards) >= _BOARDS_LIMIT):
        return None
    board = run.boards.setdefault(id, BoardRecord(id, start_ns=row["mono_ns"]))
    board.model, board.virtual = row["model"], row.get("virtual") is True
    board.port = row["port"] or board.port
    firmware = row.get("firmware")
    board.firmware = firmware if isinstance(firmware, str) and firmware else board.firmware
    board.fw_sha, board.client_sha = row["fw_sha"], row["client_sha"]
    board.end_ns = max(board.end_ns, row["mono_ns"])
    return board


def _interval(board: BoardRecord, row: Row, end_ns: int, outcome: str) -> None:
    duration_s = row.get("duration_s")
    start_ns = row["mono_ns"]
    if isinstance(duration_s, int | float) and 0 <= duration_s < 1e9:
        start_ns -= int(duration_s * 1e9)
    words = row["step"], row["check"], row["attempt"], outcome
    board.intervals.append(Interval(*words, start_ns, end_ns, row["message"]))


def _sample(run: RunRecord, row: Row) -> None:
    board = run.boards.get(row["board_id"])
    value = _number(row.get("value"))
    if board is None or value is None:
        return
    key = row["check"], row["metric"]
    series = board.series.get(key)
    if series is None or series.attempt < row["attempt"]:
        series = board.series[key] = Series(*key, row["unit"], row["attempt"])
    series.outcome = row["outcome"]
    limit = _number(row.get("limit"))
    series.low, series.high = (limit, None) if row.get("better") == "higher" else (None, limit)
    series.add(value, row["mono_ns"])


def _number(value: object) -> float | None:
    """Return a finite number, in whose differences and squares nothing overflows; else None."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e100 else None
