"""What fq says by HTTP (R48-R51): fqd's pages, with fqd's words.

``read_submission`` and ``submitted`` are ``/submit``; ``statistics`` is ``/stats.json``;
``read_mark``, ``marked`` and ``unmarked`` are those of checkpoints, with a ``Mark``.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from host_broker.pages import Page, PageAnswer, PageRequest

SUBMIT, STATISTICS = "/submit", "/stats.json"
ADD, REMOVE, RESET = "/add_checkpoint", "/remove_checkpoint", "/reset_to_checkpoint"
_MARKS: dict[str, Literal["set", "forget", "go back"]] = {
    ADD: "set",
    REMOVE: "forget",
    RESET: "go back",
}
PAGES = (
    Page(SUBMIT, ("POST", "PUT"), publishes=True),
    Page(STATISTICS, subscribe="$/info/stats"),
    *(Page(path, ("POST", "PUT"), publishes=True) for path in _MARKS),
)
RESERVED = b"fq"  # where consumers are, to fqd
MAX_MARKS = 64  # checkpoints of a queue
ANYBODY = b"_web"  # the sender of who says nothing (A15)
MAX_NAME = 127  # bytes of exchange, route, sender (R25)


@dataclass(frozen=True, slots=True)
class Submission:
    """A message to publish."""

    exchange: bytes
    route: bytes
    sender: bytes
    payload: bytes


def read_submission(request: PageRequest, max_payload: int) -> Submission | PageAnswer:
    """Return what is to be published, or why nothing is; checked in fqd's order.

    Who has proved a name is the sender, whatever the request says.
    """
    payload = request.body
    if payload is None:
        return refused("no message")
    headers = request.headers
    sender = headers.get("x-fq-sender", headers.get("x-fq-user", ANYBODY))
    if request.user:
        sender = request.user.encode()
    if len(sender) > MAX_NAME:
        return refused("sender too long")
    route = headers.get("x-fq-route")
    if route is None:
        return refused("missing route")
    if len(route) > MAX_NAME:
        return refused("route too long")
    exchange = headers.get("x-fq-exchange")
    if exchange is None:
        return refused("missing exchange")
    if len(exchange) > MAX_NAME:
        return refused("exchange too long")
    if len(payload) > max_payload:
        return refused("message too long", 413)
    return Submission(exchange, route, sender, payload)


def refused(reason: str, status: int = 500) -> PageAnswer:
    """Say why nothing was published."""
    return PageAnswer(b'{ "error": %s }\n' % json.dumps(reason).encode(), status)


def submitted(routed: int, dropped: int, no_route: int, no_exchange: int) -> PageAnswer:
    """Say what has become of a message."""
    text = (
        f'{{"routed":{routed},"dropped":{dropped},'
        f'"no_route":{no_route},"no_exchange":{no_exchange}}}\n'
    )
    return PageAnswer(text.encode())


# ---- checkpoints ----

_PLACE = re.compile(r"([0-9]{1,10}):([0-9]{1,10})")
_PLACE_BITS = 32


@dataclass(frozen=True, slots=True)
class Mark:
    """What is to be done with a checkpoint; ``number`` is that of a message, of those to be set."""

    queue: bytes
    name: bytes
    do: Literal["set", "forget", "go back"]
    number: int = 0


def read_mark(request: PageRequest) -> Mark | str:
    """Return what a request wants of a checkpoint, or what is wrong with it, in fqd's words."""
    do, query = _MARKS[request.path], request.query
    for name in ("qname", "cpname", "chkptid"):
        if not query.get(name) and (name != "chkptid" or do == "set"):
            return f"missing {name}"
    queue, mark = _asked(query["qname"]), _asked(query["cpname"])
    if mark == RESERVED:
        return "'fq' is a reserved name, cannot be used for a checkpoint name"
    if len(mark) > MAX_NAME:
        return "checkpoint name too long"
    if do != "set":
        return Mark(queue, mark, do)
    place = _PLACE.fullmatch(query["chkptid"])
    if place is None:
        return "'chkptid' must be of format: [0-9]*:[0-9]*"
    return Mark(queue, mark, do, (int(place[1]) << _PLACE_BITS) + int(place[2]))


def spell_place(number: int) -> bytes:
    """Return the second half of the id of a message of a queue on disk: where it is in it (R26).

    Two numbers, LOG and MARKER, as fqd's machines have them in memory.
    """
    return number.to_bytes(8, "big")[3::-1] + (number % (1 << _PLACE_BITS)).to_bytes(4, "little")


def read_place(id: bytes) -> int:
    """Return the number that ``spell_place`` has put into the second half of an id."""
    log, marker = (int.from_bytes(id[at : at + 4], "little") for at in (8, 12))
    return (log << _PLACE_BITS) + marker


def marked(mark: Mark) -> PageAnswer:
    """Say that it is done."""
    said = {
        "set": "Checkpoint added",
        "forget": "Checkpoint removed",
        "go back": f"'{_text(mark.queue)}' reset to checkpoint '{_text(mark.name)}'",
    }
    return _said("success", said[mark.do])


def unmarked(reason: str) -> PageAnswer:
    """Say why it is not."""
    return _said("error", reason)


def _said(status: str, message: str) -> PageAnswer:
    text = f'{{\n "status": "{status}",\n "message": {json.dumps(message)}\n}}\n'
    return PageAnswer(text.encode(), close=True)


def _asked(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# ---- statistics ----


@dataclass(frozen=True, slots=True)
class RouteFigures:
    """One binding."""

    route_id: int
    prefix: bytes
    queue: bytes
    permanent: bool
    invocations: int
    average_ns: int
    program: bytes


@dataclass(frozen=True, slots=True)
class ExchangeFigures:
    """One exchange, or all together."""

    messages: int = 0
    octets: int = 0
    no_route: int = 0
    routed: int = 0
    dropped: int = 0
    no_exchange: int = 0
    routes: tuple[RouteFigures, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientFigures:
    """One client of a queue; ``counters`` as its status has them, None before it has a data
    connection."""

    user: bytes
    address: str
    port: int
    is_peer: bool
    counters: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """One queue."""

    name: bytes
    private: bool
    type: str
    policy: str
    backlog_limit: int
    backlog: int
    dropped_to: int
    clients: tuple[ClientFigures, ...]


def statistics(
    version: str,
    exchanges: Mapping[bytes, ExchangeFigures],
    together: ExchangeFigures,
    queues: Iterable[QueueFigures],
) -> PageAnswer:
    """Say what there is, in fqd's shape; names that are not UTF-8 are there with ``\\xHH``."""
    document = {
        "version": version,
        "exchanges": {
            **{_text(name): _exchange(each) for name, each in exchanges.items()},
            "_aggregate": {"no_exchange": together.no_exchange, **_totals(together)},
        },
        "queues": {_text(each.name): _queue(each) for each in queues},
    }
    text = json.dumps(document, indent=1) + "\n"
    return PageAnswer(text.encode(), content_type="text/json", close=True)


def _totals(figures: ExchangeFigures) -> dict[str, object]:
    return {
        "messages": figures.messages,
        "octets": figures.octets,
        "no_route": figures.no_route,
        "routed": figures.routed,
        "dropped": figures.dropped,
    }


def _exchange(figures: ExchangeFigures) -> dict[str, object]:
    routes = {
        str(each.route_id): {
            "route_id": each.route_id,
            "prefix": _text(each.prefix),
            "queue": _text(each.queue),
            "permanent": each.permanent,
            "invocations": each.invocations,
            "avg_ns": each.average_ns,
            "program": _text(each.program),
        }
        for each in figures.routes
    }
    return {**_totals(figures), "routes": routes}


def _queue(figures: QueueFigures) -> dict[str, object]:
    return {
        "private": figures.private,
        "type": figures.type,
        "policy": figures.policy,
        "backlog_limit": figures.backlog_limit,
        "backlog": figures.backlog,
        "dropped_to": figures.dropped_to,
        "refcnt": len(figures.clients),
        "clients": [_client(each) for each in figures.clients],
    }


def _client(figures: ClientFigures) -> dict[str, object]:
    """Return what fqd says of a client: all of it text."""
    document: dict[str, object] = {
        "user": _text(figures.user),
        "remote_addr": figures.address,
        "remote_port": str(figures.port),
    }
    if figures.counters is not None:
        document["mode"] = "peer" if figures.is_peer else "client"
        document |= {name: str(value) for name, value in figures.counters.items()}
    return document


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
