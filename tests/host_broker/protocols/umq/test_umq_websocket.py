"""The WebSocket beneath UMQ: cuts, fragments, what is none."""

import struct
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    Request,
    TextMessage,
)

from host_broker.protocols.umq.websocket import (
    MAX_HEAD,
    Accepted,
    Ended,
    Item,
    Malformed,
    PongFrame,
    Refused,
    TooLong,
    Upgrade,
    WebSocket,
)
from host_broker.wire.budget import Budget


def _request(*extra: tuple[str, str]) -> bytes:
    lines = ["GET /umq HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"]
    lines += [f"{name}: {value}" for name, value in extra]
    return "\r\n".join([*lines, "", ""]).encode()


def _spelled(*events: Event) -> bytes:
    """Frames of a client."""
    client, server = WSConnection(ConnectionType.CLIENT), WSConnection(ConnectionType.SERVER)
    server.receive_data(client.send(Request(host="x", target="/umq")))
    assert [type(event) for event in server.events()] == [Request]
    client.receive_data(server.send(AcceptConnection()))
    list(client.events())
    return b"".join(client.send(event) for event in events)


def _server(max_text: int = 1000, max_binary: int = 1000, held: Budget | None = None) -> WebSocket:
    server = WebSocket("server", max_text, max_binary, held)
    (upgrade,) = server.receive_data(_request())
    assert isinstance(upgrade, Upgrade)
    server.accept()
    server.out.clear()
    return server


def _received(server: WebSocket, cuts: Sequence[bytes]) -> list[Item]:
    """What reads mean; the request for a WebSocket is accepted at once."""
    found: list[Item] = []
    for data in cuts:
        server.feed(data)
        for item in server.items():
            found.append(item)
            if isinstance(item, Upgrade):
                server.accept()
    return found


_EVENTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(TextMessage),
    st.binary(max_size=200).map(BytesMessage),
    st.binary(max_size=10).map(Ping),
    st.binary(max_size=10).map(Pong),
)


@given(st.lists(_EVENTS, max_size=8), st.lists(st.integers(0, 3000), max_size=12))
def test_any_cuts_mean_the_same(events: list[Event], cuts: list[int]) -> None:
    """R3, R4: the request, too, and what comes in one read with it."""
    data = _request(("Origin", "http://127.0.0.1")) + _spelled(*events)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    parts = [data[one:other] for one, other in pairwise(places)]
    whole, cut = _server_unasked(), _server_unasked()
    expected = _received(whole, [data])
    assert _received(cut, parts) == expected
    assert whole.out == cut.out
    said = [
        PongFrame(bytes(event.payload)) if isinstance(event, Pong) else event.data
        for event in events
        if not isinstance(event, Ping)
    ]
    assert isinstance(expected[0], Upgrade)
    assert expected[1:] == said


def _server_unasked() -> WebSocket:
    return WebSocket("server", 1000, 1000)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), st.data())
def test_fragments_are_put_together(text: str, data: st.DataObject) -> None:
    """A23: also where a character is cut."""
    raw = text.encode()
    places = data.draw(st.lists(st.integers(0, len(raw)), max_size=5).map(sorted))
    places = [0, *places, len(raw)]
    parts = [raw[one:other] for one, other in pairwise(places)]
    frames = [
        _frame(0x81 if last and not number else (0x80 * last) | (0 if number else 1), part)
        for number, part in enumerate(parts)
        for last in [number == len(parts) - 1]
    ]
    assert _server().receive_data(b"".join(frames)) == [text]


def _frame(first: int, payload: bytes, mask: bytes = b"\1\2\3\4") -> bytes:
    """A frame of a client, by hand."""
    if len(payload) < 126:
        head = struct.pack("!BB", first, 0x80 | len(payload))
    else:
        head = struct.pack("!BBH", first, 0x80 | 126, len(payload))
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return head + mask + masked


def test_it_answers_pings() -> None:
    server = _server()
    assert server.receive_data(_spelled(Ping(b"there?"))) == []
    assert bytes(server.out) == b"\x8a\x06there?"
    assert server.pings == 1


def test_it_answers_a_close() -> None:
    server = _server()
    assert server.receive_data(_spelled(CloseConnection(1000, "bye"))) == [Ended(1000, "bye")]
    assert bytes(server.out) == b"\x88\x05\x03\xe8bye"
    assert server.receive_data(b"\x81\x80\0\0\0\0") == []


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (_frame(0x81, b"\xff"), 1007),  # no UTF-8 (R3)
        (_frame(0x83, b""), 1002),  # an opcode of nobody
        (_frame(0xC1, b""), 1002),  # a bit of an extension
        (_frame(0x80, b""), 1002),  # goes on with nothing
        (b"\x81\x01x", 1002),  # not masked
        (_frame(0x09, b""), 1002),  # a ping in fragments
    ],
)
def test_what_is_broken_ends_it(frame: bytes, code: int) -> None:
    """R3: with the code that RFC 6455 has for it."""
    server = _server()
    (ended,) = server.receive_data(frame)
    assert isinstance(ended, Ended)
    assert ended.code == code
    assert bytes(server.out)[0] == 0x88
    assert struct.unpack("!H", bytes(server.out)[2:4])[0] == code


def test_messages_are_so_long() -> None:
    """umq.max_text, umq.max_attachment: counted in bytes, also of fragments."""
    assert _server(max_text=6).receive_data(_spelled(TextMessage("äöü"))) == ["äöü"]
    assert _server(max_text=5).receive_data(_spelled(TextMessage("äöü"))) == [
        TooLong("umq.max_text", 5)
    ]
    assert _server(max_binary=3).receive_data(_spelled(BytesMessage(b"1234"))) == [
        TooLong("umq.max_attachment", 3)
    ]
    server = _server(max_text=10)
    assert server.receive_data(_frame(0x01, b"12345678")) == []
    assert server.receive_data(_frame(0x80, b"9ab")) == [TooLong("umq.max_text", 10)]
    # The length alone is not enough, what comes is: nothing is kept for it.
    server = _server(max_binary=10)
    assert server.receive_data(b"\x82\xff" + (1 << 40).to_bytes(8, "big") + b"\0\0\0\0") == []
    assert server.receive_data(bytes(11)) == [TooLong("umq.max_attachment", 10)]


def test_unfinished_messages_are_held_together() -> None:
    """bus.max_held_bytes: of all connections."""
    held = Budget(10)
    one, other = _server(held=held), _server(held=held)
    one.receive_data(_frame(0x02, b"123456"))
    assert held.left == 4
    assert other.receive_data(_frame(0x02, b"12345")) == [TooLong("bus.max_held_bytes", 4)]
    assert one.receive_data(_frame(0x80, b"7")) == [b"1234567"]
    assert held.left == 10
    one.receive_data(_frame(0x02, b"123456"))
    one.close()
    assert held.left == 10


@pytest.mark.parametrize(("first", "fragment"), [(0x01, b"\xc3\xa4"), (0x02, b"ab")])
def test_tiny_fragments_take_no_more_than_is_counted(first: int, fragment: bytes) -> None:
    """bus.max_held_bytes: a fragment is no object of its own."""
    held, count = Budget(1 << 20), 20_000
    server = _server(max_text=1 << 20, max_binary=1 << 20, held=held)
    server.receive_data(_frame(first, fragment))
    rest = _frame(0, fragment) * (count // 10)
    tracemalloc.start()
    try:
        for _ in range(10):
            assert server.receive_data(rest) == []
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (1 << 20) - held.left == 2 * (count + 1)
    assert kept < 2 * 2 * count


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /umq HTTP/1.1\r\nHost: x\r\n\r\n", 426),
        (b"GET /umq HTTP/1.1\r\n\r\n", 400),
        (b"GET /umq HTTP/1.0\r\n\r\n", 426),
        (b"POST /umq HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 400),
        (_request().replace(b"Version: 13", b"Version: 8"), 426),
        (_request().replace(b"Host: 127.0.0.1", b"Host: \xff"), 400),
        (_request().replace(b"GET /umq", b"GET /\xff"), 400),
        (b"rubbish\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused(request_: bytes, status: int) -> None:
    server = _server_unasked()
    (malformed,) = server.receive_data(request_)
    assert isinstance(malformed, Malformed)
    assert malformed.status == status
    server.refuse(malformed.status, "{}", malformed.headers)
    assert bytes(server.out).startswith(f"HTTP/1.1 {status} ".encode())
    assert server.receive_data(request_) == []


def test_a_head_is_so_long() -> None:
    server = _server_unasked()
    assert server.receive_data(b"GET /umq HTTP/1.1\r\nA: " + b"x" * (MAX_HEAD - 30)) == []
    (malformed,) = server.receive_data(b"x" * 100)
    assert isinstance(malformed, Malformed)
    assert malformed.status == 431


def test_a_client_and_a_server_of_ours_meet() -> None:
    """A23: with the subprotocol that both want, or none."""
    for wanted in (None, "umq"):
        client, server = WebSocket("client", 100, 100), _server_unasked()
        client.request("127.0.0.1", [("authorization", "Bearer x")])
        if wanted:
            (upgrade,) = server.receive_data(_request(("Sec-WebSocket-Protocol", "a, umq")))
            assert isinstance(upgrade, Upgrade)
            assert upgrade.subprotocols == ("a", "umq")
            server.accept(wanted)
            assert b"Sec-WebSocket-Protocol: umq" in bytes(server.out)
            continue
        (upgrade,) = server.receive_data(bytes(client.out))
        assert isinstance(upgrade, Upgrade)
        assert upgrade.all("authorization") == ("Bearer x",)
        server.accept()
        assert client.receive_data(bytes(server.out)) == [Accepted()]
        client.out.clear()
        server.out.clear()
        client.send("hello")
        client.send(b"there")
        assert server.receive_data(bytes(client.out)) == ["hello", b"there"]
        server.ping(b"1")
        server.end()
        assert client.receive_data(bytes(server.out)) == [Ended(1000, "")]


def test_a_client_is_told_why_it_is_refused() -> None:
    client, server = WebSocket("client", 100, 100), _server_unasked()
    client.request("127.0.0.1")
    server.receive_data(bytes(client.out))
    server.refuse(403, '{"error": "no"}')
    assert client.receive_data(bytes(server.out)) == [Refused(403, '{"error": "no"}')]


@given(st.binary(max_size=300))
def test_whatever_comes_ends_it_or_means_something(data: bytes) -> None:
    held = Budget(10_000)
    server = _server(held=held)
    server.receive_data(data)
    server.close()
    assert held.left == 10_000
    fresh = _server_unasked()
    fresh.receive_data(data)
    fresh.receive_data(b"\r\n\r\n" + data)
