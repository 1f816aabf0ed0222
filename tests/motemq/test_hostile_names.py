"""The hostile names through every output of broker and rig, as a person or a program gets it."""

import contextlib
import csv
import io
import json
import struct
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt
from rich.console import Console

from boards.reports.junit import junit_xml
from boards.reports.markdown import markdown
from boards.reports.page import html_page
from boards.reports.record import RunRecord, read_run
from boards.session.serial_log import SerialLog
from host_broker.printable import json_text, printable, spreadsheet_cell
from motemq.cli import main
from tests.boards.reports.made_run import MadeRun, passing_board
from tests.boards.reports.test_summary import _board, _printed, _tell
from tests.host_broker.net.answering_board import answering
from tests.host_broker.net.broker_process import BrokerProcess, broker, motemq
from tests.hostile_names import HOSTILE, harm

_TOPICS = tuple(name.replace("/", "") for name in HOSTILE)


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    """A broker that retains every name as a topic, with itself as the body."""
    with broker("--listen", "auto://127.0.0.1:0", "--ephemeral", "-v") as process:
        with process.raw("auto") as client:
            for number, name in enumerate(_TOPICS):
                topic, body = f"h{number}/{name}".encode(), name.encode()
                client.sendall(struct.pack(">BBI", 0x04, len(topic), len(body)) + topic + body)
            client.sendall(b"\x80\x03\0\0\0\0*/*")
            got = b""
            while not all(name.encode() in got for name in _TOPICS):
                got += client.recv(65536)
        yield process


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(motemq(*command), capture_output=True, text=True, timeout=180)


def test_the_sanitiser_itself() -> None:
    for name in HOSTILE:
        assert harm(printable(name)) == ""
        assert "\n" not in printable(name)
        assert harm(printable(name.encode("utf-8", "surrogatepass"))) == ""
        assert harm(json_text({name: name})) == ""
        assert json.loads(json_text({name: [name]}, indent=2)) == {name: [name]}
        cell = spreadsheet_cell(name)
        assert harm(cell) == ""
        assert not cell.lstrip().startswith(("=", "+", "-", "@"))
    for number in ("-5", "+2.5e3", "=1".removeprefix("=")):
        assert spreadsheet_cell(number) == number
    assert printable(b"\xff\x1b") == "\\xff\\x1b"
    assert printable(b"\xff".decode("utf-8", "surrogateescape")) == "\\xff"


@pytest.mark.parametrize(
    "form", [(), ("-v",), ("--json",), ("--json", "--pretty"), ("-F", "%t %p")], ids=str
)
def test_sub(running: BrokerProcess, form: tuple[str, ...]) -> None:
    url = f"fmqp://127.0.0.1:{running.ports['auto']}"
    done = _run("sub", url, "*/*", "--count", str(len(_TOPICS)), *form)
    assert done.returncode == 0, done.stderr
    assert harm(done.stdout + done.stderr) == ""
    if form == ("--json",):
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert {line["payload"] for line in lines} == set(_TOPICS)
    elif "--pretty" not in form:
        assert len(done.stdout.splitlines()) == len(_TOPICS)


def test_raw_output_is_bytes_as_they_came(running: BrokerProcess) -> None:
    url = f"fmqp://127.0.0.1:{running.ports['auto']}"
    command = motemq("sub", url, "*/*", "--count", str(len(_TOPICS)), "--output", "raw")
    done = subprocess.run(command, capture_output=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert all(name.encode() in done.stdout for name in _TOPICS)
    assert harm(done.stdout.decode(errors="replace")) != ""


@pytest.mark.parametrize("form", [(), ("--json",)], ids=str)
def test_top(running: BrokerProcess, form: tuple[str, ...]) -> None:
    url = f"fmqp://127.0.0.1:{running.ports['auto']}"
    done = _run("top", url, "--once", *form)
    assert done.returncode == 0, done.stderr
    assert harm(done.stdout + done.stderr) == ""


@pytest.mark.parametrize("form", [(), ("--json",)], ids=str)
def test_call(running: BrokerProcess, form: tuple[str, ...]) -> None:
    url = f"lightmq://127.0.0.1:{running.ports['auto']}"
    answers = iter(HOSTILE[:3])
    with answering(f"{url}/kitchen", lambda _: next(answers).encode()):
        for _ in range(3):
            done = _run("call", url, "kitchen", "how warm?", *form)
            assert done.returncode == 0, done.stderr
            assert harm(done.stdout + done.stderr) == ""


def test_ping_call_and_pub_that_fail(running: BrokerProcess) -> None:
    url = f"lightmq://127.0.0.1:{running.ports['auto']}"
    for name in (HOSTILE[1], HOSTILE[9], HOSTILE[16]):
        for command in (
            ("call", url, name, "x", "--answer-within", "2"),
            ("ping", f"fmqp://{name}.invalid", "--count", "1"),
            ("pub", f"fmqp://127.0.0.1:{running.ports['auto']}/{name}", "t", "x"),
        ):
            done = _run(*command)
            assert done.returncode != 0
            assert harm(done.stdout + done.stderr) == "", command


def test_commands_that_say_again_what_they_are_given(tmp_path: Path) -> None:
    """Names come from files and scripts, which have them from others."""
    rules, data = tmp_path / "rules.toml", tmp_path / "data"
    options = ("--data", str(data), "--listen", "auto://127.0.0.1:0")
    names = [name for name in HOSTILE if not name.startswith("-")]
    patterns = {name: name.translate(str.maketrans("/*%", "___")) for name in names}
    spelled = [json.dumps(each) for each in patterns.values()]
    quoted = ", ".join(each for each in spelled if "\\ud" not in each)  # of which TOML knows none
    rules.write_text(f"[roles.everybody]\npublish = [{quoted}]\n")
    runner = CliRunner()
    for name in names:
        for topic in (name, patterns[name]):
            done = runner.invoke(
                main, ["acl", "explain", name, "publish", topic, "--rules", str(rules)], color=True
            )
            assert done.exit_code in (0, 1, 2), done.output
            assert harm(done.output) == "", name
        for command in ("check", "info"):
            done = runner.invoke(main, ["journal", command, str(tmp_path / name)], color=True)
            assert harm(done.output) == "", name
    with broker(*options) as process:
        url = f"http://127.0.0.1:{process.ports['auto']}"
        with process.raw("auto") as client:
            client.sendall(struct.pack(">BBI", 0, 1, 1) + b"ax\x80\x01\0\0\0\0a")
        for name in names:
            path = f"/journal/groups/{urllib.parse.quote(name, safe='')}"
            body = b'{"positions": {"0": 0, "1": 0}}'
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(
                    urllib.request.Request(url + path, body, method="PUT"), timeout=20
                ).close()
        backup = tmp_path / "\x1b[31mbackup"
        done = runner.invoke(main, ["backup", str(backup), "--from", url], color=True)
        assert (done.exit_code, harm(done.output)) == (0, "")
    done = runner.invoke(main, ["journal", "info", str(data / "journal")], color=True)
    assert (done.exit_code, harm(done.output)) == (0, "")


def test_the_log(running: BrokerProcess) -> None:
    with broker("--listen", "auto://127.0.0.1:0", "--ephemeral", "-v") as process:
        for name in HOSTILE:
            raw = name.encode()
            with process.raw("auto") as board, process.raw("auto") as twin:
                hello = b"\x01" + struct.pack(">HB", len(raw) + 1, len(raw)) + raw
                board.sendall(hello)
                board.recv(4)
                twin.sendall(hello)  # which is refused with its name
                twin.recv(4)
            with process.raw("auto") as http:
                http.sendall(b"GET /" + raw + b" HTTP/1.1\r\nX: " + raw + b"\r\n\r\n")
                http.recv(1000)
        code, said = process.end()
    assert code == 0
    assert "already connected" in said
    assert harm(said) == ""
    assert all(line.startswith("broker: ") for line in said.splitlines())


# ---- the rig ----


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    made = MadeRun(tmp_path_factory.mktemp("run"), rig="\x1b]0;rig\x07<b>")
    made.environment(git=HOSTILE[9])
    passing_board(made, "b0", rtt_us=[1000.0, 2000.0])
    for number, name in enumerate(HOSTILE, 1):
        made.board(f"b{number}{name}")
        made.step("flash", 0, 1, "error", message=name)
        made.check("ping", 4, 1, "failed", name)
        made.event(6, event="console", step="check", check="ping", message=name)
    return read_run(made.end(13, "failed"))


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_the_report_of_a_run(record: RunRecord) -> None:
    text = html_page(record)
    assert harm(text) == ""
    page = _Page()
    page.feed(text)
    assert not page.tags & {"script", "img", "evil"}
    assert not [name for name in page.attributes if name.startswith("on")]


def test_junit(record: RunRecord) -> None:
    document = junit_xml(record)
    assert harm(document.decode()) == ""
    for element in ET.fromstring(document).iter():
        assert harm((element.text or "") + "".join(element.attrib.values())) == ""
        assert element.tag != "evil"


def test_the_summary_at_github(record: RunRecord) -> None:
    text = markdown(record)
    assert harm(text) == ""
    page = _Page()
    page.feed(MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(text))
    assert not page.tags & {"script", "img", "evil", "a"}


def test_the_rigs_console(tmp_path: Path) -> None:
    board = _board()
    for name in HOSTILE:
        _tell(board, "check", "failed", name, check=name)
    assert harm(_printed([board])) == ""
    out = io.StringIO()
    console = Console(file=out, no_color=True, width=200)
    from boards.reports.live_table import LiveTable, TimeEstimate

    table = LiveTable(console, [board], TimeEstimate({}))
    for name in HOSTILE:
        table.line(name)
    assert harm(out.getvalue()) == ""


def test_the_serial_log_of_a_board(tmp_path: Path) -> None:
    log = SerialLog(tmp_path / "b.serial.log")
    for name in HOSTILE:
        log.tap(name.encode() + b"\n")
    log.close()
    assert harm((tmp_path / "b.serial.log").read_text()) == ""


def test_a_row_of_a_csv() -> None:
    out = io.StringIO()
    csv.writer(out).writerow([spreadsheet_cell(name) for name in HOSTILE])
    (row,) = csv.reader(io.StringIO(out.getvalue()))
    assert len(row) == len(HOSTILE)
    assert all(cell[:1] not in "=+-@" for cell in row)
