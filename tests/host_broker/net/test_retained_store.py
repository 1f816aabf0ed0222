"""Retained messages across restarts and kills of a real broker."""

import signal
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest

from host_broker.client import ClientError, FmqpClient, connect
from tests.host_broker.net.broker_process import BrokerProcess, broker, motemq, until


def fmqp(running: BrokerProcess) -> FmqpClient:
    client = connect(running.urls["fmqp"])
    assert isinstance(client, FmqpClient)
    return client


def kept(running: BrokerProcess) -> dict[str, bytes]:
    with fmqp(running) as client:
        client.subscribe("kept/*", debug=True)
        client.sync()
        found = {}
        while (message := client.receive(0)) is not None:
            assert message.flags & 0x04
            found[message.topic] = message.payload
        return found


def test_a_clean_stop_keeps_everything_and_forgets_what_was_cleared(tmp_path: Path) -> None:
    with broker("--data", str(tmp_path)) as running, fmqp(running) as client:
        for number in range(1000):
            client.publish(f"kept/{number}", b"old", cache=True)
        for number in range(500):
            client.publish(f"kept/{number}", b"%d" % number, cache=True)
        for number in range(500, 1000):
            client.publish(f"kept/{number}", b"", cache=True)
        client.publish("kept/not", b"x")
        client.publish("kept/will", b"gone", cache=True, will=True)
        client.sync()
        assert running.end() == (0, "")
    expected = {f"kept/{number}": b"%d" % number for number in range(500)}
    with broker("--data", str(tmp_path)) as running:
        assert kept(running) == {**expected, "kept/will": b"gone"}
        assert running.end() == (0, "")


@pytest.mark.parametrize("after", [0.1, 0.31, 0.73])
def test_a_kill_leaves_a_consistent_file(tmp_path: Path, after: float) -> None:
    with broker("--data", str(tmp_path)) as running:
        timer = threading.Timer(after, running.process.kill)
        rounds = 0
        with fmqp(running) as client, pytest.raises(ClientError):
            client.publish("kept/first", b"0", cache=True)
            client.sync()
            until((tmp_path / "retained.sqlite").exists)
            timer.start()
            while True:
                rounds += 1
                for number in range(20):
                    client.publish(f"kept/{number}", b"%d" % rounds, cache=True)
                client.sync()
        timer.join()
    with sqlite3.connect(tmp_path / "retained.sqlite") as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()
    with broker("--data", str(tmp_path)) as running:
        for topic, value in kept(running).items():
            assert topic == "kept/first" or 1 <= int(value) <= rounds
        assert running.end() == (0, "")


def test_what_was_written_a_moment_ago_survives_a_kill(tmp_path: Path) -> None:
    with broker("--data", str(tmp_path)) as running:
        with fmqp(running) as client:
            client.publish("kept/a", b"1", cache=True)
            client.sync()

        def is_written() -> bool:
            database = sqlite3.connect(tmp_path / "retained.sqlite")
            try:
                return database.execute("SELECT count(*) FROM retained").fetchone() == (1,)
            finally:
                database.close()

        until(is_written, 2.0)
        running.end(signal.SIGKILL)
    with broker("--data", str(tmp_path)) as running:
        assert kept(running) == {"kept/a": b"1"}


@pytest.mark.parametrize("damage", ["garbage", "message", "version"])
def test_a_damaged_file_is_named_with_its_remedy(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "retained.sqlite"
    with broker("--data", str(tmp_path)) as running:
        running.end()
    if damage == "garbage":
        file.write_bytes(b"garbage" * 1000)
    else:
        database = sqlite3.connect(file)
        if damage == "message":
            database.execute("INSERT INTO retained VALUES (?, ?)", (b"a", b"no packet"))
        else:
            database.execute("PRAGMA user_version = 77")
        database.commit()
        database.close()
    argv = motemq("broker", "--listen", "fmqp://127.0.0.1:0", "--data", str(tmp_path))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stdout == ""
    assert str(file) in done.stderr
    assert "move it away" in done.stderr
    assert done.stderr.count("\n") == 1


def test_more_than_the_limits_allow_is_said(tmp_path: Path) -> None:
    with broker("--data", str(tmp_path)) as running:
        with fmqp(running) as client:
            for number in range(20):
                client.publish(f"kept/{number}", b"x", cache=True)
            client.sync()
        running.end()
    with broker("--data", str(tmp_path), "--set", "fmqp.max_cached=10") as running:
        assert 0 < len(kept(running)) <= 10
        code, stderr = running.end()
        assert code == 0
        assert "retained messages were not taken back: fmqp.max_cached" in stderr
