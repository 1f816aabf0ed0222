"""The three kinds of clients at real sockets, two of them at one port."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from host_broker.client import Client, Timeout, connect
from tests.host_broker.net.broker_process import broker

_LISTEN = ["--listen", "auto://127.0.0.1:0", "--listen", "lightmq+fmqp://127.0.0.1:0"]
_WAIT_S = 20.0


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    with broker(*_LISTEN) as running:
        port = running.ports["auto"]
        yield {
            "fmqp": f"fmqp://127.0.0.1:{port}",
            "lightmq": f"lightmq://127.0.0.1:{port}",
            "lightmq+fmqp": running.urls["lightmq+fmqp"],
        }


@pytest.fixture(params=["fmqp", "lightmq+fmqp"])
def program(request: pytest.FixtureRequest, urls: dict[str, str]) -> Iterator[Client]:
    with connect(urls[request.param], timeout_s=_WAIT_S) as client:
        yield client


def _board(urls: dict[str, str], name: str) -> Client:
    client = connect(f"{urls['lightmq']}/{name}", timeout_s=_WAIT_S)
    return client


def _next(client: Client) -> tuple[str, bytes]:
    message = client.receive(_WAIT_S)
    assert message is not None
    return message.topic, message.payload


def test_a_board_and_a_program_all_its_life(urls: dict[str, str], program: Client) -> None:
    """R14, R20, R21, R25: presence, up, down, what is kept, reply, and a will of the program."""
    program.publish("lightmq/living/down", b"kept", retain=True)
    for end in ("status", "up", "reply"):
        program.subscribe(f"lightmq/living/{end}")
    program.sync()
    while program.receive(0.0) is not None:
        continue  # what an earlier board of this name has left: it is offline
    with _board(urls, "living") as board:
        assert _next(program) == ("lightmq/living/status", b"online")
        request = board.receive(_WAIT_S)
        assert request is not None
        assert request.payload == b"kept"
        board.respond(request, b"\0thanks\xff")
        assert _next(program) == ("lightmq/living/reply", b"\0thanks\xff")
        assert board.request("up", b"\xff21.5\0", _WAIT_S) == b""
        assert _next(program) == ("lightmq/living/up", b"\xff21.5\0")
        with connect(urls["lightmq+fmqp"], timeout_s=_WAIT_S) as mortal:
            mortal.publish("lightmq/*/down", b"I am gone", will=True)
            mortal.sync()
            mortal.abort()
        request = board.receive(_WAIT_S)
        assert request is not None
        assert request.payload == b"I am gone"
        board.abort()
    assert _next(program) == ("lightmq/living/status", b"offline")


def test_a_program_asks_and_answers_boards(urls: dict[str, str], program: Client) -> None:
    """R14: through topics alone, as any FMQP program can."""
    with _board(urls, "asked") as board:
        program.subscribe("lightmq/asked/reply/t1")
        program.subscribe("lightmq/asked/done/t1")
        program.subscribe("lightmq/asked/up/*")
        program.publish("lightmq/asked/request/t1", b"how warm?")
        request = board.receive(_WAIT_S)
        assert request is not None
        assert request.payload == b"how warm?"
        board.respond(request, b"21.5")
        assert _next(program) == ("lightmq/asked/reply/t1", b"21.5")
        assert _next(program) == ("lightmq/asked/done/t1", b"answered")
        with ThreadPoolExecutor(1) as pool:
            response = pool.submit(board.request, "up", b"what time is it?", _WAIT_S)
            topic, question = _next(program)
            assert (topic.rpartition("/")[0], question) == ("lightmq/asked/up", b"what time is it?")
            program.publish(f"lightmq/asked/answer/{topic.rpartition('/')[2]}", b"late")
            assert response.result(_WAIT_S) == b"late"


def test_large_messages_between_programs(urls: dict[str, str], program: Client) -> None:
    """R51: a packet longer than a SEND takes several, both ways, and those after it follow."""
    with connect(urls["lightmq+fmqp"], timeout_s=_WAIT_S) as other:
        for client in (program, other):
            client.subscribe("large/*")
            client.sync()
        for sender in (other, program):
            for length in (65_463, 300_000, 1_000_000, 1):
                sender.publish("large/one", bytes([length & 0xFF]) * length)
        for client in (program, other):
            lengths = sorted(len(_next(client)[1]) for _ in range(8))
            assert lengths == sorted([65_463, 300_000, 1_000_000, 1] * 2)


def test_a_listener_that_does_not_carry_fmqp_is_suspected(urls: dict[str, str]) -> None:
    """It accepts our CONNECT and takes what we SEND for messages of a board."""
    wrong = urls["lightmq"].replace("lightmq", "lightmq+fmqp")
    with (
        connect(wrong, timeout_s=_WAIT_S) as client,
        pytest.raises(Timeout, match=r"does the broker listen for lightmq\+fmqp there\?$"),
    ):
        client.sync(0.5)
