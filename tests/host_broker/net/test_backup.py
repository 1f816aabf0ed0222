"""Backups of brokers that run: one moment, while others publish; and what comes out of them."""

import contextlib
import hashlib
import http.client
import io
import json
import os
import shutil
import signal
import sqlite3
import stat
import struct
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from host_broker.access.users import User
from host_broker.backup_format import MANIFEST, BackupFault, is_allowed, read_manifest
from host_broker.cli.backup import BackupError, back_up
from host_broker.cli.backup import command as backup_command
from host_broker.cli.restore import RestoreError, restore
from host_broker.cli.restore import command as restore_command
from host_broker.client import connect
from host_broker.net.access.access_files import write_users
from host_broker.net.journal.check import check
from tests.host_broker.net.broker_process import BrokerProcess, broker, until
from tests.host_broker.net.journal_decoder import read_journal

_TOPICS = 40


def _url(running: BrokerProcess) -> str:
    return f"http://127.0.0.1:{running.ports['auto']}"


def _packet(flags: int, topic: bytes, body: bytes) -> bytes:
    return struct.pack(">BBI", flags, len(topic), len(body)) + topic + body


@contextlib.contextmanager
def _load(running: BrokerProcess) -> Iterator[list[int]]:
    """Publish retained numbers to many topics, from two clients."""
    ended = threading.Event()
    rounds = [0, 0]

    def publish(whose: int) -> None:
        with running.raw("auto") as peer:
            while not ended.is_set():
                number = rounds[whose]
                peer.sendall(
                    b"".join(
                        _packet(0x04, b"load/%d/%d" % (whose, topic), b"%d" % number)
                        for topic in range(_TOPICS)
                    )
                )
                rounds[whose] += 1
                ended.wait(0.002)

    threads = [threading.Thread(target=publish, args=(whose,)) for whose in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield rounds
    finally:
        ended.set()
        for thread in threads:
            thread.join(20)


def _retained(data: Path) -> dict[bytes, bytes]:
    database = sqlite3.connect(data / "retained.sqlite")
    try:
        rows = database.execute("SELECT topic, packet FROM retained").fetchall()
    finally:
        database.close()
    return {bytes(topic): bytes(packet)[6 + len(topic) :] for topic, packet in rows}


def _last_of_journal(data: Path) -> dict[bytes, bytes]:
    """Return the last body of each topic, by the decoder that shares nothing with the broker."""
    partitions = read_journal(data / "journal").values()
    return {
        each.topic.encode(): each.body
        for messages in partitions
        for each in messages
        if not each.topic.startswith("motemq/echo/")  # how a client makes sure
    }


def test_one_moment_of_a_broker_under_load(tmp_path: Path) -> None:
    options = ("--listen", "auto://127.0.0.1:0", "--set", "journal.segment_bytes=300000")
    with broker("--data", str(tmp_path / "data"), *options) as running:
        with _load(running) as rounds, connect(_fmqp(running)) as client:
            until(lambda: min(rounds) > 2)
            client.publish("before/it", b"acknowledged")
            client.sync()
            for number in range(3):
                before = list(rounds)
                back_up(_url(running), tmp_path / f"backup-{number}")
                assert rounds != before  # it was served meanwhile
        code, said = running.end()
        assert (code, said) == (0, "")
    for number in range(3):
        data = tmp_path / f"restored-{number}"
        manifest = restore(tmp_path / f"backup-{number}", data)
        assert sum(manifest.nexts) > 0
        # What is retained is just what the messages of the journal have made so.
        last = _last_of_journal(data)
        assert last.pop(b"before/it") == b"acknowledged"
        assert _retained(data) == last
        report = check(data / "journal")
        assert list(report.findings) == []
    with broker("--data", str(tmp_path / "restored-2"), *options) as again:
        connection = http.client.HTTPConnection("127.0.0.1", again.ports["auto"], timeout=20)
        connection.request("GET", "/journal")
        found = json.loads(connection.getresponse().read())
        connection.close()
        assert [each["next"] for each in found["partitions"]] == list(manifest.nexts)
        with connect(_fmqp(again)) as client:
            client.subscribe("load/*/*")
            client.sync()
            heard = {}
            while message := client.receive(0.5):
                heard[message.topic.encode()] = message.payload
            assert heard == _retained(tmp_path / "restored-2")


def _fmqp(running: BrokerProcess) -> str:
    return f"fmqp://127.0.0.1:{running.ports['auto']}"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("kept")
    with broker("--data", str(data), "--listen", "auto://127.0.0.1:0") as running:
        with connect(_fmqp(running)) as client:
            client.publish("home/lamp", b"on", retain=True)
            client.sync()
        connection = http.client.HTTPConnection("127.0.0.1", running.ports["auto"], timeout=20)
        connection.request("GET", "/journal")  # what was acknowledged is in segments then
        (only,) = json.loads(connection.getresponse().read())["partitions"]
        read = {"positions": {str(only["partition"]): 1}}
        connection.request("PUT", "/journal/groups/tables", json.dumps(read).encode())
        assert connection.getresponse().read() == b""
        packet = _packet(0, b"t", b"x")
        headers = {
            "Content-Type": "application/x-fmqp",
            "Publisher": "gateway",
            "Publisher-Number": "7.0",
        }
        connection.request("POST", "/publish", packet, headers)
        assert connection.getresponse().status == 200
        connection.close()
        yield running


def test_groups_and_numbered_publishers_are_in_it(kept: BrokerProcess, tmp_path: Path) -> None:
    manifest = back_up(_url(kept), tmp_path / "backup")
    assert {file.name for file in manifest.files} >= {
        "published.json",
        "retained.sqlite",
        "journal/journal.json",
        "journal/groups.json",
    }
    restore(tmp_path / "backup", tmp_path / "data")
    groups = json.loads((tmp_path / "data/journal/groups.json").read_text())
    assert list(groups["tables"]["positions"].values()) == [1]
    assert json.loads((tmp_path / "data/published.json").read_text()) == {"gateway": [7, 0]}


def test_nobody_else_may_read_a_backup_or_what_is_restored(
    kept: BrokerProcess, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        back_up(_url(kept), tmp_path / "backup")
        restore(tmp_path / "backup", tmp_path / "data")
    finally:
        os.umask(before)
    for folder in ("backup", "data"):
        for path in (tmp_path / folder, *(tmp_path / folder).rglob("*")):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_file_that_was_changed_is_not_restored(kept: BrokerProcess, tmp_path: Path) -> None:
    back_up(_url(kept), tmp_path / "backup")
    segment = next((tmp_path / "backup").rglob("*.mjl"))
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    with pytest.raises(RestoreError, match="not as it was backed up"):
        restore(tmp_path / "backup", tmp_path / "data")
    assert not (tmp_path / "data").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["backup"]


def test_what_is_there_is_not_touched(kept: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    with pytest.raises(BackupError, match="is there already"):
        back_up(_url(kept), tmp_path / "mine")
    back_up(_url(kept), tmp_path / "backup")
    with pytest.raises(RestoreError, match="is there already"):
        restore(tmp_path / "backup", tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter"]


def test_a_folder_that_cannot_be_made_is_named(kept: BrokerProcess, tmp_path: Path) -> None:
    """The user's folder, and why in words; no temporary one beside it, and no errno."""
    (tmp_path / "file").touch()
    back_up(_url(kept), tmp_path / "backup")
    below_a_file = str(tmp_path / "file" / "x")
    for where, why in ((below_a_file, "Not a directory"), ("/proc/x", "No such file or directory")):
        made = CliRunner().invoke(backup_command, [where, "--from", _url(kept)])
        assert (made.exit_code, made.stderr) == (1, f"backup: error: {where}: {why}\n")
        made = CliRunner().invoke(restore_command, [str(tmp_path / "backup"), where])
        assert (made.exit_code, made.stderr) == (1, f"restore: error: {where}: {why}\n")


def test_what_does_not_fit_is_not_begun(
    kept: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = back_up(_url(kept), tmp_path / "backup")
    size = sum(file.size for file in manifest.files)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=size // 2))
    with pytest.raises(BackupError, match=f"has room for {size // 2:,}"):
        back_up(_url(kept), tmp_path / "second")
    with pytest.raises(RestoreError, match=f"has room for {size // 2:,}"):
        restore(tmp_path / "backup", tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["backup"]


def test_no_folder_but_a_backup_is_restored(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(RestoreError, match="no backup"):
        restore(tmp_path / "other", tmp_path / "data")
    (tmp_path / "other" / MANIFEST).write_text("[]")
    with pytest.raises(RestoreError, match="no backup"):
        restore(tmp_path / "other", tmp_path / "data")


def test_a_backup_without_data_and_without_a_broker() -> None:
    with broker("--listen", "auto://127.0.0.1:0", "--ephemeral") as running:
        result = CliRunner().invoke(backup_command, ["x", "--from", _url(running)])
        assert result.exit_code == 1
        assert "nothing to back up" in result.output
        running.end()
    result = CliRunner().invoke(backup_command, ["x", "--from", _url(running)])
    assert result.exit_code == 1
    assert "no broker answers" in result.output
    assert not Path("x").exists()


@pytest.mark.parametrize(
    "name", ["../etc/passwd", "/etc/passwd", "journal/p0000/../../x", "journal/p0000/x.mjl", "x"]
)
def test_a_hostile_broker_writes_nowhere_else(name: str, tmp_path: Path) -> None:
    assert not is_allowed(name)
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w|") as tar:
        member = tarfile.TarInfo(name)
        member.size = 4
        tar.addfile(member, io.BytesIO(b"evil"))
    from host_broker.cli.backup import _unpack

    with pytest.raises(BackupError, match="unasked"):
        _unpack(io.BytesIO(body.getvalue()), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_backup_that_is_cut_off_is_none(kept: BrokerProcess, tmp_path: Path) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", kept.ports["auto"], timeout=20)
    connection.request("GET", "/backup")
    whole = connection.getresponse().read()
    connection.close()
    from host_broker.cli.backup import _unpack

    (tmp_path / "whole").mkdir()
    _unpack(io.BytesIO(whole), tmp_path / "whole")
    manifest_at = whole.index(MANIFEST.encode())
    for end in (700, manifest_at - 300, manifest_at, manifest_at + 700):
        folder = tmp_path / f"cut-{end}"
        folder.mkdir()
        with pytest.raises(BackupError):
            _unpack(io.BytesIO(whole[:end]), folder)


@pytest.mark.parametrize(
    "spelled",
    [
        b"",
        b"{}",
        b'{"format": 2}',
        b'{"format": 1, "journal": "", "taken_ns": 1, "nexts": [], "files": [{"name": "../x", '
        b'"size": 1, "written_ns": 1, "sha256": "' + b"0" * 64 + b'"}]}',
    ],
)
def test_a_manifest_that_is_none(spelled: bytes) -> None:
    with pytest.raises(BackupFault):
        read_manifest(spelled)


def test_with_users_only_who_administrates_gets_it_and_users_and_rules_are_in_it(
    tmp_path: Path,
) -> None:
    token = "a-token-of-a-test"
    digest = "sha256:" + hashlib.sha256(token.encode()).hexdigest()
    users, rules = tmp_path / "who.toml", tmp_path / "what.toml"
    write_users(users, {"ann": User(token=digest), "bob": User(token=digest[:-1] + "0")})
    rules.write_text('[principals.ann]\nconnect = ["http"]\njournal = ["**"]\n')
    access = ("--set", f"access.users={users}", "--set", f"access.rules={rules}")
    options = ("--data", str(tmp_path / "data"), "--listen", "auto://127.0.0.1:0")
    with broker(*options, *access) as running:
        with pytest.raises(BackupError, match="401"):
            back_up(_url(running), tmp_path / "backup")
        with pytest.raises(BackupError, match="may not admin 'backup'"):
            back_up(_url(running), tmp_path / "backup", token)
        rules.write_text(rules.read_text() + 'admin = ["backup"]\n')
        running.process.send_signal(signal.SIGHUP)

        def made() -> bool:
            with contextlib.suppress(BackupError):
                back_up(_url(running), tmp_path / "backup", token)
            return (tmp_path / "backup").exists()

        until(made)
        assert running.end()[0] == 0
    restore(tmp_path / "backup", tmp_path / "restored")
    for name, path in (("users.toml", users), ("acl.toml", rules)):
        copy = tmp_path / "restored" / name
        assert copy.read_bytes() == path.read_bytes()
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert token.encode() not in b"".join(
        path.read_bytes() for path in (tmp_path / "backup").rglob("*") if path.is_file()
    )
