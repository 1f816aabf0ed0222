"""Runs of the rig by HTTP: what their files say, and that no name leads out of their folder."""

import http.client
import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from host_broker.net.http import rig
from tests.boards.reports.made_run import MadeRun, passing_board
from tests.host_broker.net.broker_process import broker
from tests.hostile_names import HOSTILE

_SECRET = "of somebody else"


def _get(port: int, path: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.putrequest("GET", path)  # as it is: no client makes it harmless
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def _said(port: int, path: str) -> Any:
    status, headers, body = _get(port, path)
    assert status == 200, body
    assert headers["Cache-Control"] == "no-store"
    return json.loads(body)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A folder, and the port of a broker that shows the runs in it."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "secret").write_text(_SECRET)
    out = folder / "out"
    out.mkdir()
    with broker("--listen", "auto://127.0.0.1:0", "--set", f"http.rig={out}") as running:
        yield out, running.ports["auto"]


@pytest.fixture
def out(served: tuple[Path, int]) -> Path:
    """The folder, without runs."""
    shutil.rmtree(served[0] / "rig", ignore_errors=True)
    return served[0]


@pytest.fixture
def port(served: tuple[Path, int]) -> int:
    return served[1]


def _path(run: dict[str, Any]) -> str:
    return f"/dashboard/rig/{run['date']}/{run['rig']}/{run['run']}"


def test_runs_are_listed_and_told(out: Path, port: int) -> None:
    assert _said(port, "/dashboard/rig") == {"runs": []}
    over = MadeRun(out, run_id="1")
    passing_board(over, "vpico-1", rtt_us=[1000])
    over.end(13)
    begun = MadeRun(out, run_id="2")
    begun.board("vesp-1")
    begun.event(1, event="board_started")
    begun.step("flash", 1, 3, "error", message="no such port")
    begun.event(4, event="step_started", step="install")
    begun.abort()
    (over.folder / "report.html").write_text("<!doctype html><title>run 1</title>")

    newest, oldest = _said(port, "/dashboard/rig")["runs"]
    assert (newest["run"], newest["report"]) == ("2", False)
    assert (oldest["run"], oldest["report"]) == ("1", True)
    told = _said(port, _path(oldest))
    assert told["outcome"] == "passed"
    (board,) = told["boards"]
    assert (board["board"], board["outcome"]) == ("vpico-1", "passed")
    assert board["checks"]["passed"] >= 1
    now = _said(port, _path(newest))
    assert (now["outcome"], now["finished"]) == ("", "")
    (board,) = now["boards"]
    assert (board["outcome"], board["step"], board["message"]) == ("", "install", "no such port")
    status, headers, page = _get(port, _path(oldest) + "/report")
    assert (status, page) == (200, b"<!doctype html><title>run 1</title>")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    # What is in it runs no script, and is of no origin.
    policy = headers["Content-Security-Policy"]
    assert "script-src" not in policy and "default-src 'none'" in policy and "sandbox" in policy
    assert _get(port, _path(newest) + "/report")[0] == 404


def test_without_a_folder_there_are_no_runs() -> None:
    with broker("--listen", "auto://127.0.0.1:0") as running:
        assert _said(running.ports["auto"], "/dashboard/rig") == {"runs": None}
        assert _get(running.ports["auto"], "/dashboard/rig/a/b/c")[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "../../secret/x/report",
        "..%2f..%2fsecret/x/y",
        "%2e%2e/%2e%2e/secret/report",
        "2026-11-26/%2e%2e/1/report",
        "2026-11-26%2frig=lab/x/1/report",
        "2026-11-26/lab/1%00/report",
        "2026-11-26/lab/%2e/report",
        "2026-11-26/lab/..%5c..%5csecret/report",
        "%ff%fe/lab/1/report",
        "2026-11-26/lab/1/events.jsonl",
        "//etc/passwd/report",
    ],
)
def test_no_name_leads_out_of_the_folder(out: Path, port: int, path: str) -> None:
    MadeRun(out, run_id="1").end(13)
    status, _, body = _get(port, f"/dashboard/rig/{path}")
    assert status in (400, 404)
    assert _SECRET.encode() not in body


def test_no_link_is_followed(out: Path, port: int, tmp_path: Path) -> None:
    made = MadeRun(out, run_id="1")
    made.end(13)
    (made.folder / "report.html").symlink_to(out.parent / "secret")
    elsewhere = tmp_path / "elsewhere"
    MadeRun(elsewhere, run_id="7").end(13)
    (date,) = (elsewhere / "rig").iterdir()
    (out / "rig" / "date=2001-01-01").symlink_to(date)
    pipe = MadeRun(out, run_id="2").abort()
    (pipe / "events.jsonl").unlink()
    os.mkfifo(pipe / "events.jsonl")  # whoever opened it would wait for a writer
    runs = _said(port, "/dashboard/rig")["runs"]
    assert [run["run"] for run in runs] == ["2", "1"]
    assert [run["report"] for run in runs] == [False, False]
    assert _get(port, _path(runs[1]) + "/report")[0] == 404
    assert _said(port, _path(runs[0]))["boards"] == []


def test_whatever_a_file_says_is_text_of_a_length(out: Path, port: int) -> None:
    made = MadeRun(out, run_id="1")
    for number, text in enumerate(HOSTILE):
        made.board(f"{number} {text}")
        made.event(1, event="check_finished", check=text, outcome="failed", message=text * 100)
    file = made.abort() / "events.jsonl"
    rubbish = (b"{", b"[]", b"1", b"[" * 100_000, b'{"event": 1}', b"\xff\xfe", b'"\\ud800"')
    with file.open("ab") as events:
        events.writelines(line + b"\n" for line in rubbish)
        events.write(b'{"event": "check_finished", "board_id": "\\ud800", "message": 7}\n')
        events.write(b'{"event": "unfin')
    (run,) = _said(port, "/dashboard/rig")["runs"]
    told = _said(port, _path(run))
    assert told["unreadable"] == len(rubbish)
    assert [board["board"] for board in told["boards"]] == [
        *(f"{number} {text}" for number, text in enumerate(HOSTILE)),
        "\\ud800",
    ]
    assert all(len(board["message"]) <= rig.LONGEST_TEXT for board in told["boards"])


def test_every_limit_is_kept(out: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST_RUNS", 2), ("MOST_BOARDS", 3)):
        monkeypatch.setattr(rig, name, most)
    for number in range(4):
        made = MadeRun(out, run_id=str(number))
        for board in range(5):
            made.board(f"board-{board}")
            made.event(1, event="board_started")
        made.abort()
    listed = rig._listed(out)
    assert [run["run"] for run in listed] == ["3", "2"]
    names = [listed[0][each] for each in ("date", "rig", "run")]
    told = rig._summary(str(out), *names)
    assert told is not None and len(told["boards"]) == 3
    events = (made.folder / "events.jsonl").read_bytes()
    monkeypatch.setattr(rig, "LONGEST_EVENTS_BYTES", len(events) // 2)
    rig._told.cache_clear()  # what was read by another limit
    cut = rig._summary(str(out), *names)
    assert cut is not None and cut["more"] is True
    monkeypatch.setattr(rig, "LONGEST_LINE_BYTES", 10)
    rig._told.cache_clear()
    unread = rig._summary(str(out), *names)
    assert unread is not None and unread["unreadable"] > 0 and unread["boards"] == []
    monkeypatch.setattr(rig, "MOST_ENTRIES", 1)
    assert [run["run"] for run in rig._listed(out)] == ["3"]
    rig._told.cache_clear()  # these had limits of the test


def test_the_newest_of_very_many_runs_are_listed(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whichever order the folder has them."""
    monkeypatch.setattr(rig, "MOST_ENTRIES", 20)
    monkeypatch.setattr(rig, "MOST_RUNS", 5)
    for date, runs in (("2026-11-24", range(3)), ("2026-11-25", range(100)), ("2026-11-26", (7,))):
        for run in runs:
            (out / "rig" / f"date={date}" / "rig=lab" / f"run={run:03}").mkdir(parents=True)
    found = [(run["date"][-2:], run["run"]) for run in rig._listed(out)]
    assert found == [("26", "007"), *(("25", f"{run:03}") for run in (99, 98, 97, 96))]
    names = ("2026-11-25", "lab", "000")
    assert rig._find(str(out), *names) is not None  # a link to one that is not listed


def test_a_long_report_is_whole(out: Path, port: int) -> None:
    made = MadeRun(out, run_id="1")
    folder = made.end(13)
    with (folder / "report.html").open("wb") as report:
        report.truncate(80 * 1024 * 1024)
        report.seek(0, os.SEEK_END)
        report.write(b"</html>")
    (run,) = _said(port, "/dashboard/rig")["runs"]
    status, _, body = _get(port, _path(run) + "/report")
    assert (status, len(body)) == (200, 80 * 1024 * 1024 + 7)
    assert body.endswith(b"</html>")


def test_no_answer_to_head_has_a_body(out: Path, port: int) -> None:
    """A client that keeps its connection would take it for the next answer."""
    folder = MadeRun(out, run_id="1").end(13)
    (folder / "report.html").write_bytes(b"a report")
    (run,) = _said(port, "/dashboard/rig")["runs"]
    asked = f"HEAD {_path(run)}/report HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
        peer.sendall(asked.encode())
        answer = b"".join(iter(lambda: peer.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 ")
    assert answer.endswith(b"\r\n\r\n")


def test_so_many_runs_are_remembered(out: Path) -> None:
    for number in range(rig.MOST_REMEMBERED + 2):
        MadeRun(out, run_id=f"{number:02}").abort()
    for run in rig._listed(out):
        assert rig._summary(str(out), *(run[each] for each in ("date", "rig", "run"))) is not None
    assert rig._told.cache_info().currsize == rig.MOST_REMEMBERED


def test_events_that_are_as_they_were_are_not_read_again(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page that is open asks for a run every few seconds."""
    run = MadeRun(out, run_id="1")
    passing_board(run, "vpico-1", rtt_us=[1000])
    run.end(13)
    (events,) = out.glob("rig/*/*/*/events.jsonl")
    names = [part.partition("=")[2] for part in events.parts[-4:-1]]
    read: list[Path] = []
    open_file = rig._opened
    monkeypatch.setattr(rig, "_opened", lambda file: read.append(file) or open_file(file))
    first = rig._summary(str(out), *names)
    assert first is not None
    assert rig._summary(str(out), *names) == first
    assert read == [events]
    with events.open("a") as file:
        file.write("what is no event\n")
    assert rig._summary(str(out), *names) == {
        **first,
        "unreadable": 1,
        "changed": rig._changed_ms(events),
    }
    assert read == [events, events]
    events.unlink()
    gone = rig._summary(str(out), *names)
    assert gone is not None
    assert (gone["boards"], gone["changed"]) == ([], None)
