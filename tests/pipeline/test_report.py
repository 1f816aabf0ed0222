"""The report says what the tables hold, and refers to nothing outside itself."""

import math
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

from motemq_pipeline.report import charts, write_report
from motemq_pipeline.report.page import _duration
from tests.pipeline.conftest import Tables
from tests.pipeline.desk import MESSAGES, NO_WILL, ODD_BOARD


class _Page(HTMLParser):
    """Texts of table rows by the id of their section; and every attribute that refers."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[list[str]]] = {}
        self.references: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self._section = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        told = dict(attrs)
        if tag == "section":
            self._section = told.get("id") or ""
        if tag == "tr":
            self.rows.setdefault(self._section, []).append([])
        if tag in ("td", "th") and self.rows.get(self._section):
            self.rows[self._section][-1].append("")
        refers = ("href", "xlink:href", "src", "srcset", "data", "action")
        self.references += [told[name] or "" for name in refers if name in told]

    def handle_data(self, data: str) -> None:
        self.text += data
        rows = self.rows.get(self._section)
        if rows and rows[-1]:
            rows[-1][-1] = " ".join(f"{rows[-1][-1]} {data}".split())


@pytest.fixture(scope="module")
def html(desk: Tables, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("report") / "new" / "report.html"
    write_report(desk.place, out)
    return out.read_text()


@pytest.fixture(scope="module")
def page(html: str) -> _Page:
    parser = _Page()
    parser.feed(html)
    return parser


def test_title_tells_the_latest_run_and_that_it_was_virtual(page: _Page) -> None:
    assert "MoteMQ run run-2" in page.text
    assert "virtual boards" in page.text
    assert "2026-01-01 00:02:00 UTC, 12.5 s" in page.text


def test_the_matrix_shows_outcomes_and_percentiles(page: _Page) -> None:
    assert page.rows["checks"] == [
        ["Board", "ping", "will_abrupt"],
        ["vpico-1 virtual", "passed p50 505 µs p90 901 µs p99 990 µs", "passed will delay 104 ms"],
        ["vpico-2 virtual", "passed attempt 2 p50 3 ms p90 3.8 ms p99 3.98 ms", "failed"],
    ]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (850.4, "us", "850 µs"),
        (2.3456, "ms", "2.35 ms"),
        (1.2, "s", "1.2 s"),
        (1_168_123.4, "bytes/s", "1\u202f168\u202f123 bytes/s"),  # not 1.168e+06
        (201_632.0, "bytes", "201\u202f632 bytes"),
        (2.5, "count", "2.5 count"),
        (None, "ms", "\u2013"),
    ],
)
def test_what_was_measured_is_for_people(value: float | None, unit: str, text: str) -> None:
    assert _duration(value, unit) == text


def test_failures_are_listed_with_their_reasons(page: _Page) -> None:
    assert page.rows["failures"][1:] == [
        ["vpico-2", "ping", "failed", "3 of 4 lost"],
        ["vpico-2", "will_abrupt", "failed", NO_WILL],
    ]


def test_health_shows_gaps_and_duplicates(page: _Page) -> None:
    shown = {row[0]: row[1:6] for row in page.rows["health"]}
    assert shown["vpico-1"] == ["fmqp", "60", "2", "1", "yes"]
    assert shown["vpico-2"] == ["lightmq", "61", "0", "0", "yes"]
    assert shown[ODD_BOARD] == ["fmqp", "3", "0", "0", "no end message"]


def test_health_shows_the_day_on_which_a_board_was_heard(page: _Page) -> None:
    """A board may be silent for weeks."""
    for row in page.rows["health"][1:]:
        for time in row[-2:]:
            assert re.fullmatch(r"2026-01-01 00:\d\d:\d\d", time)


def test_tables_are_counted(page: _Page, desk: Tables) -> None:
    counted = {row[0]: row[1] for row in page.rows["tables"][1:]}
    assert counted["bronze_messages"] == str(MESSAGES)
    assert counted == {
        **{written.table: str(written.rows) for written in desk.progress},
        "alerts": "0",
    }


def test_three_sensors_and_the_round_trips_are_drawn(page: _Page) -> None:
    assert page.tags.count("svg") == 4
    for text in ("temperature, C", "humidity, %", "pressure, hPa", "round trip, ms"):
        assert text in page.text


def test_it_refers_to_nothing_outside_itself(html: str, page: _Page) -> None:
    assert [reference for reference in page.references if not reference.startswith("#")] == []
    assert re.findall(r"@import|url\((?!#)|<link|<script|<iframe", html) == []
    # What is left of the web's addresses are the names of XML namespaces.
    rest = re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    assert re.findall(r"https?://[^\s\"'<]*", rest) == []


def test_what_data_says_is_never_markup(html: str, page: _Page) -> None:
    assert NO_WILL not in html
    assert NO_WILL in page.text
    assert "<i>" not in html
    assert page.text.count(ODD_BOARD) >= 4  # health, and the legends of three sensors


@pytest.mark.parametrize("odd", [1e308, -1e308, math.inf, math.nan])
def test_values_that_no_axis_can_have_are_left_out_of_a_figure(odd: float) -> None:
    at = datetime(2026, 1, 31, tzinfo=UTC)
    values = [20.0, odd, -odd, 21.0]
    of_north = {"sensor": "air", "unit": "C", "board": "north"}
    readings = [
        {**of_north, "value": value, "event_time": at + timedelta(seconds=number)}
        for number, value in enumerate(values)
    ]
    windows = [
        {**of_north, "mean": value, "min": value, "max": value, "window_start_ms": number * 1000}
        for number, value in enumerate(values)
    ]
    for figures in (charts.latest(readings), charts.telemetry(windows)):
        assert [">north<" in figure for figure in figures] == [True]


@pytest.mark.parametrize(
    "names",
    [
        ["室温-1", "🌡 north"],
        ["x" * 200],
        [f"greenhouse/building-3/north-wing/bench-{number:04}" for number in range(8)],
        [f"esp32-a1b2c3d4e5f{number:x}" for number in range(8)],
    ],
    ids=["letters that no font here has", "long", "long, and alike", "as boards are often called"],
)
def test_a_figure_has_room_and_letters_for_any_name(names: list[str]) -> None:
    """A warning of Matplotlib, which is an error here, would be on the terminal, in its words."""
    at = datetime(2026, 1, 31, tzinfo=UTC)
    readings = [
        {"sensor": name, "unit": "", "board": board, "value": 1.0 * number, "event_time": at}
        for number, board in enumerate(names)
        for name in (names[0], "temperature")
    ]
    windows = [
        {**row, "mean": 1.0, "min": 0.0, "max": 2.0, "window_start_ms": 0} for row in readings
    ]
    figures = [*charts.latest(readings), *charts.telemetry(windows)]
    figures.append(charts.round_trips({name: [1000.0, 2000.0] for name in names}))
    for figure in figures:
        assert figure is not None
        shown = re.findall(r">([^<>]+)</text>", figure)
        assert max(map(len, shown)) <= 40
        boards = {text for text in shown if text[:5] in {name[:5] for name in names}}
        assert len(boards) >= len(names)  # each by a name of its own
