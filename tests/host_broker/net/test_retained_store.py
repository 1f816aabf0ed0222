"""Retained messages across restarts and kills of a real broker."""

import contextlib
import signal
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest

from host_broker.bus.commands import Publish, Subscribe
from host_broker.bus.delivery import Delivery
from host_broker.bus.publication import pack
from host_broker.client import Client, ClientError, connect
from host_broker.net.journal.check import check
from host_broker.net.storage.message_store import MessageStore, MessageStoreError
from tests.host_broker.net.broker_process import BrokerProcess, broker, motemq, until
from tests.host_broker.scripted import Stage


def fmqp(running: BrokerProcess) -> Client:
    client = connect(running.urls["fmqp"])
    return client


def kept(running: BrokerProcess) -> dict[str, bytes]:
    with fmqp(running) as client:
        client.subscribe("kept/*", uncounted=True)
        client.sync()
        found = {}
        while (message := client.receive(0)) is not None:
            assert message.retain
            found[message.topic] = message.payload
        return found


def test_a_clean_stop_keeps_everything_and_forgets_what_was_cleared(tmp_path: Path) -> None:
    with broker("--data", str(tmp_path)) as running, fmqp(running) as client:
        for number in range(1000):
            client.publish(f"kept/{number}", b"old", retain=True)
        for number in range(500):
            client.publish(f"kept/{number}", b"%d" % number, retain=True)
        for number in range(500, 1000):
            client.publish(f"kept/{number}", b"", retain=True)
        client.publish("kept/not", b"x")
        client.publish("kept/will", b"gone", retain=True, will=True)
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
            client.publish("kept/first", b"0", retain=True)
            client.sync()
            until((tmp_path / "retained.sqlite").exists)
            timer.start()
            while True:
                rounds += 1
                for number in range(20):
                    client.publish(f"kept/{number}", b"%d" % rounds, retain=True)
                client.sync()
        timer.join()
    with sqlite3.connect(tmp_path / "retained.sqlite") as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()
    # The kill may have cut a write to the journal, too: that, and nothing else, is said then.
    torn = [f"{each.path}, offset {each.offset}: " for each in check(tmp_path / "journal").findings]
    with broker("--data", str(tmp_path)) as running:
        for topic, value in kept(running).items():
            assert topic == "kept/first" or 1 <= int(value) <= rounds
        code, stderr = running.end()
    assert (code, len(stderr.splitlines())) == (0, len(torn))
    assert len(torn) <= 1
    for said, where in zip(stderr.splitlines(), torn, strict=True):
        assert said.startswith(f"broker: journal: torn: {where}")


def test_what_was_written_a_moment_ago_survives_a_kill(tmp_path: Path) -> None:
    with broker("--data", str(tmp_path)) as running:
        with fmqp(running) as client:
            client.publish("kept/a", b"1", retain=True)
            client.sync()

        def is_written() -> bool:
            database = sqlite3.connect(tmp_path / "retained.sqlite")
            try:
                return database.execute("SELECT count(*) FROM retained").fetchone() == (1,)
            finally:
                database.close()

        until(is_written)
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
            database.execute("INSERT INTO retained VALUES (?, ?, ?)", (b"a", b"no packet", b""))
        else:
            database.execute("PRAGMA user_version = 77")
        database.commit()
        database.close()
    argv = motemq("broker", "--listen", "fmqp://127.0.0.1:0", "--data", str(tmp_path))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout == ""
    assert str(file) in done.stderr
    assert "move it away" in done.stderr
    assert done.stderr.count("\n") == 1


def test_more_than_the_limits_allow_is_said(tmp_path: Path) -> None:
    with broker("--data", str(tmp_path)) as running:
        with fmqp(running) as client:
            for number in range(20):
                client.publish(f"kept/{number}", b"x", retain=True)
            client.sync()
        running.end()
    with broker("--data", str(tmp_path), "--set", "bus.max_retained=10") as running:
        assert 0 < len(kept(running)) <= 10
        code, stderr = running.end()
        assert code == 0
        assert "retained messages were not taken back: bus.max_retained" in stderr


_VERSION_1 = "CREATE TABLE retained (topic BLOB PRIMARY KEY, packet BLOB) WITHOUT ROWID"
_ADDED = "ALTER TABLE retained ADD COLUMN properties BLOB DEFAULT x''"


@pytest.mark.parametrize("killed", [False, True])
def test_a_file_of_version_1_is_upgraded(tmp_path: Path, killed: bool) -> None:
    """What it has stays, and takes properties from then on; also if that was begun before."""
    path = tmp_path / "retained.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(_VERSION_1)
        packet = pack(4, b"kept/old", b"from before")
        database.execute("INSERT INTO retained VALUES (?, ?)", (b"kept/old", packet))
        database.execute("PRAGMA user_version = 1")
        if killed:
            # A broker that is killed while it changes the file: the change is not there.
            database.execute("PRAGMA journal_mode = WAL")
            other = sqlite3.connect(path, isolation_level=None)
            database.commit()
            other.execute("BEGIN IMMEDIATE")
            other.execute(_ADDED)
            other.close()
    for start in range(2):
        with broker("--data", str(tmp_path)) as running:
            found = {"kept/old": b"from before"}
            assert kept(running) == found | ({"kept/new": b"x"} if start else {})
            with fmqp(running) as client:
                client.publish("kept/new", b"x", retain=True)
                client.sync()
            assert running.end() == (0, "")
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (3,)
        assert database.execute("SELECT topic, properties FROM retained").fetchall() == [
            (b"kept/new", b""),
            (b"kept/old", b""),
        ]


def test_an_upgrade_is_one_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that fails half-way leaves a file of version 1, which the next one upgrades."""
    path = tmp_path / "retained.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(_VERSION_1)
        database.execute("PRAGMA user_version = 1")
    with monkeypatch.context() as patch:
        patch.setattr("host_broker.net.storage.message_store._VERSION", "no number")
        with pytest.raises(MessageStoreError):
            MessageStore(path)
    store = MessageStore(path)
    assert store.entries() == []
    store.close()


def test_properties_survive_a_restart(tmp_path: Path) -> None:
    """With the file in between, as the broker and its edge use it."""
    path = tmp_path / "retained.sqlite"
    publishing = Stage()
    client = publishing.enter()
    properties = {"n": b"v", "long": bytes(64 * 1024)}
    done = publishing.do(
        client,
        Publish(b"a", b"1", retain=True, properties=properties),
        Publish(b"b", b"2", retain=True),
    )

    store = MessageStore(path)
    store.write(done.retained)
    store.close()
    store = MessageStore(path)
    again = Stage()
    assert again.broker.restore(store.entries()) == 0
    store.close()
    client = again.enter()
    again.do(client, Subscribe(b"*", filter=lambda topic, properties, body: topic != b"$"))
    found = [each for each in again.given(client) if isinstance(each, Delivery)]
    assert sorted((each.run, dict(each.properties)) for each in found)[-2:] == [
        (pack(4, b"a", b"1"), properties),
        (pack(4, b"b", b"2"), {}),
    ]


def test_damaged_properties_are_an_error_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "retained.sqlite"
    MessageStore(path).close()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        packet = pack(4, b"kept/x", b"x")
        database.execute("INSERT INTO retained VALUES (?, ?, ?)", (b"kept/x", packet, b"\5\0"))
    argv = motemq("broker", "--listen", "fmqp://127.0.0.1:0", "--data", str(tmp_path))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "is damaged (properties are cut short)" in done.stderr
    assert "Traceback" not in done.stderr
