"""fq's tables in a file that other programs change."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_broker.net.storage import protocol_tables
from host_broker.net.storage.protocol_tables import (
    MAX_PENDING,
    ProtocolTables,
    TableFileError,
)
from host_broker.protocols.fq.configuration import (
    TABLES,
    BindingRow,
    Configuration,
    QueueRow,
    Upstream,
    forget_binding,
    forget_bindings_of,
    forget_queue,
    keep_binding,
    keep_queue,
    read_tables,
)

_ODD = bytes(range(256))


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[ProtocolTables]:
    opened = ProtocolTables(tmp_path, TABLES)
    yield opened
    opened.close()


@pytest.fixture
def other(tables: ProtocolTables) -> Iterator[sqlite3.Connection]:
    """Another program."""
    connection = sqlite3.connect(tables.path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA foreign_keys = ON")
    yield connection
    connection.close()


def _found(tables: ProtocolTables) -> Configuration:
    rows = tables.changed()
    assert rows is not None
    return read_tables(rows)


def test_rows_are_told_at_first_and_when_somebody_else_has_changed_them(
    tables: ProtocolTables, other: sqlite3.Connection
) -> None:
    """R36, R47: in fqd's schema; our own changes are no news."""
    assert _found(tables) == Configuration()
    assert tables.changed() is None
    assert tables.write([keep_queue(QueueRow(b"a"))])
    assert tables.changed() is None
    other.execute("INSERT INTO queue VALUES ('permq', 'mem', 'public,drop,backlog=7')")
    other.execute("INSERT INTO binding VALUES ('e', 'permq', 'false', 'prefix:\"a\"')")
    other.execute(
        "INSERT INTO upstream (host, source, password, exchange) VALUES ('h', 'u/q', 'p', 'e')"
    )
    found = _found(tables)
    assert found.complaints == ()
    assert found.queues == {
        b"a": QueueRow(b"a"),
        b"permq": QueueRow(b"permq", b"mem", b"public,drop,backlog=7"),
    }
    assert found.bindings == {BindingRow(b"e", b"permq", b'prefix:"a"')}
    assert found.upstreams == {Upstream("h", 8765, b"u/q", b"p", b"e")}
    assert tables.changed() is None


def test_names_are_any_bytes(tables: ProtocolTables) -> None:
    """R38: what is written comes back, byte for byte."""
    queue, binding = QueueRow(_ODD[1:128], b"disk", b"x"), BindingRow(_ODD[:127], _ODD[1:128], _ODD)
    assert tables.write([keep_queue(queue), keep_binding(binding)])
    assert _found(tables) == Configuration({queue.name: queue}, frozenset([binding]))
    assert tables.write([forget_binding(binding), forget_queue(queue.name)])
    with sqlite3.connect(tables.path) as reader:
        assert reader.execute("SELECT count(*) FROM queue").fetchone() == (0,)
    reader.close()


def test_a_queue_with_permanent_bindings_stays(tables: ProtocolTables) -> None:
    """R36: the foreign key keeps it, silently as in fqd, until its bindings are gone."""
    queue, binding = QueueRow(b"q"), BindingRow(b"e", b"q", b"prefix:", peer=True)
    orphan = BindingRow(b"e", b"nosuch", b"prefix:")
    changes = [keep_queue(queue), keep_binding(binding), forget_queue(b"q"), keep_binding(orphan)]
    assert tables.write(changes)
    assert _found(tables) == Configuration({b"q": queue}, frozenset([binding]))
    assert tables.write([forget_bindings_of(b"q"), forget_queue(b"q")])
    with sqlite3.connect(tables.path) as reader:
        assert reader.execute("SELECT count(*) FROM queue").fetchone() == (0,)
    reader.close()


def test_changes_wait_while_another_program_is_in_the_middle_of_one(
    tables: ProtocolTables, other: sqlite3.Connection
) -> None:
    """R36: nothing waits for it but the changes, and no rows are told without them."""
    _found(tables)
    other.execute("BEGIN IMMEDIATE")
    other.execute("INSERT INTO queue VALUES ('theirs', 'mem', '')")
    assert not tables.write([keep_queue(QueueRow(b"ours"))])
    assert not tables.write([keep_queue(QueueRow(b"ours, too"))])
    assert tables.changed() is None
    other.execute("COMMIT")
    assert set(_found(tables).queues) == {b"ours", b"ours, too", b"theirs"}


def test_what_waits_is_bounded(
    tables: ProtocolTables, other: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    other.execute("BEGIN IMMEDIATE")
    tables.write(keep_queue(QueueRow(b"%d" % number)) for number in range(MAX_PENDING + 2))
    other.execute("COMMIT")
    assert tables.write(())
    assert caplog.text.count("is locked for too long: lost is") == 2
    assert len(_found(tables).queues) == MAX_PENDING


def test_rows_that_mean_nothing_are_complained_of(
    tables: ProtocolTables, other: sqlite3.Connection
) -> None:
    other.execute("PRAGMA foreign_keys = OFF")
    other.execute("INSERT INTO queue VALUES ('', 'mem', NULL)")
    other.execute("INSERT INTO queue VALUES ('odd', 'mem', NULL)")
    other.execute("INSERT INTO binding VALUES ('e', 'nosuch', 'false', 'prefix:')")
    other.execute("INSERT INTO binding VALUES ('e', 'odd', 1, NULL)")
    for port in (0, 65536, "'http'"):
        other.execute(f"INSERT INTO upstream VALUES ('h', {port}, 's', 'p', 'e', '', 'true')")
    other.execute("INSERT INTO upstream VALUES (CAST(x'ff' AS TEXT), 1, 's', 'p', 'e', '', 'true')")
    found = _found(tables)
    assert found.queues == {b"odd": QueueRow(b"odd")}
    assert found.bindings == {BindingRow(b"e", b"odd", b"", peer=True)}
    assert found.upstreams == frozenset()
    assert len(found.complaints) == 6
    assert "'nosuch'" in " ".join(found.complaints)


def test_cells_of_any_kind_stop_nothing(tables: ProtocolTables, other: sqlite3.Connection) -> None:
    """R36, R47: a row that cannot be used is named, and all others are told."""
    other.execute("PRAGMA foreign_keys = OFF")
    no_text = "CAST(x'ff' AS TEXT)"
    for cell in (no_text, "x'00ff'", "7", "1.5", "'text'"):
        other.execute(f"INSERT INTO queue VALUES ({cell}, {cell}, {cell})")
        other.execute(f"INSERT INTO binding VALUES ({cell}, {cell}, {cell}, {cell})")
        columns = ", ".join([cell] * 7)
        other.execute(f"INSERT INTO upstream VALUES ({columns})")
    other.execute("INSERT INTO queue VALUES ('good', 'mem', '')")
    other.execute("INSERT INTO binding VALUES ('e', 'good', 'true', 'prefix:')")
    other.execute("INSERT INTO upstream VALUES ('h', '8766', 's', 'p', 'e', '', 1)")
    found = _found(tables)
    assert found.queues[b"good"] == QueueRow(b"good")
    assert found.queues[b"\xff"] == QueueRow(b"\xff", b"\xff", b"\xff")
    assert found.bindings == {BindingRow(b"e", b"good", b"prefix:", peer=True)}
    assert found.upstreams == {Upstream("h", 8766, b"s", b"p", b"e", b"", permanent=True)}
    said = " ".join(found.complaints)
    assert len(found.complaints) == 5 + 5
    assert "has the peermode b'\\xff', neither true nor false" in said
    assert "the upstream b'7', as b'7'," in said


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("host", "''", "is no host's name"),
        ("host", "'fq://h'", "is no host's name"),
        ("host", "'a b'", "is no host's name"),
        ("host", "'fqs://'", "is no host's name"),
        ("host", "'fqs://h?key=x'", "is no host's name"),
        ("port", "x'30303030303837363530'", "b'0000087650', which is no number from 1 to 65535"),
        ("port", "CAST(hex(zeroblob(2500)) || '1' AS BLOB)", "which is no number from 1 to 65535"),
        ("port", "x'00ff'", "has the port b'\\x00\\xff', which is no number from 1 to 65535"),
        ("source", "zeroblob(128)", "has a source with more than 127 bytes"),
        ("source", "'u/' || hex(zeroblob(512))", "has a source with more than 127 bytes"),
        ("password", "hex(zeroblob(513))", "has a password of more than 1024 bytes"),
        ("exchange", "hex(zeroblob(64))", "has an exchange of more than 127 bytes"),
        ("program", "hex(zeroblob(32768))", "has a program of more than 65535 bytes"),
        ("permanent_binding", "'maybe'", "has the permanent_binding b'maybe'"),
    ],
)
def test_upstreams_that_cannot_be(
    tables: ProtocolTables, other: sqlite3.Connection, column: str, value: str, reason: str
) -> None:
    """R10, R47: each is named, with what is wrong; no secret is."""
    cells = {"host": "'h'", "source": "'s'", "password": "'secret'", "exchange": "'e'"} | {
        column: value
    }
    other.execute(f"INSERT INTO upstream ({', '.join(cells)}) VALUES ({', '.join(cells.values())})")
    found = _found(tables)
    assert found.upstreams == frozenset()
    (said,) = found.complaints
    assert reason in said
    assert "secret" not in said


def test_upstreams_by_tls(tables: ProtocolTables, other: sqlite3.Connection) -> None:
    """With the authorities of the system, or those of a file."""
    for host in ("h", "fqs://h", "fqs://::1", "fqs://h?ca=/etc/my ca.pem"):
        other.execute(
            "INSERT INTO upstream (host, source, password, exchange) VALUES (?, 's', '', 'e')",
            (host,),
        )
    found = _found(tables)
    assert found.complaints == ()
    assert {(each.host, each.tls) for each in found.upstreams} == {
        ("h", None),
        ("h", ""),
        ("::1", ""),
        ("h", "/etc/my ca.pem"),
    }


def test_a_deleted_file_is_told_of(
    tables: ProtocolTables, caplog: pytest.LogCaptureFixture
) -> None:
    """R36: once; what it had is still what holds."""
    assert _found(tables) == Configuration()
    tables.path.unlink()
    for _ in range(3):
        assert tables.changed() is None
    assert tables.write([keep_queue(QueueRow(b"q"))])
    sqlite3.connect(tables.path).close()
    assert tables.changed() is None
    assert caplog.text.count("was deleted, or replaced, while the broker uses it") == 1


def test_a_file_of_fqd_is_taken_as_it_is(tmp_path: Path) -> None:
    """R36, R47: the tables that fqd has made, with what it has not (attributes NULL)."""
    database = sqlite3.connect(tmp_path / TABLES.name)
    database.executescript(
        """
        CREATE TABLE queue (name TEXT NOT NULL PRIMARY KEY,
          type TEXT NOT NULL DEFAULT "mem", attributes TEXT);
        CREATE TABLE binding (exchange TEXT NOT NULL, queue TEXT NOT NULL,
          peermode BOOLEAN NOT NULL DEFAULT FALSE, program TEXT,
          UNIQUE(exchange, queue, peermode, program), FOREIGN KEY(queue) REFERENCES queue(name));
        INSERT INTO queue (name) VALUES ('q');
        INSERT INTO binding (exchange, queue, program) VALUES ('e', 'q', 'prefix:');
        """
    )
    database.close()
    tables = ProtocolTables(tmp_path, TABLES)
    found = _found(tables)
    assert found == Configuration(
        {b"q": QueueRow(b"q")}, frozenset([BindingRow(b"e", b"q", b"prefix:")])
    )
    assert tables.path.stat().st_mode & 0o777 == 0o600
    tables.close()


def test_a_file_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text names the file, and what to do."""
    path = tmp_path / TABLES.name
    path.write_bytes(b"not a database, but long enough to be looked at by SQLite" * 20)
    with pytest.raises(TableFileError, match=r"fq\.sqlite: .*move it away"):
        ProtocolTables(tmp_path, TABLES)
    path.unlink()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE queue (something TEXT)")
    database.close()
    with pytest.raises(TableFileError, match=r"'queue' cannot be read .*CREATE TABLE"):
        ProtocolTables(tmp_path, TABLES)
    path.unlink()
    sqlite3.connect(path).close()
    busy = sqlite3.connect(path, isolation_level=None)
    busy.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(protocol_tables, "OPEN_S", 0.01)
    with pytest.raises(TableFileError, match=r"locked; another program .* end that first"):
        ProtocolTables(tmp_path, TABLES)
    busy.close()
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TableFileError, match="symbolic link"):
        ProtocolTables(tmp_path, TABLES)
