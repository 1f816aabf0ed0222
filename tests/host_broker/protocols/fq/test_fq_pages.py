"""What fq is asked and says by HTTP."""

import json
import struct

import pytest

from host_broker.pages import PageAnswer, PageRequest
from host_broker.protocols.fq.pages import (
    ADD,
    PAGES,
    REMOVE,
    RESET,
    ClientFigures,
    ExchangeFigures,
    Mark,
    QueueFigures,
    RouteFigures,
    Submission,
    marked,
    read_mark,
    read_submission,
    spell_place,
    statistics,
    submitted,
    unmarked,
)

_MOST = 1000


def _submission(
    body: bytes | None = b"hello", user: str = "", **headers: bytes
) -> Submission | PageAnswer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return read_submission(PageRequest("POST", "/submit", {}, named, body, user), _MOST)


def test_a_submission_is_three_headers_and_a_body() -> None:
    """R49, R51: the payload is raw; exchange, route and sender are in headers."""
    assert _submission(
        b"\0\xff", x_fq_exchange=b"ex\xff", x_fq_route=b"a.b", x_fq_user=b"me"
    ) == Submission(b"ex\xff", b"a.b", b"me", b"\0\xff")
    assert _submission(b"", x_fq_exchange=b"e", x_fq_route=b"") == Submission(
        b"e", b"", b"_web", b""
    )


@pytest.mark.parametrize(
    ("headers", "user", "sender"),
    [
        ({}, "", b"_web"),
        ({"x_fq_user": b"u"}, "", b"u"),
        ({"x_fq_sender": b"s"}, "", b"s"),
        ({"x_fq_sender": b"s", "x_fq_user": b"u"}, "", b"s"),
        ({"x_fq_sender": b"s", "x_fq_user": b"u"}, "proved", b"proved"),
    ],
)
def test_the_sender(headers: dict[str, bytes], user: str, sender: bytes) -> None:
    """R23, R51, A15: Sender, else User, else _web; who has logged in is who that is."""
    found = _submission(user=user, x_fq_exchange=b"e", x_fq_route=b"r", **headers)
    assert isinstance(found, Submission)
    assert found.sender == sender


@pytest.mark.parametrize(
    ("headers", "body", "reason"),
    [
        ({}, None, "no message"),
        ({"x_fq_sender": b"s" * 128}, b"", "sender too long"),
        ({}, b"", "missing route"),
        ({"x_fq_route": b"r" * 128}, b"", "route too long"),
        ({"x_fq_route": b"r" * 127}, b"", "missing exchange"),
        ({"x_fq_route": b"r", "x_fq_exchange": b"e" * 128}, b"", "exchange too long"),
    ],
)
def test_what_is_no_submission(headers: dict[str, bytes], body: bytes | None, reason: str) -> None:
    """R25, R48: fqd's errors, in fqd's order, byte for byte."""
    answer = _submission(body, **headers)
    assert answer == PageAnswer(b'{ "error": "%s" }\n' % reason.encode(), 500)


def test_a_payload_is_bounded() -> None:
    """A7: a longer one than a client may send is refused."""
    headers = {"x_fq_route": b"r", "x_fq_exchange": b"e"}
    assert isinstance(_submission(b"x" * _MOST, **headers), Submission)
    answer = _submission(b"x" * (_MOST + 1), **headers)
    assert answer == PageAnswer(b'{ "error": "message too long" }\n', 413)


def test_what_has_become_of_it() -> None:
    """R48: fqd's answer, byte for byte."""
    answer = submitted(2, 1, 0, 0)
    assert answer.body == b'{"routed":2,"dropped":1,"no_route":0,"no_exchange":0}\n'
    assert (answer.status, answer.content_type, answer.close) == (200, "application/json", False)


def test_the_pages() -> None:
    """R48, R50: /submit is by POST or PUT, and acknowledges; statistics are not for all."""
    pages = {each.path: each for each in PAGES}
    assert pages["/submit"].methods == ("POST", "PUT")
    assert pages["/submit"].publishes
    assert pages["/stats.json"].subscribe == "$/info/stats"
    for path in (ADD, REMOVE, RESET):
        assert pages[path].methods == ("POST", "PUT")  # no GET changes anything


def test_statistics() -> None:
    """R50: exchanges with their routes, all together, queues with their clients."""
    route = RouteFigures(23, b"a.", b"q\xff", True, 5, 120, b'prefix:"a."')
    exchanges = {b'e"\xff': ExchangeFigures(9, 90, 1, 8, 2, routes=(route,))}
    together = ExchangeFigures(10, 100, 2, 8, 2, no_exchange=1)
    counters = {"no_exchange": 1, "msgs_in": 10}
    clients = (
        ClientFigures(b"me", "127.0.0.1", 40001, False, counters),
        ClientFigures(b"peer", "192.0.2.1", 0, True, None),
    )
    queue = QueueFigures(b"q\xff", False, "mem", "block", 7, 3, 2, clients)
    answer = statistics("0.1", exchanges, together, [queue])
    assert (answer.content_type, answer.close) == ("text/json", True)
    document = json.loads(answer.body)
    assert document == {
        "version": "0.1",
        "exchanges": {
            'e"\\xff': {
                "messages": 9,
                "octets": 90,
                "no_route": 1,
                "routed": 8,
                "dropped": 2,
                "routes": {
                    "23": {
                        "route_id": 23,
                        "prefix": "a.",
                        "queue": "q\\xff",
                        "permanent": True,
                        "invocations": 5,
                        "avg_ns": 120,
                        "program": 'prefix:"a."',
                    }
                },
            },
            "_aggregate": {
                "no_exchange": 1,
                "messages": 10,
                "octets": 100,
                "no_route": 2,
                "routed": 8,
                "dropped": 2,
            },
        },
        "queues": {
            "q\\xff": {
                "private": False,
                "type": "mem",
                "policy": "block",
                "backlog_limit": 7,
                "backlog": 3,
                "dropped_to": 2,
                "refcnt": 2,
                "clients": [
                    {
                        "user": "me",
                        "remote_addr": "127.0.0.1",
                        "remote_port": "40001",
                        "mode": "client",
                        "no_exchange": "1",
                        "msgs_in": "10",
                    },
                    {"user": "peer", "remote_addr": "192.0.2.1", "remote_port": "0"},
                ],
            }
        },
    }


# ---- checkpoints ----


def _mark(path: str, **query: str) -> Mark | str:
    return read_mark(PageRequest("POST", path, query))


def test_what_is_asked_of_checkpoints() -> None:
    """fqd's words of a query: a place is LOG:MARKER, as ids of messages say it."""
    assert _mark(ADD, qname="q", cpname="c", chkptid="1:2") == Mark(
        b"q", b"c", "set", (1 << 32) + 2
    )
    assert _mark(REMOVE, qname="q", cpname="c") == Mark(b"q", b"c", "forget")
    assert _mark(RESET, qname="q", cpname="c", chkptid="x") == Mark(b"q", b"c", "go back")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({}, "missing qname"),
        ({"qname": "q", "chkptid": "0:1"}, "missing cpname"),
        ({"qname": "q", "cpname": ""}, "missing cpname"),
        ({"qname": "q", "cpname": "c"}, "missing chkptid"),
        (
            {"qname": "q", "cpname": "fq", "chkptid": "0:1"},
            "'fq' is a reserved name, cannot be used for a checkpoint name",
        ),
        ({"qname": "q", "cpname": "c" * 128, "chkptid": "0:1"}, "checkpoint name too long"),
        *(
            (
                {"qname": "q", "cpname": "c", "chkptid": place},
                "'chkptid' must be of format: [0-9]*:[0-9]*",
            )
            for place in ("1", ":1", "1:", "-1:1", "1:2:3", "\u0661:1", "12345678901:1")
        ),
    ],
)
def test_what_is_no_checkpoint(query: dict[str, str], reason: str) -> None:
    """Where fqd would fall over, the name of what is missing."""
    assert _mark(ADD, **query) == reason


def test_answers_about_checkpoints() -> None:
    """fqd's answers, byte for byte: 200 for errors, too, and close."""
    assert unmarked("Checkpoint does not exist") == PageAnswer(
        b'{\n "status": "error",\n "message": "Checkpoint does not exist"\n}\n', close=True
    )
    for do, said in (
        ("set", "Checkpoint added"),
        ("forget", "Checkpoint removed"),
        ("go back", "'q' reset to checkpoint 'c'"),
    ):
        answer = marked(Mark(b"q", b"c", do))  # type: ignore[arg-type]
        assert json.loads(answer.body) == {"status": "success", "message": said}


@pytest.mark.parametrize("number", [0, 1, (1 << 32) - 1, 1 << 32, (1 << 40) + 7])
def test_a_place_is_what_ids_say(number: int) -> None:
    """R26: two numbers of four bytes, the lowest byte first."""
    log, marker = struct.unpack("<II", spell_place(number))
    mark = _mark(ADD, qname="q", cpname="c", chkptid=f"{log}:{marker}")
    assert isinstance(mark, Mark)
    assert mark.number == number
