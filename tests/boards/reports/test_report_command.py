"""``motemq rig report`` as a process."""

from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.boards.desk_files import motemq_rig
from tests.boards.reports.made_run import MadeRun, passing_board


@pytest.fixture
def out(tmp_path: Path) -> Path:
    for id, rtt_us in (("1", 1000), ("2", 2000), ("3", 4000)):
        made = MadeRun(tmp_path / "out", run_id=id)
        passing_board(made, "vpico-1", rtt_us=[rtt_us] * 3)
        made.end(13)
    return tmp_path / "out"


def test_the_last_run_is_compared_with_those_before(tmp_path: Path, out: Path) -> None:
    file = tmp_path / "page.html"
    done = motemq_rig("report", out, "--html", file)
    assert done.returncode == 0, done.stdout
    assert done.stdout == ""
    text = file.read_text()
    assert "Against the last 2 runs" in text
    assert "1.5 ms ± 500 µs (n 2)" in text
    done = motemq_rig("report", out, "--html", file, "--last", "1")
    assert done.returncode == 0, done.stdout
    assert "Two runs prove no change" in file.read_text()
    assert "2 ms (n 1)" in file.read_text()


def test_two_runs_are_compared_in_the_order_in_which_they_are_named(
    tmp_path: Path, out: Path
) -> None:
    first, second, _ = sorted((out / "rig").glob("*/*/run=*"))
    file = tmp_path / "page.html"
    done = motemq_rig("report", "--compare", second, first, "--html", file)
    assert done.returncode == 0, done.stdout
    assert "-50 %" in file.read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["OUT", "--compare", "OUT", "OUT"], "name one RUN"),
        (["--compare", "OUT", "OUT"], "--compare goes with --html FILE"),
        (["OUT/rig", "--html", "x.html"], "neither a run's folder nor the --out of one"),
        (["OUT", "--html", "x.html", "--last", "-1"], "Invalid value for '--last'"),
    ],
)
def test_wrong_words_are_usage_errors(out: Path, arguments: list[str], complaint: str) -> None:
    done = motemq_rig("report", *(word.replace("OUT", str(out)) for word in arguments))
    assert done.returncode == 2
    assert complaint in done.stdout


def test_without_a_word_it_is_the_last_run_of_this_folder(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "out").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    none = motemq_rig("report")
    assert none.returncode == 2
    assert "out/rig: neither a run's folder nor the --out of one" in none.stdout
    Path("out/rig").symlink_to(out)
    assert motemq_rig("report").stdout == motemq_rig("report", out).stdout


@pytest.mark.parametrize("arguments", [[], ["--html", "PAGE"]])
def test_a_page_is_shown_in_a_browser(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/shown\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    page = str(tmp_path / "page.html")
    words = [word.replace("PAGE", page) for word in arguments]
    done = motemq_rig("report", out, "--open", *words)
    assert done.returncode == 0, done.stdout
    assert done.stdout == ""
    shown = Path(unquote((tmp_path / "shown").read_text()).removeprefix("file://"))
    assert shown == Path(page) if arguments else shown.name == "report.html"
    assert "<title>Rig made: passed</title>" in shown.read_text()


def test_without_a_browser_the_page_is_named(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "/nowhere/browser %s")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("DISPLAY", raising=False)
    done = motemq_rig("report", out, "--open")
    assert done.returncode == 3
    assert "no browser could be started; the page is " in done.stdout


def test_a_page_that_cannot_be_written_is_a_fault(out: Path) -> None:
    done = motemq_rig("report", out, "--html", out / "no" / "page.html")
    assert done.returncode == 3
    assert "rig: error: " in done.stdout
    assert "Traceback" not in done.stdout
