"""fq.sqlite of a broker that runs: what lasts, and what other programs change."""

import json
import re
import signal
import sqlite3
import struct
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from host_broker.cli.backup import back_up
from host_broker.cli.restore import restore
from host_broker.protocols.fq.keeper import MAX_COMPLAINT
from host_broker.protocols.fq.pages import MAX_MARKS
from tests.host_broker.net.broker_process import BrokerProcess, broker, until
from tests.host_broker.net.fq_client import FqClient, FqRefused, fq_client

_PAGE = (Path(__file__).parents[3] / "docs" / "fq.md").read_text()
_LISTEN = ("--listen", "fq://127.0.0.1:0")
_PERMANENT = b"permq\0mem:public,drop,backlog=7,permanent"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def running(data: Path) -> Iterator[BrokerProcess]:
    with broker("--data", str(data), *_LISTEN) as process:
        yield process


def _rows(data: Path, table: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(data / "fq.sqlite", timeout=10) as database:
        found = database.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
    database.close()
    return found


def _change(data: Path, *statements: str) -> None:
    with sqlite3.connect(data / "fq.sqlite", timeout=10) as database:
        database.execute("PRAGMA foreign_keys = ON")
        for statement in statements:
            database.execute(statement)
    database.close()


def _submit(running: BrokerProcess, exchange: str, route: str, payload: bytes) -> None:
    url = f"http://127.0.0.1:{running.ports['fq']}/submit"
    headers = {"X-Fq-Exchange": exchange, "X-Fq-Route": route}
    with urllib.request.urlopen(
        urllib.request.Request(url, payload, headers), timeout=20
    ) as answer:
        assert answer.status == 200


def _statistics(running: BrokerProcess) -> dict[str, Any]:
    url = f"http://127.0.0.1:{running.ports['fq']}/stats.json"
    with urllib.request.urlopen(url, timeout=20) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def test_permanent_queues_and_bindings_come_back(data: Path) -> None:
    """R35, R36: after kill -9; those of memory are empty then, with another route id."""
    with broker("--data", str(data), *_LISTEN) as running:
        with fq_client(running.ports["fq"], _PERMANENT) as client:
            client.bind_permanently(b"e", b'prefix:"a"')
            client.bind(b"e", b'prefix:"transient"')
            client.publish(b"e", b"a", b"lost")
            assert client.payloads(1) == [b"lost"]
            client.publish(b"e", b"a", b"lost, too")
            assert client.payloads(1) == [b"lost, too"]
        assert _rows(data, "queue") == [("permq", "mem", "public,drop,backlog=7")]
        assert _rows(data, "binding") == [("e", "permq", "false", 'prefix:"a"')]
        running.end(signal.SIGKILL)
    with broker("--data", str(data), *_LISTEN) as running:
        queue = _statistics(running)["queues"]["permq"]
        assert (queue["private"], queue["backlog_limit"], queue["backlog"]) == (False, 7, 0)
        routes = _statistics(running)["exchanges"]["e"]["routes"]
        assert [(each["program"], each["permanent"]) for each in routes.values()] == [
            ('prefix:"a"', True)
        ]
        with fq_client(running.ports["fq"], b"sender") as sender:
            sender.publish(b"e", b"a", b"kept for permq")
            with fq_client(running.ports["fq"], b"permq\0mem:public") as client:
                assert client.payloads(1) == [b"kept for permq"]


def test_what_is_unspecified_stays_as_it_was(running: BrokerProcess, data: Path) -> None:
    """R36, R37: permanent and transient are said; a queue with permanent bindings stays."""
    port = running.ports["fq"]
    with fq_client(port, b"q\0mem:permanent"):
        pass
    with fq_client(port, b"q\0mem") as client:
        assert len(_rows(data, "queue")) == 1
        client.bind_permanently(b"e", b"prefix:")
        assert len(_rows(data, "binding")) == 1
        client.bind(b"e", b"prefix:")
        assert len(_rows(data, "binding")) == 1
    until(lambda: not _statistics(running)["queues"]["q"]["clients"])
    with fq_client(port, b"q\0mem:transient") as client:
        assert len(_rows(data, "queue")) == 1  # the foreign key, as in fqd
        client.bind_for_now(b"e", b"prefix:")
        assert _rows(data, "binding") == []
    until(lambda: "q" not in _statistics(running)["queues"])
    with fq_client(port, b"r\0mem:permanent"):
        pass
    until(lambda: not _statistics(running)["queues"]["r"]["clients"])
    with fq_client(port, b"r\0mem:transient"):
        assert [row[0] for row in _rows(data, "queue")] == ["q"]
    until(lambda: "r" not in _statistics(running)["queues"])


def test_an_unbound_binding_is_forgotten(running: BrokerProcess, data: Path) -> None:
    """R18, R36."""
    with fq_client(running.ports["fq"], b"q\0mem:permanent") as client:
        route = client.bind_permanently(b"e", b"prefix:")
        assert len(_rows(data, "binding")) == 1
        assert client.unbind(b"e", route) == route
        assert _rows(data, "binding") == []


def test_rows_added_by_hand_are_done_while_the_broker_runs(
    running: BrokerProcess, data: Path
) -> None:
    """R36: within a second or so: queues, bindings, and their end."""
    port = running.ports["fq"]
    _change(
        data,
        "INSERT INTO queue VALUES ('byhand', 'mem', 'public,drop,backlog=5')",
        "INSERT INTO binding VALUES ('e', 'byhand', 'false', 'prefix:\"a\"')",
    )
    until(lambda: "byhand" in _statistics(running)["queues"])
    until(lambda: bool(_statistics(running)["exchanges"]["e"]["routes"]))
    with fq_client(port, b"sender") as sender:
        for number in range(7):
            sender.publish(b"e", b"a", b"%d" % number)
        until(lambda: _statistics(running)["queues"]["byhand"]["backlog"] == 5)
        assert _statistics(running)["queues"]["byhand"]["dropped_to"] == 2
        with fq_client(port, b"byhand\0mem:public") as client:
            assert client.payloads(5) == [b"0", b"1", b"2", b"3", b"4"]
            _change(data, "DELETE FROM binding")
            until(lambda: not _statistics(running)["exchanges"]["e"]["routes"])
            sender.publish(b"e", b"a", b"nobody's")
            _change(data, "DELETE FROM queue")
            client.bind(b"e", b"exact:b")
            sender.publish(b"e", b"b", b"still there")
            assert client.payloads(1) == [b"still there"]
    until(lambda: "byhand" not in _statistics(running)["queues"])


def test_a_queue_that_nobody_uses_goes_with_its_row(running: BrokerProcess, data: Path) -> None:
    """R36: at once, with what waits in it."""
    _change(data, "INSERT INTO queue VALUES ('idle', 'mem', 'public')")
    until(lambda: "idle" in _statistics(running)["queues"])
    _change(data, "DELETE FROM queue")
    until(lambda: "idle" not in _statistics(running)["queues"])


def test_rows_that_cannot_be_used_are_named_in_the_log(running: BrokerProcess, data: Path) -> None:
    """R17, R36: once each; the others are done."""
    _change(
        data,
        "INSERT INTO queue VALUES ('bad', 'tape', '')",
        "INSERT INTO queue VALUES ('worse', 'mem', 'public,bogus')",
        "INSERT INTO queue VALUES ('good', 'mem', NULL)",
        "INSERT INTO binding VALUES ('e', 'good', 'false', 'foo:x')",
        "INSERT INTO binding VALUES ('e', 'good', 'false', 'prefix:x')",
    )
    until(lambda: "good" in _statistics(running)["queues"])
    routes = _statistics(running)["exchanges"]["e"]["routes"]
    assert [each["program"] for each in routes.values()] == ["prefix:x"]
    _change(data, "DELETE FROM queue WHERE name = 'worse'")
    with fq_client(running.ports["fq"], b"last"):
        pass
    _, said = running.end()
    assert "the queue b'bad' cannot be had: invalid queue type: tape" in said
    assert said.count("invalid queue param: bogus") == 1
    assert "the program b'foo:x' of b'e'" in said
    assert "Traceback" not in said


def test_a_long_cell_is_no_long_line(running: BrokerProcess, data: Path) -> None:
    """More than a pipe holds, which nobody reads: the broker goes on."""
    _change(
        data,
        "INSERT INTO queue VALUES ('q', 'mem', 'public')",
        "INSERT INTO binding VALUES ('e', 'q', 'false', 'prefix:\"' || hex(zeroblob(100000)))",
        "INSERT INTO queue VALUES ('r', 'mem', hex(zeroblob(100000)))",
    )
    until(lambda: "q" in _statistics(running)["queues"])
    _change(data, "INSERT INTO queue VALUES ('after', 'mem', 'public')")
    until(lambda: "after" in _statistics(running)["queues"])
    _, said = running.end()
    lines = said.splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) < MAX_COMPLAINT + 100


def test_a_queue_that_is_there_stays_as_it_is(data: Path) -> None:
    """Whatever becomes of its row, which counts from the next start; that is said."""
    with broker("--data", str(data), *_LISTEN) as running:
        _change(data, "INSERT INTO queue VALUES ('q', 'mem', 'public')")
        until(lambda: "q" in _statistics(running)["queues"])
        _change(
            data,
            "UPDATE queue SET attributes = 'public,block,backlog=7'",
            "INSERT INTO queue VALUES ('after', 'mem', '')",
        )
        until(lambda: "after" in _statistics(running)["queues"])
        assert _statistics(running)["queues"]["q"]["policy"] == "drop"
        _, said = running.end()
    stays = "the queue b'q' stays mem:public,drop,backlog=16384 while the broker runs"
    assert said.count(stays) == 1
    with broker("--data", str(data), *_LISTEN) as running:
        until(lambda: "q" in _statistics(running)["queues"])
        assert _statistics(running)["queues"]["q"]["policy"] == "block"
        _, said = running.end()
    assert said == ""


def test_another_program_s_change_holds_nobody_up(running: BrokerProcess, data: Path) -> None:
    """R36: who wants a permanent queue meanwhile has it; the row comes when it can."""
    database = sqlite3.connect(data / "fq.sqlite", isolation_level=None, timeout=10)
    database.execute("BEGIN IMMEDIATE")
    with fq_client(running.ports["fq"], b"q\0mem:permanent") as client:
        client.bind_permanently(b"e", b"prefix:")
        client.publish(b"e", b"", b"x")
        assert client.payloads(1) == [b"x"]
        database.execute("COMMIT")
        database.close()
        until(lambda: len(_rows(data, "binding")) == 1)
    assert [row[0] for row in _rows(data, "queue")] == ["q"]


def test_many_rows(data: Path) -> None:
    """R36, R44: ten thousand bindings are there soon after the start, one copy for the queue."""
    with broker("--data", str(data), *_LISTEN) as running:
        running.end()
    with sqlite3.connect(data / "fq.sqlite") as database:
        database.execute("INSERT INTO queue VALUES ('many', 'mem', 'public')")
        database.executemany(
            "INSERT INTO binding VALUES ('e', 'many', 'false', ?)",
            [(f'prefix:"p{number}"',) for number in range(10_000)],
        )
    database.close()
    with broker("--data", str(data), *_LISTEN) as running:
        until(lambda: len(_statistics(running)["exchanges"]["e"]["routes"]) == 10_000)
        with fq_client(running.ports["fq"], b"many\0mem:public") as client:
            client.publish(b"e", b"p9999", b"once")  # p9, p99, p999, p9999
            client.publish(b"e", b"p1", b"last")
            assert client.payloads(2) == [b"once", b"last"]


def test_rows_that_go_at_once(data: Path) -> None:
    """R36: what was begun for them is done first, however long that takes; then it is undone."""
    with broker("--data", str(data), *_LISTEN) as running:
        with sqlite3.connect(data / "fq.sqlite") as database:
            database.execute("INSERT INTO queue VALUES ('many', 'mem', 'public')")
            database.executemany(
                "INSERT INTO binding VALUES ('e', 'many', 'false', ?)",
                [(f'prefix:"p{number}"',) for number in range(10_000)],
            )
        until(lambda: "e" in _statistics(running)["exchanges"])
        _change(data, "DELETE FROM binding", "INSERT INTO queue VALUES ('next', 'mem', '')")
        database.close()
        until(lambda: "next" in _statistics(running)["queues"])
        until(lambda: not _statistics(running)["exchanges"]["e"]["routes"])


def test_disk_queues_survive(data: Path) -> None:
    """R35, R36: with what nobody had taken, after kill -9."""
    disk = b"d\0disk:public,permanent"
    with broker("--data", str(data), *_LISTEN) as running:
        with FqClient(running.ports["fq"], disk, data=False) as client:
            client.bind_permanently(b"e", b"prefix:")
            with fq_client(running.ports["fq"], b"sender") as sender:
                for number in range(99):
                    sender.publish(b"e", b"r", b"%d" % number)
                until(lambda: _statistics(running)["queues"]["d"]["backlog"] == 99)
            _submit(running, "e", "r", b"99")  # its answer says that this one, too, is kept
        running.end(signal.SIGKILL)
    with (
        broker("--data", str(data), *_LISTEN) as running,
        fq_client(running.ports["fq"], disk) as client,
        fq_client(running.ports["fq"], b"sender") as sender,
    ):
        assert client.payloads(100) == [b"%d" % number for number in range(100)]
        sender.publish(b"e", b"r", b"more")
        assert client.payloads(1) == [b"more"]


def _checkpoint(running: BrokerProcess, do: str, **query: str) -> tuple[str, str]:
    url = f"http://127.0.0.1:{running.ports['fq']}/{do}?{urllib.parse.urlencode(query)}"
    asked = urllib.request.Request(url, b"", method="POST")
    with urllib.request.urlopen(asked, timeout=20) as answer:
        said = json.loads(answer.read())
    return said["status"], said["message"]


def _place(id: bytes) -> str:
    """Return where a message is in its queue, as its id says it."""
    log, marker = struct.unpack_from("<II", id, 8)
    return f"{log}:{marker}"


def test_checkpoints(data: Path) -> None:
    """R26, R35: what was consumed since one comes again, also after kill -9."""
    disk = b"d\0disk:public,permanent,backlog=1000"
    added = "success", "Checkpoint added"
    with broker("--data", str(data), *_LISTEN) as running:
        here = {"qname": "d", "cpname": "here"}
        missing = "error", "Cannot find registered queue 'd'"
        assert _checkpoint(running, "add_checkpoint", **here, chkptid="0:0") == missing
        with fq_client(running.ports["fq"], disk) as client:
            client.bind_permanently(b"e", b"prefix:")
            assert _checkpoint(running, "add_checkpoint", **here, chkptid="0:0") == added
            for number in range(10):
                client.publish(b"e", b"r", b"%d" % number)
            assert client.payloads(10) == [b"%d" % number for number in range(10)]
            sixth = _place(client.last_ids[6])
            later = {"qname": "d", "cpname": "later"}
            assert _checkpoint(running, "add_checkpoint", **later, chkptid=sixth) == added
            too_far = "error", "'chkptid' is out of range of the queue"
            assert _checkpoint(running, "add_checkpoint", **later, chkptid="0:11") == too_far
            reset = "success", "'d' reset to checkpoint 'later'"
            assert _checkpoint(running, "reset_to_checkpoint", **later) == reset
            assert client.payloads(3) == [b"7", b"8", b"9"]
        _submit(running, "e", "r", b"waits")
        running.end(signal.SIGKILL)
    with broker("--data", str(data), *_LISTEN) as running:
        until(lambda: "d" in _statistics(running)["queues"])
        with fq_client(running.ports["fq"], disk) as client:
            assert client.payloads(1) == [b"waits"]  # and nothing that was done with
            assert _checkpoint(running, "reset_to_checkpoint", **here)[0] == "success"
            again = [*(b"%d" % number for number in range(10)), b"waits"]
            assert client.payloads(11) == again
            assert _checkpoint(running, "remove_checkpoint", **here)[0] == "success"
            gone = "error", "Checkpoint does not exist"
            assert _checkpoint(running, "remove_checkpoint", **here) == gone
            assert _checkpoint(running, "reset_to_checkpoint", **here) == gone
            assert _checkpoint(running, "reset_to_checkpoint", **later)[0] == "success"
            assert client.payloads(4) == [b"7", b"8", b"9", b"waits"]
        running.end()  # until then some may be on its way to the file
    # What nobody needs is not in the file.
    with sqlite3.connect(data / "retained.sqlite") as database:
        assert database.execute("SELECT count(*) FROM queued WHERE number > 0").fetchone() == (4,)
    database.close()


def test_there_are_so_many_checkpoints(running: BrokerProcess) -> None:
    """Each keeps messages; one that is there may be set again."""
    with fq_client(running.ports["fq"], b"d\0disk:permanent"):
        query = {"qname": "d", "chkptid": "0:0"}
        for number in range(MAX_MARKS):
            assert _checkpoint(running, "add_checkpoint", cpname=str(number), **query)[0] != "error"
        said = _checkpoint(running, "add_checkpoint", cpname="one more", **query)
        assert said == ("error", f"there are {MAX_MARKS} checkpoints already")
        assert _checkpoint(running, "add_checkpoint", cpname="0", **query)[0] == "success"


def test_the_page(running: BrokerProcess) -> None:
    """The requests of docs/fq.md, in that order."""
    lines = re.findall(r"^curl -X POST '(.*checkpoint.*)'$", _PAGE, re.MULTILINE)
    assert len(lines) == 3
    with fq_client(running.ports["fq"], b"alarms\0disk:public,permanent"):
        for line in lines:
            where = urllib.parse.urlsplit(line)
            assert where.netloc == "127.0.0.1:8765"
            query = dict(urllib.parse.parse_qsl(where.query))
            assert _checkpoint(running, where.path[1:], **query)[0] == "success", line


def test_checkpoints_are_of_permanent_queues_on_disk(running: BrokerProcess) -> None:
    """In fqd's words; a GET changes nothing."""
    port = running.ports["fq"]
    with (
        fq_client(port, b"t\0disk:public"),
        fq_client(port, b"m\0mem:public,permanent"),
    ):
        for name, kind in (("t", "ephemeral"), ("m", "memory")):
            said = _checkpoint(running, "add_checkpoint", qname=name, cpname="c", chkptid="0:0")
            assert said == ("error", f"Checkpoints on {kind} queues not supported")
        url = f"http://127.0.0.1:{port}/add_checkpoint?qname=t&cpname=c&chkptid=0:0"
        with pytest.raises(urllib.error.HTTPError, match="405"):
            urllib.request.urlopen(url, timeout=20)


def test_a_backup_has_it(running: BrokerProcess, data: Path, tmp_path: Path) -> None:
    """R36: what lasts is in a backup, and in the folder that is restored."""
    with fq_client(running.ports["fq"], _PERMANENT) as client:
        client.bind_permanently(b"e", b"prefix:")
        back_up(f"http://127.0.0.1:{running.ports['fq']}", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    assert _rows(tmp_path / "restored", "queue") == _rows(data, "queue") != []
    assert _rows(tmp_path / "restored", "binding") == _rows(data, "binding") != []


def test_without_a_data_folder() -> None:
    """R36: no disk queues, in words; permanent ones last as long as the broker."""
    with broker(*_LISTEN) as running:
        with pytest.raises(FqRefused, match="--data"):
            FqClient(running.ports["fq"], b"d\0disk:public")
        with fq_client(running.ports["fq"], b"q\0mem:public,permanent") as client:
            client.bind_permanently(b"e", b"prefix:")
        until(lambda: not _statistics(running)["queues"]["q"]["clients"])
        with fq_client(running.ports["fq"], b"sender") as sender:
            sender.publish(b"e", b"r", b"x")
            with fq_client(running.ports["fq"], b"q\0mem:public") as client:
                assert client.payloads(1) == [b"x"]
