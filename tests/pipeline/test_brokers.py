"""Several brokers: asked side by side, and what one of them does to the others when it is away."""

import logging
import socket
import threading
from collections.abc import Iterable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.ports import port_for_later
from host_broker.client import connect
from motemq_pipeline.cli import command
from motemq_pipeline.cli_run import Progress, in_a_line
from motemq_pipeline.status import QueryStatus, RunStatus
from pyspark_motemq import remote
from pyspark_motemq.blocks import JournalError
from pyspark_motemq.offsets import Offset
from pyspark_motemq.options import Options
from pyspark_motemq.remote import Broker, Brokers, BrokerUnavailable
from pyspark_motemq.stream import UNREACHABLE, StreamReader
from tests.host_broker.net.broker_process import BrokerProcess, broker, until

_OPTIONS = ("--set", "journal.flush_s=0.001", "--set", "journal.partitions=1")


def _publish(running: BrokerProcess, numbers: range) -> None:
    client = connect(f"fmqp://127.0.0.1:{running.ports['auto']}")
    with client:
        for number in numbers:
            client.publish("a", b"%d" % number)
        client.sync()


def _read(reader: StreamReader, start: Offset, end: Offset) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for task in reader.partitions(start, end):
        for batch in reader.read(task):
            columns = batch.to_pydict()
            found += zip(columns["partition"], columns["payload"], strict=True)
    return sorted(found)


def _kept(running: BrokerProcess) -> int:
    """Return how many messages its journal has."""
    url = f"http://127.0.0.1:{running.ports['auto']}"
    (state,) = Brokers([Broker(url)]).partitions().values()
    return state.next


def _latest(reader: StreamReader, start: Offset) -> Offset:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def test_a_broker_that_is_away_delays_nobody_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    one_argv = ("--data", str(tmp_path / "a"), "--listen", "auto://127.0.0.1:0", *_OPTIONS)
    port = port_for_later()
    listen = ("--listen", f"auto://127.0.0.1:{port}")
    other_argv = ("--data", str(tmp_path / "b"), *_OPTIONS, *listen)
    with broker(*one_argv) as one:
        with broker(*other_argv) as other:
            urls = f"127.0.0.1:{one.ports['auto']},127.0.0.1:{port}"
            given = {"brokers": urls, "brokerTimeout": "5s", "startingOffsets": "earliest"}
            reader = StreamReader(Options.read(given))
            start = reader.initialOffset()
            _publish(one, range(3))
            _publish(other, range(5))
            at: list[Offset] = [start]

            def kept(one_has: int, other_has: int) -> bool:
                at.append(_latest(reader, at[-1]))
                return (at[-1]["0"], at[-1]["10000"]) == (one_has, other_has)

            until(lambda: kept(4, 6))  # with an echo each
            here = at[-1]
            assert len(_read(reader, start, here)) == 8
        # The second one is gone.
        _publish(one, range(3, 5))
        until(lambda: kept(7, 6))
        assert at[-1]["journals"] == here["journals"]
        assert _read(reader, here, at[-1]) == [(0, b"3"), (0, b"4")]
        reported = reader.reportLatestOffset()
        assert reported is not None
        assert "10000" not in reported
        ((name, why),) = reported[UNREACHABLE].items()
        assert name == f"broker 2 (http://127.0.0.1:{port})"
        assert "cannot be reached" in why
        told = [record.getMessage() for record in caplog.records]
        assert len([text for text in told if "the others are read on" in text]) == 1
        # Nothing of it is skipped: a batch that has its messages waits, and is tried again.
        with pytest.raises(BrokerUnavailable):
            reader.partitions(start, here)
        with broker(*other_argv) as again:
            _publish(again, range(5, 6))
            gone_on = at[-1]
            until(lambda: kept(7, 8))
            assert _read(reader, gone_on, at[-1]) == [(10_000, b"5")]
            assert UNREACHABLE not in (reader.reportLatestOffset() or {})
            assert "answers again" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("named", [False, True])
def test_a_stream_begins_with_those_who_answer(tmp_path: Path, named: bool) -> None:
    """Who comes later is read from its oldest message, or from the one that was named."""
    one_argv = ("--data", str(tmp_path / "a"), "--listen", "auto://127.0.0.1:0", *_OPTIONS)
    port = port_for_later()
    listen = ("--listen", f"auto://127.0.0.1:{port}")
    other_argv = ("--data", str(tmp_path / "b"), *_OPTIONS, *listen)
    with broker(*other_argv) as other:
        _publish(other, range(4))
    with broker(*one_argv) as one:
        _publish(one, range(2))
        starting = '{"0": "earliest", "10000": 2, "30000": 7}' if named else "earliest"
        urls = f"127.0.0.1:{one.ports['auto']},127.0.0.1:{port}"
        given = {"brokers": urls, "brokerTimeout": "1h", "startingOffsets": starting}
        reader = StreamReader(Options.read(given))
        start = reader.initialOffset()
        assert start.get("10000") == (2 if named else None)
        assert "30000" not in start
        at: list[Offset] = [start]

        def kept(**expected: int) -> bool:
            at.append(_latest(reader, at[-1]))
            return all(at[-1].get(number.strip("p")) == end for number, end in expected.items())

        until(lambda: kept(p0=3))  # with an echo each
        here = at[-1]
        assert _read(reader, start, here) == [(0, b"0"), (0, b"1")]
        with broker(*other_argv):
            until(lambda: kept(p0=3, p10000=5))
            found = _read(reader, here, at[-1])
            assert found == [(10_000, b"%d" % number) for number in range(2 if named else 0, 4)]


def test_a_number_to_begin_with_is_looked_at_when_its_broker_comes(tmp_path: Path) -> None:
    port = port_for_later()
    listen = ("--listen", f"auto://127.0.0.1:{port}")
    with broker("--data", str(tmp_path / "a"), "--listen", "auto://127.0.0.1:0") as one:
        urls = f"127.0.0.1:{one.ports['auto']},127.0.0.1:{port}"
        given = {"brokers": urls, "startingOffsets": '{"10000": 99}'}
        reader = StreamReader(Options.read(given))
        start = reader.initialOffset()
        with broker("--data", str(tmp_path / "b"), *_OPTIONS, *listen) as other:
            _publish(other, range(1))

            def refused() -> bool:
                try:
                    _latest(reader, start)
                except JournalError as error:
                    assert "option startingOffsets: partition 10000 of broker 2" in str(error)
                    assert "has no message 99 yet" in str(error)
                    return True
                return False

            until(refused)


@pytest.mark.parametrize("starting", ["latest", "-1h", '{"0": -1, "10000": "latest"}'])
def test_what_moves_begins_with_those_who_answer(tmp_path: Path, starting: str) -> None:
    """Who comes later is read from where it was when the query began, or so long before."""
    one_argv = ("--data", str(tmp_path / "a"), "--listen", "auto://127.0.0.1:0", *_OPTIONS)
    port = port_for_later()
    listen = ("--listen", f"auto://127.0.0.1:{port}")
    other_argv = ("--data", str(tmp_path / "b"), *_OPTIONS, *listen)
    some_before = starting.startswith("-")
    with broker(*other_argv) as other:
        _publish(other, range(4))
    with broker(*one_argv) as one:
        _publish(one, range(2))
        until(lambda: _kept(one) == 3)  # with an echo
        urls = f"127.0.0.1:{one.ports['auto']},127.0.0.1:{port}"
        given = {"brokers": urls, "brokerTimeout": "5s", "startingOffsets": starting}
        reader = StreamReader(Options.read(given))
        start = reader.initialOffset()
        at = [_latest(reader, start)]
        assert at[0]["0"] == (0 if some_before else 3)
        assert "10000" not in at[0]
        assert reader.partitions(start, at[0]) == []
        _publish(one, range(2, 4))

        def kept(**expected: int) -> bool:
            at.append(_latest(reader, at[-1]))
            return all(at[-1].get(number.strip("p")) == end for number, end in expected.items())

        until(lambda: kept(p0=6))
        some = _read(reader, at[0], at[-1])
        assert some == [(0, b"%d" % number) for number in range(0 if some_before else 2, 4)]
        # The query ends and goes on: all that it knows is in the offset.
        reader = StreamReader(Options.read(given))
        before = at[-1]
        with broker(*other_argv) as other:
            _publish(other, range(4, 6))
            until(lambda: "10000" in _latest(reader, before))
            entered = _latest(reader, before)
            assert entered["10000"] == (0 if some_before else 5)
            at.append(entered)
        # It is away again: nobody needs it for the batch with which it entered.
        assert reader.partitions(before, entered) == []
        with broker(*other_argv):
            until(lambda: kept(p0=6, p10000=8))
            rows = _read(reader, entered, at[-1])
            assert rows == [
                (10_000, b"%d" % number) for number in range(0 if some_before else 4, 6)
            ]
            assert set(at[-1]) == {"0", "10000", "journals"}


def test_a_position_names_no_journal_whose_partitions_it_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that answers a moment too late: what it had deleted before is no loss of a query."""
    may_answer = threading.Event()

    def answer(of: remote.Remote, path: str, _: float | None = None) -> list[dict[str, int]]:
        if of._base:
            assert may_answer.wait(30)
        of.identity = f"journal {of._base}"
        return [{"partition": 0, "first": 7, "next": 9, "bytes": 2}]

    monkeypatch.setattr(remote.Remote, "_overview", answer)
    monkeypatch.setattr(remote, "_WAIT_S", 0.01)
    brokers = Brokers([Broker("http://127.0.0.1:1"), Broker("http://127.0.0.1:2")])
    assert set(brokers.reachable()) == {0}
    may_answer.set()
    wait(brokers._asked.values())
    assert brokers.identities() == {0: "journal 0"}
    assert set(brokers.reachable()) == {0, 10_000}
    assert brokers.identities() == {0: "journal 0", 1: "journal 10000"}


def test_what_moves_waits_for_one_broker(tmp_path: Path) -> None:
    for starting in ("latest", "-10min", "earliest"):
        given = {"brokers": "127.0.0.1:1,127.0.0.1:2", "brokerTimeout": "100ms"}
        reader = StreamReader(Options.read({**given, "startingOffsets": starting}))
        with pytest.raises(BrokerUnavailable, match="cannot be reached"):
            _latest(reader, reader.initialOffset())


def test_nobody_waits_twice_for_a_broker_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections and never answers, as a machine does that has stopped."""
    waited: list[int] = []

    def counted(futures: Iterable[Future[Any]], timeout: float) -> object:
        known = list(futures)
        waited.append(len(known))
        return wait(known, timeout)

    monkeypatch.setattr(remote, "wait", counted)
    monkeypatch.setattr(remote, "_WAIT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        several = Brokers([Broker(f"http://127.0.0.1:{silent.getsockname()[1]}")])
        for _ in range(3):
            assert several.reachable() == {}
            assert "has not answered within 0.05 s" in several.unreachable()[0]
    assert waited == [1, 0, 0]


def test_a_start_needs_one_broker_that_answers(tmp_path: Path) -> None:
    nobody = Broker("http://127.0.0.1:1")
    with broker("--data", str(tmp_path), "--listen", "auto://127.0.0.1:0") as running:
        one_of_two = Brokers([nobody, Broker(f"http://127.0.0.1:{running.ports['auto']}")])
        one_of_two.check()
        # Who is to read all there is needs all.
        with pytest.raises(JournalError, match=r"the broker at http://127\.0\.0\.1:1 cannot be"):
            one_of_two.check(all_of_them=True)
        file = tmp_path / "run.toml"
        brokers = f'["127.0.0.1:{running.ports["auto"]}", "127.0.0.1:1"]'
        file.write_text(f'[source]\nbrokers = {brokers}\n[tables]\nfolder = "tables"\n')
        found = CliRunner().invoke(command, ["run", str(file), "--once"])
        assert (found.exit_code, found.output.count("\n")) == (3, 1), found.output
        assert "the broker at http://127.0.0.1:1 cannot be reached" in found.output
    with pytest.raises(JournalError, match="cannot be reached"):
        Brokers([nobody]).check()


def test_a_folder_that_is_not_there_is_told_before_spark_starts(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[source]\njournal = "nowhere"\n[tables]\nfolder = "tables"\n')
    found = CliRunner().invoke(command, ["run", str(file)])
    assert (found.exit_code, found.output.count("\n")) == (3, 1), found.output
    assert f"there is no journal folder {tmp_path / 'nowhere'}" in found.output
    assert not (tmp_path / "tables").exists()


def test_one_broker_by_two_names_is_not_read_twice(tmp_path: Path) -> None:
    with broker("--data", str(tmp_path / "data"), "--listen", "auto://127.0.0.1:0") as running:
        port = running.ports["auto"]
        urls = f"127.0.0.1:{port},localhost:{port}"
        words = rf"http://127\.0\.0\.1:{port} and http://localhost:{port} have the same journal"
        reader = StreamReader(Options.read({"brokers": urls, "startingOffsets": "earliest"}))
        for ask in (reader.initialOffset, reader.reportLatestOffset):
            with pytest.raises(JournalError, match=words):
                ask()
        file = tmp_path / "run.toml"
        listed = '", "'.join(urls.split(","))
        file.write_text(f'[source]\nbrokers = ["{listed}"]\n[tables]\nfolder = "tables"\n')
        found = CliRunner().invoke(command, ["run", str(file)])
        assert (found.exit_code, found.output.count("\n")) == (3, 1), found.output
        assert "give it once, or its messages are read twice" in found.output


def test_progress_is_one_line_of_a_terminal() -> None:
    query = QueryStatus("bronze", 7, 10, 0.2, 61_200, 1020.0, 240, "")
    silver = QueryStatus("silver", 7, 10, 0.2, 61_200, 1020.0, None, "")
    alerts = QueryStatus("alerts", 7, 10, 0.2, 3, 0.0, 0, "", 2)
    status = RunStatus(1, "running", "", "", (query, silver, alerts))
    assert in_a_line(status, 120) == (
        "bronze 61,200 rows, 1,020/s, behind 240; silver behind ?; "
        "alerts behind 0, failed and started again 2 times"
    )
    assert len(in_a_line(status, 79)) == 79
    away = RunStatus(1, "running", "", "", (query,), {"broker 2 (http://x:1)": "why"})
    assert in_a_line(away, 120).startswith("broker 2 (http://x:1) does not answer; bronze 61,200")


def test_why_a_query_was_started_again_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Before its first batch a query reports nothing: also not which broker it waits for."""
    progress = Progress(quiet=False)
    for restarts, why in [(0, ""), (1, "no answer"), (2, "no answer"), (3, "it stumbled")]:
        query = QueryStatus("bronze", -1, 0, 0.0, 0, 0.0, None, "", restarts, why)
        progress.show(RunStatus(1, "running", "", "", (query,)))
    said = [line for line in capsys.readouterr().out.splitlines() if "is started again" in line]
    assert said == [
        "pipeline: bronze failed, and is started again: no answer",
        "pipeline: bronze failed, and is started again: it stumbled",
    ]
