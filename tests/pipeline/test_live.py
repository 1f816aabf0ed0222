"""The live page: what it shows is what is in the tables, and it goes on as readings come."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aiohttp.test_utils import TestClient, TestServer
from click.testing import CliRunner

from host_broker.printable import printable_lines
from motemq_pipeline.cli import command
from motemq_pipeline.delta import Table
from motemq_pipeline.live.figure import figure
from motemq_pipeline.live.series import MOST_SENSORS, POINTS, ends, excerpt
from motemq_pipeline.live.site import application
from motemq_pipeline.parquet_files import Target, written_by
from motemq_pipeline.schemas import TABLES, arrow_schema
from motemq_pipeline.storage import Storage
from tests.boards.reports.browser import browser

_END_S = 120.0
_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_HOUR = timedelta(hours=1)
_ODD = "<img src=x onerror=document.title='owned'>"


class _Tables:
    """Tables of a folder, into which rows come without Spark."""

    def __init__(self, folder: Path) -> None:
        self.place = Storage.at(folder)
        self._batch = 0
        for name in TABLES:
            Table(self.place, name).create()

    def add(self, name: str, rows: list[dict[str, Any]]) -> None:
        schema = arrow_schema(name)
        whole = [{**dict.fromkeys(schema.names), **row} for row in rows]
        batch = pa.RecordBatch.from_pylist(whole, schema=schema)
        files = written_by(self.place, Target(name), iter([batch]))
        self._batch += 1
        assert Table(self.place, name).add(files, "test", self._batch)

    def readings(self, board: str, sensor: str, values: dict[datetime, float], **more: Any) -> None:
        row = {"board": board, "sensor": sensor, "unit": "C", **more}
        self.add(
            "silver_telemetry", [{**row, "event_time": a, "value": v} for a, v in values.items()]
        )
        if not more:
            self.windows("gold_rollup_hour", board, sensor, sorted({_whole(at) for at in values}))

    def windows(self, table: str, board: str, sensor: str, starts: list[datetime]) -> None:
        row = {"board": board, "sensor": sensor, "unit": "C", "count": 2, "mean": 1.0, "min": 0.0}
        self.add(table, [{**row, "max": float(at.hour), "window_start": at} for at in starts])


def _whole(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


@pytest.fixture
def tables(tmp_path: Path) -> _Tables:
    return _Tables(tmp_path / "tables")


def test_many_readings_are_as_many_points_as_a_plot_can_show(tables: _Tables) -> None:
    values = {_NOON + timedelta(milliseconds=360 * n): float(n % 977) for n in range(10_000)}
    tables.readings("a", "t", values)
    tables.readings("b", "t", {_NOON: -5.0})
    tables.readings("a", "t", {_NOON - timedelta(seconds=1): -7.0, _NOON + _HOUR: -9.0})
    tables.readings("a", "end", {_NOON: 1e9}, last=True)
    shown = excerpt(tables.place, "a", _NOON, _NOON + _HOUR)
    (one,) = shown.series
    assert (shown.table, shown.whole, one.sensor, one.unit) == ("silver_telemetry", True, "t", "C")
    assert len(one.at) == POINTS
    assert one.at == sorted(one.at)
    assert (min(one.low), max(one.high)) == (0.0, 976.0)
    for at, mean, low, high in zip(one.at[:20], one.mean, one.low, one.high, strict=False):
        near = [v for t, v in values.items() if abs(t - at) <= _HOUR / POINTS / 2]
        assert (low, high) == (min(near), max(near))
        assert mean == pytest.approx(sum(near) / len(near))


def test_a_single_reading_is_shown_where_it_was(tables: _Tables) -> None:
    at = _NOON + timedelta(minutes=7, microseconds=123_456)
    tables.readings("a", "t", {at: 21.5})
    (one,) = excerpt(tables.place, "a", _NOON, _NOON + _HOUR).series
    assert (one.at, one.mean, one.low, one.high) == ([at], [21.5], [21.5], [21.5])


@pytest.mark.parametrize(
    ("days", "table", "window"),
    [(1, "gold_rollup_minute", timedelta(minutes=1)), (60, "gold_rollup_hour", _HOUR)],
)
def test_long_spans_are_read_from_roll_ups(
    tables: _Tables, days: int, table: str, window: timedelta
) -> None:
    starts = [_NOON + n * window for n in range(5000)]
    tables.windows(table, "a", "t", starts)
    shown = excerpt(tables.place, "a", _NOON, _NOON + timedelta(days=days))
    (one,) = shown.series
    assert shown.table == table
    assert POINTS / 2 < len(one.at) <= POINTS
    seen = [at for at in starts if at < shown.until]
    assert max(one.high) == max(at.hour for at in seen)
    assert one.mean == [1.0] * len(one.at)
    assert one.at[0] > _NOON
    assert one.at[-1] < shown.until


def test_alerts_of_the_time_and_no_more_sensors_than_fit(tables: _Tables) -> None:
    for number in range(MOST_SENSORS + 1):
        tables.readings("a", f"s{number:02d}", {_NOON: 1.0})
    raised = [
        *(("before", -4, -3), ("into", -1, 0.5), ("within", 0.2, 0.3), ("open", 0.4, None)),
        ("late", 0.95, None),
        ("after", 2, None),
    ]
    for key, (kind, begin, end) in enumerate(raised):
        row = {"alert": f"a:{key}", "kind": kind, "board": "a", "sensor": "s00", "message": kind}
        row["raised_at"] = _NOON + begin * _HOUR
        cleared = [{**row, "cleared_at": _NOON + end * _HOUR, "message": "over"}] if end else []
        tables.add("alerts", [row, *cleared])
    shown = excerpt(tables.place, "a", _NOON, _NOON + _HOUR)
    assert (len(shown.series), shown.whole) == (MOST_SENSORS, False)
    assert [(each.kind, each.message, each.cleared_at is None) for each in shown.alerts] == [
        *(("late", "late", True), ("open", "open", True)),
        *(("within", "within", False), ("into", "into", False)),
    ]
    drawn = figure(shown)
    assert len(drawn.data) == 3 * MOST_SENSORS
    assert len(drawn.layout.shapes) == 4
    # Beside its time; at the end of a plot before it, where it is not cut off.
    names = {one.text: one for one in drawn.layout.annotations}
    assert [names[kind].xanchor for kind in ("late", "open", "into")] == ["right", "left", "left"]
    assert names["open"].hovertext == "open"


def _asked(tables: _Tables, *paths: str, **headers: str) -> list[tuple[int, Any]]:
    async def ask() -> list[tuple[int, Any]]:
        server = TestServer(application(tables.place, loopback=True))
        async with TestClient(server) as client:
            found = []
            for path in paths:
                answer = await client.get(path, headers=headers)
                is_json = answer.content_type == "application/json"
                found.append((answer.status, await (answer.json() if is_json else answer.text())))
            return found

    return asyncio.run(ask())


def test_what_the_page_asks_for(tables: _Tables) -> None:
    tables.readings("a", "t", {_NOON + timedelta(minutes=n): float(n) for n in range(90)})
    said = "2026-01-01T12:00:00Z"
    board, drawn, empty, script = _asked(
        tables,
        "/boards",
        f"/figure?board=a&since={said}&until=2026-01-01T14:00:00Z&dark=1",
        f"/figure?board=nobody&until={said}&span=60",
        "/plotly.js",
    )
    assert board == (200, [["a", "2026-01-01T12:00:00+00:00", "2026-01-01T14:00:00+00:00"]])
    assert drawn[0] == 200
    assert (drawn[1]["points"], drawn[1]["table"]) == (90, "silver_telemetry")
    assert len(drawn[1]["figure"]["data"]) == 3
    assert (empty[0], empty[1]["points"]) == (200, 0)
    assert script[0] == 200
    assert len(script[1]) > 1_000_000


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("span=60", "board=NAME is missing"),
        ("board=a", "give since=TIME, or span=SECONDS, or span=all"),
        ("board=a&span=-1", "span must be a number of seconds up to"),
        ("board=a&span=nan", "span must be a number of seconds up to"),
        ("board=a&span=x", "span must be a number of seconds up to"),
        ("board=a&since=noon", "since must be a time such as"),
        ("board=a&since=2026-01-02&until=2026-01-01", "since must be before until"),
        ("board=a&since=0001-01-01&until=2026-01-01", "since must be before until"),
        ("board=a&until=0001-01-01&span=3600", "out of range"),
    ],
)
def test_what_cannot_be_asked_is_told(tables: _Tables, asked: str, told: str) -> None:
    ((status, said),) = _asked(tables, f"/figure?{asked}")
    assert status == 400
    assert told in said["error"]


def test_all_there_is(tables: _Tables) -> None:
    first, last = _NOON + timedelta(minutes=10), _NOON + timedelta(hours=5, minutes=50)
    tables.readings("a", "t", dict.fromkeys((first, _NOON + 2 * _HOUR, last), 1.0))
    begin, end = ends(tables.place, "a") or (last, first)
    assert begin == first
    assert last < end < last + timedelta(seconds=1)
    some, none = _asked(tables, "/figure?board=a&span=all", "/figure?board=b&span=all")
    assert (some[0], some[1]["points"]) == (200, 3)
    assert (none[0], none[1]["points"]) == (200, 0)
    # Readings are kept for a shorter time than roll-ups.
    tables.windows("gold_rollup_hour", "a", "t", [_NOON - timedelta(days=400)])
    assert ends(tables.place, "a") == (_NOON - timedelta(days=400), _NOON + 6 * _HOUR)
    assert ends(tables.place, "b") is None


def test_quotes_ask_nothing_else(tables: _Tables) -> None:
    tables.readings("a", "t", {_NOON: 1.0})
    asked = "/figure?span=31536000&until=2026-06-01&board=x'%20or%20'1'='1"
    ((status, said),) = _asked(tables, asked)
    assert (status, said["points"]) == (200, 0)


def test_a_page_from_elsewhere_gets_nothing(tables: _Tables) -> None:
    for host, status in (("evil.example:80", 403), ("localhost:1", 200), ("[::1]", 200)):
        assert _asked(tables, "/boards", Host=host)[0][0] == status, host


def test_tables_that_are_not_there_are_told(tmp_path: Path) -> None:
    tables = _Tables.__new__(_Tables)
    tables.place = Storage.at(tmp_path / "nothing")
    ((status, said),) = _asked(tables, "/boards")
    assert status == 503
    assert "there is no table gold_rollup_hour" in said["error"]


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--listen", "here"], 2, "write it as 127.0.0.1:8770, not here"),
        (["--listen", "127.0.0.1:70000"], 2, "write it as"),
        (["--listen", "0.0.0.0:0"], 2, "add --insecure-bind"),
        (["--listen", "192.0.2.1:0", "--insecure-bind"], 3, "cannot listen at 192.0.2.1:0: "),
    ],
)
def test_where_it_cannot_listen(tmp_path: Path, options: list[str], code: int, told: str) -> None:
    done = CliRunner().invoke(command, ["live", "--tables", str(tmp_path), *options])
    assert done.exit_code == code
    assert told in done.output


@pytest.fixture
def address(tables: _Tables) -> Iterator[str]:
    """The command, as a process; it ends in order."""
    argv = [sys.executable, "-m", "motemq", "pipeline", "live", "--tables", tables.place.uri]
    with subprocess.Popen(
        [*argv, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().removeprefix("pipeline: ").strip()
            process.send_signal(signal.SIGINT)
            assert process.wait(_END_S) == 0
        finally:
            process.kill()


def test_a_browser_sees_readings_as_they_come(tables: _Tables, address: str) -> None:
    now = datetime.now(UTC)
    minute = timedelta(minutes=1)
    tables.readings(_ODD, _ODD, {now - n * minute: float(n) for n in range(1, 21)})
    with browser() as page:
        page.open(f"{address}#board=nobody&span=long-ago", width=900)

        def until(expression: str, wanted: Any) -> None:
            deadline = time.monotonic() + _END_S
            while (found := page.ask(expression)) != wanted:
                assert time.monotonic() < deadline, (found, page.ask("document.body.innerText"))
                time.sleep(0.1)

        def choose(**values: str) -> None:
            for name, value in values.items():
                page.ask(f"document.getElementById({name!r}).value = {value!r}")
            page.ask("document.getElementById('asked').dispatchEvent(new Event('change'))")

        # The board that was asked for is not another; a time that there is not is the usual one.
        said = "document.getElementById('said').innerText"
        until(said, "nobody has no readings in these tables.")
        assert page.ask("document.getElementById('span').value") == "3600"
        # A week is read from roll-ups, which are not there.
        choose(board=_ODD, span="604800")
        until(f"{said}.includes('has no readings in this time; there are some from 20')", True)
        choose(span="3600")
        drawn = "document.querySelectorAll('.scatterlayer .trace .point').length"
        until(drawn, 20)
        tables.readings(_ODD, _ODD, {now: 5.0})
        until(drawn, 21)
        assert page.ask("document.getElementById('board').value") == _ODD
        assert page.ask("document.querySelector('.gtitle, .annotation-text').textContent") == (
            f"{_ODD}, C"
        )
        assert page.ask("document.title") == "MoteMQ, live"
        assert page.ask("location.hash").endswith("span=3600")
        # All there is, to begin with.
        choose(span="between")
        until(drawn, 21)
        assert page.ask("location.hash").partition("&since=")[2].count("%3A00") >= 2
        assert page.complaints == []


def test_no_name_hides_or_widens_the_page(tables: _Tables, address: str) -> None:
    names = sorted(["b" * 300, "\u202egnp.exe", "line\nbreak\x1b[2J"])
    for name in names:
        tables.readings(name, "t", {datetime.now(UTC): 1.0})
    with browser() as page:
        page.open(address, width=380)
        shown = "[...document.querySelectorAll('#board option')].map(one => one.textContent)"
        deadline = time.monotonic() + _END_S
        while not (found := page.ask(shown)):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert sorted(found) == sorted(map(printable_lines, names))
        values = "[...document.querySelectorAll('#board option')].map(one => one.value)"
        assert sorted(page.ask(values)) == names
        assert page.ask("document.documentElement.scrollWidth") <= 380
        assert page.complaints == []
