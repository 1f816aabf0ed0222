"""The page of a run in a real browser: it fits, it fetches nothing, and it shows what was said."""

import struct
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from boards.reports.history import all_runs, read_runs
from boards.reports.page import html_page
from boards.reports.record import read_run
from tests.boards.reports.browser import Browser, browser
from tests.boards.reports.made_run import MadeRun, passing_board

_HOSTILE = (
    "</pre></style><script>document.title='owned';console.log('owned')</script>"
    "<img src=x onerror=alert(1)>\"'><b onclick=x>" + "W" * 300
)
_PARTS = [
    *("failures", "matrix", "states", "times", "throughput", "wills", "heap", "comparison"),
    *("measurements", "console", "environment"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run that has everything, and texts that want to break it."""
    out = tmp_path_factory.mktemp("runs")
    for number in range(6):
        made = MadeRun(out, run_id=f"{number}")
        passing_board(made, "vpico-1", rtt_us=[1000 + number, 1100, 1200] * 20)
        made.end(13)
    made = MadeRun(out, run_id="9")
    made.environment(git="0123456789abcdef", command=_HOSTILE)
    passing_board(made, "vpico-1", rtt_us=[5000, 6000, 7000] * 20)
    made.samples("baseline", "baseline_rtt", "us", [300, 400, 500, 600, 700], 7)
    made.samples("burst", "rate", "msg/s", [80, 100, 130], 7)
    made.samples("will_silent", "will_delay", "ms", [2500], 8)
    made.samples("will_silent", "will_earliest", "ms", [2000], 8)
    made.samples("will_silent", "will_latest", "ms", [3500], 8)
    for number in range(5):
        made.samples("ping", "heap_free", "bytes", [150_000 - 500 * number], 6 + number)
    for number in range(8):
        made.board(f"board-with-a-long-name-{number}", virtual=False, model="RPI_PICO")
        made.event(1, event="board_started")
        made.step("flash", 1, 3, "error", message=f"{_HOSTILE} {number}")
        made.step("install", 4, 0, "error", message="not run: step flash failed")
        made.event(4, event="console", step="flash", message=_HOSTILE)
        made.event(4.5, event="board_finished", outcome="error", duration_s=3.5)
    made.end(13, "error")
    *former, run = read_runs(all_runs(out))
    file = out / "page.html"
    file.write_text(html_page(run, former), encoding="utf-8", errors="replace")
    return file


@pytest.mark.parametrize(
    ("width", "dark"), [(320, False), (380, False), (380, True), (1280, False), (1280, True)]
)
def test_it_fits_every_screen(
    chromium: Browser, page: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    chromium.open(page, width=width, dark=dark)
    chromium.ask("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert chromium.ask("document.documentElement.scrollWidth") <= width
    # Nothing but what scrolls in a frame of its own sticks out.
    sticking = """[...document.querySelectorAll('main *')].filter(one =>
        !one.closest('.scroll, pre, svg') && one.getBoundingClientRect().right > innerWidth + 1
    ).map(one => one.outerHTML.slice(0, 80))"""
    assert chromium.ask(sticking) == []
    png = chromium.screenshot(tmp_path / "page.png")
    shown_width, shown_height, colors = _looked_at(png)
    assert width - 20 <= shown_width <= width  # less the scroll bar of a desk
    assert shown_height > 2000
    assert colors > 50  # letters, charts and tags; an empty page has two
    assert chromium.complaints == []


def _looked_at(png: bytes) -> tuple[int, int, int]:
    """Return width, height, and how many different rows of pixels a PNG has, as a measure."""
    width, height = struct.unpack(">II", png[16:24])
    data, at = b"", 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += 12 + length
    rows = zlib.decompress(data)
    row = len(rows) // height
    return width, height, len({rows[start : start + row] for start in range(0, len(rows), row)})


def test_it_says_everything(chromium: Browser, page: Path) -> None:
    chromium.open(page, width=1280)
    parts = chromium.ask("[...document.querySelectorAll('section')].map(one => one.id)")
    assert parts == _PARTS
    assert "vpico-1\nvirtual rp2040" in chromium.ask("document.querySelector('#matrix').innerText")
    assert "vpico-1 (virtual)" in chromium.ask("document.querySelector('#states').innerText")
    assert "Their times say nothing about hardware" in chromium.ask("document.body.innerText")
    failures = chromium.ask("document.querySelector('#failures').innerText")
    assert failures.count("After that not run: install.") == 8
    assert "vpico-1" not in failures
    times = chromium.ask("document.querySelector('#times').innerText")
    assert times.count("ping: rtt") == 1
    assert "baseline: " not in times  # it has no chart of its own, but a dashed curve
    assert "vpico-1 (virtual), baseline" in times
    assert chromium.ask("document.querySelectorAll('#times polyline.dashed').length") == 2
    # A line is drawn, and as wide as its place.
    drawn = "document.querySelector('#times polyline[class^=c]')"
    assert chromium.ask(f"{drawn}.getBoundingClientRect().width") > 50
    assert "changed" not in chromium.ask("document.querySelector('#comparison').innerText")
    assert "unusual, once" in chromium.ask("document.querySelector('#comparison').innerText")
    assert "window 2 s to 3.5 s" in chromium.ask("document.querySelector('#wills').innerText")
    assert chromium.ask("document.querySelectorAll('#heap path.dot').length") == 5
    assert "130" not in chromium.ask("document.querySelector('#throughput .much').innerText")
    assert "100 msg/s" in chromium.ask("document.querySelector('#throughput .much').innerText")


def test_what_it_shows_is_never_understood(chromium: Browser, page: Path) -> None:
    chromium.open(page, width=1280)
    assert chromium.ask("document.title") == "Rig made: error"
    strangers = "document.querySelectorAll('script, img, link, iframe, object, [onclick]').length"
    assert chromium.ask(strangers) == 0
    chromium.ask("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert chromium.ask("document.querySelector('#console pre').innerText.split('W')[0]").endswith(
        _HOSTILE.split("W")[0]
    )
    assert chromium.complaints == []


def test_it_stands_alone(page: Path) -> None:
    found: list[tuple[str, str | None]] = []
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, attrs: found.extend([("", tag), *attrs])  # type: ignore[method-assign]
    reader.feed(page.read_text())
    names = {name for name, _ in found}
    assert {"class", "style", "title"} <= names
    assert not names & {"src", "href", "xlink:href", "action", "srcset", "data", "poster"}
    assert not any("url(" in (value or "") for name, value in found if name == "style")
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in found


def test_the_browser_reports_a_bad_page(chromium: Browser, tmp_path: Path) -> None:
    """The tests above can fail: a page that is too wide and has an error is found out."""
    bad = tmp_path / "bad.html"
    bad.write_text("<body><div style='width:2000px'>wide</div><script>throw Error('x')</script>")
    chromium.open(bad, width=380)
    assert chromium.ask("document.body.firstChild.getBoundingClientRect().right") > 381
    assert any("Error: x" in complaint for complaint in chromium.complaints)
    chromium.complaints.clear()


def test_a_long_name_leaves_room_for_what_is_said_of_it(chromium: Browser, tmp_path: Path) -> None:
    made = MadeRun(tmp_path)
    made.board("b" * 300, model="ESP32_GENERIC")
    made.event(1, event="board_started")
    file = tmp_path / "page.html"
    file.write_text(html_page(read_run(made.abort())))
    chromium.open(file, width=1280)
    widths = "[...document.querySelectorAll('dd')].map(one => one.getBoundingClientRect().width)"
    assert min(chromium.ask(widths)) > 500


def test_the_page_of_a_run_that_did_nothing(chromium: Browser, tmp_path: Path) -> None:
    folder = MadeRun(tmp_path).abort()
    file = tmp_path / "page.html"
    file.write_text(html_page(read_run(folder)))
    chromium.open(file, width=380)
    assert "The run has no end" in chromium.ask("document.body.innerText")
    parts = chromium.ask("[...document.querySelectorAll('section')].map(one => one.id)")
    assert parts == ["environment"]
