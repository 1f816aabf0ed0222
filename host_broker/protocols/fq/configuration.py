"""What of fq lasts: permanent queues, permanent bindings, and brokers to take messages from.

It is in ``fq.sqlite`` of the data folder, in fqd's own tables, so that its users may go on to
change them with SQL while the broker runs. Names are any bytes there: text that need not be UTF-8.
All columns are read as bytes, whatever somebody has put there: SQLite takes anything for any type.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from host_broker.protocols.fq.codec import MAX_NAME, MAX_PASSWORD, MAX_QUEUE_FIELD, MAX_TEXT
from host_broker.tables import Rows, Statement, TableFile, Value

QUEUES, BINDINGS, UPSTREAMS = "queue", "binding", "upstream"
DEFAULT_PORT = 8765
MAX_PORT = 65_535

_YES, _NO = "true", "false"  # as fqd writes them
_TRUE = (b"true", b"1", b"t", b"yes", b"on")
_FALSE = (b"false", b"0", b"f", b"no", b"off", b"")
# A host; or fqs:// in front of it, and where the authorities are for its certificate.
_HOST = re.compile(r"(?P<tls>fqs://)?(?P<name>[^\s/@?#]{1,253})(?(tls)(\?ca=(?P<ca>.+))?)")

_PORT = re.compile(rb"0{0,9}[1-9][0-9]{0,4}")  # int() takes no more than some thousand digits

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
            "SELECT CAST(exchange AS BLOB), CAST(queue AS BLOB), CAST(peermode AS BLOB),"
            " CAST(program AS BLOB) FROM binding",
        ),
        (
            UPSTREAMS,
            "SELECT CAST(host AS BLOB), CAST(port AS BLOB), CAST(source AS BLOB),"
            " CAST(password AS BLOB), CAST(exchange AS BLOB), CAST(program AS BLOB),"
            " CAST(permanent_binding AS BLOB) FROM upstream",
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
    is to outlive the connection. ``tls`` None: by TCP alone, else as ``Dial`` says.
    """

    host: str
    port: int
    source: bytes
    password: bytes = field(repr=False)
    exchange: bytes
    program: bytes = b""
    permanent: bool = False
    tls: str | None = None


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
        if not row.name:
            complaints.append("fq.sqlite: a row of queue has no name")
        elif len(row.name) > MAX_NAME:
            complaints.append(
                f"fq.sqlite: the queue {row.name!r}: a name has at most {MAX_NAME} bytes"
            )
        else:
            queues[row.name] = row
    for exchange, queue, peer, program in found.get(BINDINGS, ()):
        binding = BindingRow(_bytes(exchange), _bytes(queue), _bytes(program), _is_true(peer))
        if len(binding.exchange) > MAX_NAME:
            reason = f"has an exchange of more than {MAX_NAME} bytes"
        elif not _is_boolean(peer):
            reason = f"has the peermode {_bytes(peer)!r}, neither true nor false"
        elif binding.queue not in queues:  # foreign keys are off in most programs
            reason = "is of a queue that is no row of queue"
        else:
            bindings.add(binding)
            continue
        complaints.append(f"fq.sqlite: {_said(binding)} {reason}")
    for cells in found.get(UPSTREAMS, ()):
        host, port, source, password, exchange, program, permanent = map(_bytes, cells)
        where = _HOST.fullmatch(host.decode(errors="replace"))
        reason = "is no host's name, and no address"
        if where is not None and _is_text(host):
            reason = _fault(port, source, password, exchange, program)
        if not reason and not _is_boolean(permanent):
            reason = f"has the permanent_binding {permanent!r}, neither true nor false"
        if reason or where is None:
            complaints.append(f"fq.sqlite: the upstream {host!r}, as {source!r}, {reason}")
            continue
        upstreams.add(
            Upstream(
                where["name"],
                int(port),
                source,
                password,
                exchange,
                program,
                _is_true(permanent),
                (where["ca"] or "") if where["tls"] else None,
            )
        )
    return Configuration(queues, frozenset(bindings), frozenset(upstreams), tuple(complaints))


def _fault(port: bytes, source: bytes, password: bytes, exchange: bytes, program: bytes) -> str:
    """Return what is wrong with an upstream, as whom nobody can be asked; "": nothing."""
    if not _PORT.fullmatch(port) or int(port) > MAX_PORT:
        return f"has the port {port!r}, which is no number from 1 to {MAX_PORT}"
    user, _, queue = source.partition(b"/")
    if len(user) > MAX_NAME or len(queue) > MAX_QUEUE_FIELD:
        return f"has a source with more than {MAX_NAME} bytes before its slash, or too many behind"
    if len(password) > MAX_PASSWORD:
        return f"has a password of more than {MAX_PASSWORD} bytes"
    if len(exchange) > MAX_NAME:
        return f"has an exchange of more than {MAX_NAME} bytes"
    if len(program) > MAX_TEXT:
        return f"has a program of more than {MAX_TEXT} bytes"
    return ""


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
    return _bytes(value).strip().lower() in _TRUE


def _is_boolean(value: Value) -> bool:
    return _bytes(value).strip().lower() in _TRUE + _FALSE


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _said(row: BindingRow) -> str:
    return f"the binding {row.program!r} of {row.exchange!r} to {row.queue!r}"
