"""What of fq lasts: permanent queues, permanent bindings, and brokers to take messages from.

It is in ``fq.sqlite`` of the data folder, in fqd's own tables, so that its users may go on to
change them with SQL while the broker runs. Names are any bytes there: text that need not be UTF-8.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from host_broker.tables import Rows, Statement, TableFile, Value

QUEUES, BINDINGS, UPSTREAMS = "queue", "binding", "upstream"
DEFAULT_PORT = 8765
MAX_PORT = 65_535

_YES, _NO = "true", "false"  # as fqd writes them
_TRUE = ("true", "1", "t", "yes", "on")

TABLES = TableFile(
    name="fq.sqlite",
    schema=(
        "CREATE TABLE IF NOT EXISTS queue (name TEXT NOT NULL PRIMARY KEY,"
        " type TEXT NOT NULL DEFAULT 'mem', attributes TEXT)",
        "CREATE TABLE IF NOT EXISTS binding (exchange TEXT NOT NULL, queue TEXT NOT NULL,"
        " peermode BOOLEAN NOT NULL DEFAULT 'false', program TEXT,"
        " UNIQUE(exchange, queue, peermode, program),"
        " FOREIGN KEY(queue) REFERENCES queue(name))",
        "CREATE TABLE IF NOT EXISTS upstream (host TEXT NOT NULL,"
        f" port INTEGER NOT NULL DEFAULT {DEFAULT_PORT}, source TEXT NOT NULL,"
        " password TEXT NOT NULL, exchange TEXT NOT NULL, program TEXT NOT NULL DEFAULT '',"
        " permanent_binding BOOLEAN NOT NULL DEFAULT 'false',"
        " UNIQUE(host, port, source, password, exchange, program, permanent_binding))",
    ),
    queries=(
        (
            QUEUES,
            "SELECT CAST(name AS BLOB), CAST(type AS BLOB), CAST(attributes AS BLOB) FROM queue",
        ),
        (
            BINDINGS,
            "SELECT CAST(exchange AS BLOB), CAST(queue AS BLOB), peermode, CAST(program AS BLOB)"
            " FROM binding",
        ),
        (
            UPSTREAMS,
            "SELECT CAST(host AS BLOB), port, CAST(source AS BLOB), CAST(password AS BLOB),"
            " CAST(exchange AS BLOB), CAST(program AS BLOB), permanent_binding FROM upstream",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A permanent queue. ``attributes`` are its parameters, as a client says them."""

    name: bytes
    type: bytes = b"mem"
    attributes: bytes = b""


@dataclass(frozen=True, slots=True)
class BindingRow:
    """A permanent binding of a permanent queue; ``peer``: a peer has made it."""

    exchange: bytes
    queue: bytes
    program: bytes
    peer: bool = False


@dataclass(frozen=True, slots=True)
class Upstream:
    """A broker to take messages from, and what to bind there (R47).

    ``source`` is ``user/queue/type:params``, as whom to log in. ``permanent``: the binding there
    is to outlive the connection.
    """

    host: str
    port: int
    source: bytes
    password: bytes = field(repr=False)
    exchange: bytes
    program: bytes = b""
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class Configuration:
    """All rows that can be used; ``complaints`` say what is wrong with each of the others."""

    queues: Mapping[bytes, QueueRow] = field(default_factory=dict)
    bindings: frozenset[BindingRow] = frozenset()
    upstreams: frozenset[Upstream] = frozenset()
    complaints: tuple[str, ...] = ()


def read_tables(found: Mapping[str, Rows]) -> Configuration:
    """Return what the rows of the three queries mean.

    Types, attributes and programs are as they are written: who opens a queue judges them.
    """
    queues: dict[bytes, QueueRow] = {}
    bindings: set[BindingRow] = set()
    upstreams: set[Upstream] = set()
    complaints: list[str] = []
    for name, type_, attributes in found.get(QUEUES, ()):
        row = QueueRow(_bytes(name), _bytes(type_) or b"mem", _bytes(attributes))
        if row.name:
            queues[row.name] = row
        else:
            complaints.append("fq.sqlite: a row of queue has no name")
    for exchange, queue, peer, program in found.get(BINDINGS, ()):
        binding = BindingRow(_bytes(exchange), _bytes(queue), _bytes(program), _is_true(peer))
        if binding.queue in queues:
            bindings.add(binding)
        else:  # foreign keys are off in most programs
            complaints.append(f"fq.sqlite: {_said(binding)} is of a queue that is no row of queue")
    for host, port, source, password, exchange, program, permanent in found.get(UPSTREAMS, ()):
        if not isinstance(port, int) or not 0 < port <= MAX_PORT:
            complaints.append(f"fq.sqlite: the upstream {_bytes(host)!r} has the port {port!r}")
            continue
        try:
            name_of_host = _bytes(host).decode()
        except UnicodeDecodeError:
            complaints.append(f"fq.sqlite: the upstream {_bytes(host)!r} is no host's name")
            continue
        upstreams.add(
            Upstream(
                name_of_host,
                port,
                _bytes(source),
                _bytes(password),
                _bytes(exchange),
                _bytes(program),
                _is_true(permanent),
            )
        )
    return Configuration(queues, frozenset(bindings), frozenset(upstreams), tuple(complaints))


def keep_queue(row: QueueRow) -> Statement:
    """Have a queue last; one of that name is as it is from now on."""
    return Statement(
        "INSERT INTO queue (name, type, attributes)"
        " VALUES (CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT))"
        " ON CONFLICT(name) DO UPDATE SET type = excluded.type, attributes = excluded.attributes",
        (row.name, row.type, row.attributes),
    )


def forget_queue(name: bytes) -> Statement:
    """Have a queue last no longer; refused by the file while a binding of it lasts."""
    return Statement("DELETE FROM queue WHERE name = CAST(? AS TEXT)", (name,))


def keep_binding(row: BindingRow) -> Statement:
    """Have a binding last; refused by the file unless its queue does."""
    return Statement(
        "INSERT OR IGNORE INTO binding (exchange, queue, peermode, program)"
        " VALUES (CAST(? AS TEXT), CAST(? AS TEXT), ?, CAST(? AS TEXT))",
        (row.exchange, row.queue, _YES if row.peer else _NO, row.program),
    )


def forget_binding(row: BindingRow) -> Statement:
    """Have a binding last no longer."""
    return Statement(
        "DELETE FROM binding WHERE exchange = CAST(? AS TEXT) AND queue = CAST(? AS TEXT)"
        " AND program = CAST(? AS TEXT)",
        (row.exchange, row.queue, row.program),
    )


def forget_bindings_of(queue: bytes) -> Statement:
    """Have no binding of a queue last."""
    return Statement("DELETE FROM binding WHERE queue = CAST(? AS TEXT)", (queue,))


def in_order(rows: Iterable[BindingRow]) -> list[BindingRow]:
    """Return bindings in an order that does not depend on where they come from."""
    return sorted(rows, key=lambda row: (row.queue, row.exchange, row.program, row.peer))


def _bytes(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"" if value is None else str(value).encode()


def _is_true(value: Value) -> bool:
    """Whether a BOOLEAN, for which SQLite takes anything, is meant to be true."""
    return _bytes(value).decode(errors="replace").strip().lower() in _TRUE


def _said(row: BindingRow) -> str:
    return f"the binding {row.program!r} of {row.exchange!r} to {row.queue!r}"
