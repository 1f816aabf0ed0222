"""A broker that is killed in the middle of a publication with a number: it is there once."""

import http.client
import json
import os
import signal
import struct
import sys
from pathlib import Path

import pytest

from host_broker.net.journal.index import index_path
from host_broker.net.journal.numbered import name_of, newest
from host_broker.net.journal.segment import Partition
from host_broker.outputs import Record
from host_broker.settings import JournalSettings
from tests.host_broker.net.broker_process import END_S, START_S, broker, line_of, spawn
from tests.host_broker.net.journal_decoder import Stored, read_segment
from tests.journal_segment import JOURNAL

_MANY = 1500
_DIES = """
import os, signal
from host_broker.net.journal.writer import Journal
from host_broker.net.storage.deduplicator import Deduplicator
from motemq.cli import main

{method} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
main()
"""
_FAILS_ONCE = """
import errno
from host_broker.net.journal.writer import Journal
from host_broker.net.storage.deduplicator import Deduplicator
from motemq.cli import main

failures = [TimeoutError() if "{method}" == "Journal.reach" else OSError(errno.ENOSPC, "full")]
works = {method}

def fails(self, *said):
    if failures and said[-1] not in ("kept", "written"):
        raise failures.pop()
    return works(self, *said)

{method} = fails
main()
"""
# What is longer than one read, to as many topics: the broker makes many runs of it.
_BODY = b"".join(
    struct.pack(">BBI", 0, 6, 400) + b"t/%04d" % number + b"%04d" % number * 100
    for number in range(_MANY)
)
_KNOWN = {"published": 0, "known": True}


def _post(port: int, number: str) -> dict[str, object]:
    return _answer(port, number)[1]


def _answer(port: int, number: str) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        headers = {
            "Content-Type": "application/x-fmqp",
            "Publisher": "query:1",
            "Publisher-Number": number,
        }
        connection.request("POST", "/publish", _BODY, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def _journalled(data: Path) -> list[Stored]:
    found: list[Stored] = []
    for folder in sorted((data / "journal").glob("p*")):
        paths = sorted(folder.glob("*.mjl"))
        for path in paths:
            name = f"{folder.name}/{path.name}"
            messages, _ = read_segment(name, path.read_bytes(), None, path == paths[-1])
            found += messages
    return found


@pytest.mark.parametrize("method", ["Journal.reach", "Deduplicator.remember"])
def test_it_is_published_once_whenever_the_broker_was_killed(tmp_path: Path, method: str) -> None:
    options = ["--data", str(tmp_path), "--listen", "auto://127.0.0.1:0"]
    options += ["--set", "journal.flush_s=60"]  # it is written when it must be
    program = _DIES.format(method=method)
    doomed = spawn([sys.executable, "-c", program, "broker", *options])
    try:
        port = int(line_of(doomed, START_S).rpartition(":")[2])
        with pytest.raises((OSError, http.client.HTTPException)):
            _post(port, "7.0")
        assert doomed.wait(END_S) == -signal.SIGKILL
    finally:
        doomed.kill()
        doomed.communicate()
    there = _journalled(tmp_path)
    assert len(there) == (0 if method == "Journal.reach" else _MANY)
    with broker(*options) as running:
        first = _post(running.ports["auto"], "7.0")
        assert first == (_KNOWN if there else {"published": _MANY, "discarded": 0})
        assert _post(running.ports["auto"], "7.0") == _KNOWN
        assert _post(running.ports["auto"], "7.1")["published"] == _MANY
        running.end(signal.SIGKILL)
    found = _journalled(tmp_path)
    topics = [f"t/{number:04d}" for number in range(_MANY)]
    assert [message.topic for message in found if message.client == "query:1 7.0"] == topics
    assert [message.topic for message in found if message.client == "query:1 7.1"] == topics
    assert len(found) == 2 * _MANY
    with broker(*options) as running:
        assert _post(running.ports["auto"], "7.1") == _KNOWN


@pytest.mark.parametrize("method", ["Journal.reach", "Deduplicator.remember"])
def test_what_the_disk_did_not_answer_in_time_is_published_once(
    tmp_path: Path, method: str
) -> None:
    options = ["--data", str(tmp_path), "--listen", "auto://127.0.0.1:0"]
    program = _FAILS_ONCE.format(method=method)
    running = spawn([sys.executable, "-c", program, "broker", *options])
    try:
        port = int(line_of(running, START_S).rpartition(":")[2])
        status, said = _answer(port, "7.0")
        assert (status, "error" in said) == (503, True)
        assert _answer(port, "7.0") == (200, _KNOWN)
        assert _post(port, "7.1")["published"] == _MANY
        running.terminate()
        assert running.wait(END_S) == 0
    finally:
        running.kill()
        _, stderr = running.communicate()
    assert stderr == b""
    found = _journalled(tmp_path)
    assert [message.client for message in found].count("query:1 7.0") == _MANY
    assert len(found) == 2 * _MANY


def _write(partition: Partition, client: str, protocol: int = 1) -> None:
    partition.append(0, Record(4, protocol, client, 1, b"\0\1\0\0\0\1aX"))
    partition.flush()


def test_the_newest_is_found_also_behind_segments_without_any(tmp_path: Path) -> None:
    partition = Partition(tmp_path, 0, JOURNAL, 7, JournalSettings(segment_bytes=300))
    for part in range(3):
        _write(partition, name_of("spark", (3, part)))
    for _ in range(40):
        _write(partition, "")
        _write(partition, "a b 1.1")
        _write(partition, "board 9.9", protocol=2)  # a LightMQ client may have any name
    partition.close()
    segments = sorted((tmp_path / "p0000").glob("*.mjl"))
    assert len(segments) > 5
    now_s = segments[-1].stat().st_mtime
    assert list(newest(tmp_path, now_s)) == [("spark", (3, 2))]
    for path in segments[:-1]:
        os.utime(path, (now_s - 3600, now_s - 3600))
    assert list(newest(tmp_path, now_s)) == []  # long remembered
    whole = bytearray(segments[0].read_bytes())
    whole[whole.index(b"spark 3.2") + 1] ^= 1  # never whole: not counted
    segments[0].write_bytes(whole)
    index_path(segments[0]).unlink()
    assert list(newest(tmp_path, 0.0)) == [("spark", (3, 1))]
