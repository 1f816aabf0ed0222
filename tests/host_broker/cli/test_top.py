"""``motemq top`` as a process: for scripts, and as text."""

import json
import signal
import subprocess
import time
from typing import Any

import pytest

from host_broker.bus.publication import pack
from tests.host_broker.cli.processes import END_S, ended, fmqp, run
from tests.host_broker.net.broker_process import BrokerProcess, broker, line_of, motemq, spawn

Report = dict[str, Any]


def test_json_once_tells_rates_and_what_is_kept(url: str) -> None:
    with fmqp(url) as client:
        client.publish("top/kept", b"from before", retain=True)
        client.sync()
        busy = spawn(motemq("pub", url, "top/busy", "12345678", "--repeat", "0", "--delay", "0.02"))
        client.subscribe("top/busy")
        assert client.receive(END_S) is not None
        # Well above a second, so that the broker tells its own count meanwhile.
        done = run("top", url, "--once", "--json", "--interval", "3")
        busy.send_signal(signal.SIGINT)
        ended(busy)
    assert (done.returncode, done.stderr) == (0, b"")
    report = json.loads(done.stdout)
    first, second = report["topics"]
    assert first["topic"] == "top/busy"
    assert first["last"] == "12345678"
    # The machine may be slow, so the rate is of the interval that really was.
    assert 3 <= report["interval_s"] < END_S
    assert first["messages"] >= 1
    rate = first["messages"] / report["interval_s"]
    assert first["messages_per_second"] == pytest.approx(rate, rel=0.01)
    assert first["bytes_per_second"] == pytest.approx(8 * rate, rel=0.01)
    assert first["messages_per_second"] == report["messages_per_second"]
    assert second == {
        "topic": "top/kept",
        "messages_per_second": 0.0,
        "bytes_per_second": 0.0,
        "messages": 0,
        "last": "from before",
        "last_bytes": 11,
    }
    assert report["clients"] == 3
    assert 1 <= report["broker_messages_per_second"] <= 200
    assert (report["topics_not_shown"], report["topics_forgotten"]) == (0, 0)


def test_the_broker_does_not_count_what_top_itself_asks_for() -> None:
    """All topics are a hundred patterns, and each of these is a packet."""
    with broker() as quiet:
        done = run("top", quiet.urls["fmqp"], "--once", "--json", "--interval", "3")
    assert (done.returncode, done.stderr) == (0, b"")
    report = json.loads(done.stdout)
    assert 0 <= report["broker_messages_per_second"] < 20
    assert report["topics"] == []


def _counting(process: "subprocess.Popen[bytes]", topic: str, messages: int) -> list[Report]:
    """Return the reports until ``topic`` was heard so often."""
    reports = []
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        report = json.loads(line_of(process, END_S))
        reports.append(report)
        if any((row["topic"], row["messages"]) == (topic, messages) for row in report["topics"]):
            return reports
    raise AssertionError(f"not {messages} messages: {reports[-1]}")


def test_it_counts_each_message_of_a_known_load_once(url: str) -> None:
    """Over many intervals: none is lost between two of them, none is counted twice."""
    process = spawn(motemq("top", url, "load/*", "--json", "--interval", "0.1"))
    line_of(process, END_S)
    with fmqp(url) as client:
        for number in range(2_000):
            client.publish("load/known", b"x" * (number % 10))
            client.publish("load/other", b"yy")
            if number % 200 == 0:
                client.sync()
                line_of(process, END_S)
    reports = _counting(process, "load/known", 1_800)  # FMQP does not deliver the empty ones
    process.send_signal(signal.SIGINT)
    ended(process)
    assert reports[-1]["clients"] >= 1
    rows = {row["topic"]: row for row in reports[-1]["topics"]}
    assert rows["load/other"]["messages"] == 2_000
    assert (rows["load/known"]["last"], rows["load/known"]["last_bytes"]) == ("x" * 9, 9)


def test_rates_add_up_to_what_was_sent(url: str) -> None:
    process = spawn(motemq("top", url, "sum/*", "--json", "--interval", "0.2"))
    line_of(process, END_S)
    done = run("pub", url, "sum/up", "12345", "--repeat", "60", "--delay", "0.01")
    assert done.returncode == 0
    reports = _counting(process, "sum/up", 60)
    process.send_signal(signal.SIGINT)
    ended(process)
    for field, total in (("messages_per_second", 60), ("bytes_per_second", 300)):
        seen = sum(report[field] * report["interval_s"] for report in reports)
        assert seen == pytest.approx(total, rel=0.01)


def test_what_clients_tell_themselves_is_no_traffic(url: str) -> None:
    """Unless it is asked for."""
    for topics, shown in (((), False), (("motemq/echo/*", "told/*"), True)):
        process = spawn(motemq("top", url, *topics, "--json", "--interval", "0.2"))
        line_of(process, END_S)
        assert run("ping", url, "--count", "20").returncode == 0
        assert run("pub", url, "told/after", "x").returncode == 0
        report = _counting(process, "told/after", 1)[-1]
        process.send_signal(signal.SIGINT)
        ended(process)
        heard = [row for row in report["topics"] if row["topic"].startswith("motemq/echo/")]
        assert bool(heard) is shown


@pytest.mark.parametrize(
    ("order", "expected"),
    [("messages", "many big a"), ("bytes", "big many a"), ("topic", "a big many")],
)
def test_it_sorts(running: BrokerProcess, url: str, order: str, expected: str) -> None:
    process = spawn(
        motemq("top", url, f"sort{order}/*", "--json", "--interval", "0.2", "--sort", order)
    )
    line_of(process, END_S)
    loads = [("big", b"x" * 1000)] * 2 + [("a", b"x")] + [("many", b"x")] * 5
    packets = b"".join(pack(0, f"sort{order}/{name}".encode(), load) for name, load in loads)
    counts: list[int] = []
    with running.raw("fmqp") as publisher:
        while counts != [len(loads)]:  # until no interval ends in the middle of them
            publisher.sendall(packets)
            counts = []
            while sum(counts) < len(loads):
                report = json.loads(line_of(process, END_S))
                count = round(report["messages_per_second"] * report["interval_s"])
                counts += [count] if count else []
    process.send_signal(signal.SIGINT)
    ended(process)
    names = [row["topic"].partition("/")[2] for row in report["topics"]]
    assert " ".join(names) == expected


def test_publishers_are_not_told(url: str) -> None:
    with fmqp(url) as client:
        client.subscribe("unheard", feedback=True)
        client.sync()
        assert run("top", url, "--once", "--interval", "0.2").returncode == 0
        client.sync()
        assert client.receive(0.0) is None


def test_depth_rows_and_topics_choose(url: str) -> None:
    with fmqp(url) as client:
        for topic in ("deep", "deep/er", "deep/er/still"):
            client.publish(f"choose/{topic}", b"x", retain=True)
        client.sync()

    def shown(*arguments: str) -> tuple[list[str], int]:
        done = run("top", url, "--once", "--json", "--interval", "0.2", *arguments)
        report = json.loads(done.stdout)
        return [row["topic"] for row in report["topics"]], report["topics_not_shown"]

    assert "choose/deep/er/still" not in shown("--depth", "3")[0]
    assert "choose/deep/er" in shown("--depth", "3")[0]
    assert shown("choose/*", "choose/*/er") == (["choose/deep", "choose/deep/er"], 0)
    assert shown("choose/*", "choose/*/er", "--rows", "1") == (["choose/deep"], 1)


def test_without_a_terminal_it_prints_lines_until_the_reader_goes_away(url: str) -> None:
    with fmqp(url) as client:
        client.publish("lines/\x1b[2J", b"\x1b]0;owned\x07", retain=True)
        client.sync()
        process = spawn(motemq("top", url, "lines/*", "--interval", "0.2"))
        for _ in range(2):
            assert url in line_of(process, END_S)
            assert r"lines/\x1b[2J  \x1b]0;owned\x07" in line_of(process, END_S)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=END_S) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_it_says_when_the_broker_is_gone() -> None:
    with broker() as mortal:
        process = spawn(motemq("top", mortal.urls["fmqp"], "--interval", "0.2"))
        line_of(process, END_S)
        mortal.end(signal.SIGKILL)
        code, _, stderr = ended(process)
    assert code == 1
    assert stderr.startswith(b"top: error: ")
    assert stderr.count(b"\n") == 1


def test_lightmq_has_nothing_to_show(running: BrokerProcess) -> None:
    done = run("top", running.urls["lightmq"] + "/curious", "--once")
    assert done.returncode == 2
    assert b"give the broker's fmqp:// URL" in done.stderr
