"""Runs of the rig in a folder (``http.rig``), for the dashboard: by the files that the rig writes.

The rig itself is not needed, and need not be installed: docs/rig-events.md says what is in the
files. Names come from the folder's own listing and never from a request, and no link is followed.
"""

import asyncio
import functools
import heapq
import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from aiohttp import web

from host_broker.net.http.mistake import mistake
from host_broker.net.http.principals import HttpAccess
from host_broker.net.live_settings import LiveSettings

MOST_RUNS = 100  # that are listed, the newest
MOST_ENTRIES = 10_000  # of a folder, the last by their names: days and runs are named by time
LONGEST_EVENTS_BYTES = 16 * 1024 * 1024  # of a run's events that are read, the first
LONGEST_LINE_BYTES = 1024 * 1024
MOST_BOARDS = 256  # of a run
MOST_REMEMBERED = 16  # runs whose events need not be read again while they are as they were
_CHUNK_BYTES = 256 * 1024  # of a report, that are read at once
LONGEST_TEXT = 500  # characters of what a file says
_LEVELS = ("date=", "rig=", "run=")
_EVENTS, _REPORT = "events.jsonl", "report.html"
_OUTCOMES = ("passed", "failed", "error", "skipped", "quarantined", "absent")
_TRIES = ("step_finished", "check_finished")
_PATH = "/dashboard/rig"
# A report has styles in itself, and no script. What somebody else wrote in its place runs in no
# origin at all: it can read nothing of the broker.
_REPORTS_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
_NOT_STORED = {"Cache-Control": "no-store"}


def routes(live: LiveSettings, access: HttpAccess) -> web.RouteTableDef:
    """Return the pages about runs of the rig, for who may subscribe to ``$/info/rig``."""
    table = web.RouteTableDef()

    @table.get(_PATH)
    async def listed(request: web.Request) -> web.StreamResponse:
        refusal = access.refusal(request, "subscribe", "$/info/rig")
        if refusal is not None:
            return refusal
        folder = live.http.rig
        found = await asyncio.to_thread(_listed, Path(folder)) if folder else None
        return web.json_response({"runs": found}, headers=_NOT_STORED)

    @table.get(_PATH + "/{date}/{rig}/{run}")
    async def run(request: web.Request) -> web.StreamResponse:
        refusal = access.refusal(request, "subscribe", "$/info/rig")
        if refusal is not None:
            return refusal
        found = await asyncio.to_thread(_summary, live.http.rig, *_names(request))
        if found is None:
            return mistake(404, "there is no such run")
        return web.json_response(found, headers=_NOT_STORED)

    @table.get(_PATH + "/{date}/{rig}/{run}/report", allow_head=False)  # it would have a body
    async def report(request: web.Request) -> web.StreamResponse:
        refusal = access.refusal(request, "subscribe", "$/info/rig")
        if refusal is not None:
            return refusal
        opened = await asyncio.to_thread(_report, live.http.rig, *_names(request))
        if opened is None:
            return mistake(404, "this run has no report, or there is no such run")
        headers = {"Content-Security-Policy": _REPORTS_POLICY, **_NOT_STORED}
        with opened:
            answer = web.StreamResponse(headers=headers)
            answer.content_type, answer.charset = "text/html", "utf-8"
            await answer.prepare(request)
            while chunk := await asyncio.to_thread(opened.read, _CHUNK_BYTES):
                await answer.write(chunk)
            await answer.write_eof()
        return answer

    return table


def _names(request: web.Request) -> tuple[str, str, str]:
    asked = request.match_info
    return asked["date"], asked["rig"], asked["run"]


def _listed(folder: Path) -> list[dict[str, Any]]:
    """Return the newest runs below the ``--out`` of ``motemq rig run``, each as ``_described`` says
    it: those of the last days."""
    runs: list[Path] = []
    for date in _folders(folder / "rig", _LEVELS[0]):
        found = [run for rig in _folders(date, _LEVELS[1]) for run in _folders(rig, _LEVELS[2])]
        runs += sorted(found, key=lambda path: path.name, reverse=True)
        if len(runs) >= MOST_RUNS:
            break
    return [_described(path) for path in runs[:MOST_RUNS]]


def _folders(folder: Path, beginning: str) -> list[Path]:
    """Return the folders in one whose names begin so, the last name first."""
    names = heapq.nlargest(MOST_ENTRIES, _names_in(folder, beginning))
    return [folder / name for name in names]


def _names_in(folder: Path, beginning: str) -> Iterator[str]:
    """Give the names of the folders in one, without links, that begin so; none if it cannot be
    read."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(beginning) and entry.is_dir(follow_symlinks=False):
                yield entry.name


def _find(folder: str, *names: str) -> Path | None:
    """Return the folder of the run of these names, None if there is none."""
    if not folder:
        return None
    path = Path(folder) / "rig"
    for beginning, name in zip(_LEVELS, names, strict=True):
        found = next((each for each in _names_in(path, beginning) if each == beginning + name), "")
        if not found:
            return None
        path /= found
    return path


def _described(run: Path) -> dict[str, Any]:
    """Return what the names of a run's folder and files say."""
    date, rig, name = (
        part.removeprefix(beginning)
        for part, beginning in zip(run.parts[-3:], _LEVELS, strict=True)
    )
    return {
        "date": _text(date),
        "rig": _text(rig),
        "run": _text(name),
        "changed": _changed_ms(run / _EVENTS),
        "report": _changed_ms(run / _REPORT) is not None,
    }


def _changed_ms(file: Path) -> int | None:
    try:
        found = file.stat(follow_symlinks=False)
    except OSError:
        return None
    return round(found.st_mtime * 1000) if stat.S_ISREG(found.st_mode) else None


def _opened(file: Path) -> BinaryIO | None:
    """Return a file that is no link, opened; None if there is none."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    opened = open(descriptor, "rb")  # noqa: SIM115 - it is the caller's
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return opened
    opened.close()
    return None


def _report(folder: str, *names: str) -> BinaryIO | None:
    run = _find(folder, *names)
    return None if run is None else _opened(run / _REPORT)


def _summary(folder: str, *names: str) -> dict[str, Any] | None:
    """Return what has become of a run and of each of its boards; None if there is no such run."""
    run = _find(folder, *names)
    if run is None:
        return None
    events = run / _EVENTS
    return {**_described(run), **_told(events, _version(events))}


def _version(file: Path) -> tuple[int, int, int] | None:
    """Return what is another when a file has become another or has more; None if there is none."""
    try:
        found = file.stat(follow_symlinks=False)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


@functools.lru_cache(MOST_REMEMBERED)
def _told(file: Path, version: tuple[int, int, int] | None) -> dict[str, Any]:
    """Return what events say of their run and its boards; nobody changes it.

    Pages ask again and again: what has not changed (``version``) is not read again.
    """
    opened = _opened(file)
    data = b""
    if opened is not None:
        with opened:
            data = opened.read(LONGEST_EVENTS_BYTES)
    told: dict[str, Any] = {
        "started": "",
        "finished": "",
        "outcome": "",
        "unreadable": 0,
        "more": len(data) == LONGEST_EVENTS_BYTES,
    }
    boards: dict[str, dict[str, Any]] = {}
    *lines, _ = data.split(b"\n")  # what has no end yet is being written
    for line in lines:
        event = _event(line)
        if event is None:
            told["unreadable"] += 1
        elif event["board_id"]:
            _count(event, boards)
        elif event["event"] == "run_started":
            told["started"] = event["ts"]
        elif event["event"] == "run_finished":
            told["finished"], told["outcome"] = event["ts"], event["outcome"]
    return {**told, "boards": list(boards.values())}


def _event(line: bytes) -> dict[str, Any] | None:
    """Return a line of events as texts that are not too long; None if it is none."""
    if len(line) > LONGEST_LINE_BYTES:
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("event"), str):
        return None
    names = ("event", "ts", "board_id", "model", "firmware", "step", "check", "outcome", "message")
    event: dict[str, Any] = {name: _text(found.get(name)) for name in names}
    return {**event, "virtual": found.get("virtual") is True}


def _text(said: object) -> str:
    """Return a text that can be written as UTF-8, cut where it is too long; "" for what is none."""
    if not isinstance(said, str):
        return ""
    return said[:LONGEST_TEXT].encode(errors="backslashreplace").decode()


def _count(event: dict[str, Any], boards: dict[str, dict[str, Any]]) -> None:
    """Add an event to what is known of its board."""
    name = event["board_id"]
    if name not in boards:
        if len(boards) >= MOST_BOARDS:
            return
        counts = dict.fromkeys(_OUTCOMES, 0)
        boards[name] = {"board": name, "outcome": "", "message": "", "checks": counts}
    board = boards[name]
    board |= {key: event[key] for key in ("model", "virtual", "step", "check")}
    board["firmware"] = event["firmware"] or board.get("firmware", "")
    if event["event"] == "board_finished":
        board["outcome"] = event["outcome"]
    if event["event"] == "check_finished" and event["outcome"] in _OUTCOMES:
        board["checks"][event["outcome"]] += 1
    if event["event"] in _TRIES and event["outcome"] in ("failed", "error"):
        board["message"] = event["message"]
