"""Calls of other clients, over LightMQ and by topics, against a real broker."""

import contextlib
from collections.abc import Iterator

import pytest

from host_broker.client import BadArgument, NotSupported, NotThere, calling, connect
from tests.host_broker.net.answering_board import answering
from tests.host_broker.net.broker_process import BrokerProcess, broker


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process


@pytest.mark.parametrize("protocol", ["fmqp", "lightmq"])
def test_calls(running: BrokerProcess, protocol: str) -> None:
    board = running.urls["lightmq"] + f"/called-{protocol}"
    name = f"called-{protocol}"
    with connect(running.urls[protocol]) as client:
        with pytest.raises(NotThere):
            client.call(name, b"x")
        with answering(board, lambda data: data[::-1]):
            for number in range(3):
                assert client.call(name, b"abc%d" % number) == b"%dcba" % number
        with pytest.raises(NotThere):
            client.call(name, b"x")
        with answering(board, lambda data: data * 2):
            assert client.call(name, b"ab") == b"abab"


def test_connections_for_calls_are_bounded(
    running: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling, "_MOST_CALLERS", 2)
    monkeypatch.setattr(calling, "_MOST_INTERESTS", 2)
    names = [f"bounded-{number}" for number in range(5)]
    with contextlib.ExitStack() as stack:
        for name in names:
            url = f"{running.urls['lightmq']}/{name}"
            stack.enter_context(answering(url, lambda data: data[::-1]))
        for protocol in ("lightmq", "fmqp"):
            client = stack.enter_context(connect(running.urls[protocol]))
            for name in names * 2:
                assert client.call(name, b"abc") == b"cba"
            assert len(client._calling._callers) == (2 if protocol == "lightmq" else 0)
            assert len(client._calling._interests) == (2 if protocol == "fmqp" else 0)


def test_who_cannot_call_says_who_can() -> None:
    with (
        broker("--listen", "micromsg2://127.0.0.1:0") as running,
        connect(running.urls["micromsg2"] + "/desk") as client,
    ):
        with pytest.raises(NotSupported, match=r"has no calls; give the broker's fmqp:// URL or "):
            client.call("kitchen", b"x")
        assert client.ping() > 0


@pytest.mark.parametrize("protocol", ["fmqp", "lightmq"])
def test_a_name_that_is_no_text_is_the_callers_mistake(
    running: BrokerProcess, protocol: str
) -> None:
    with pytest.raises(BadArgument, match="surrogates not allowed"):
        connect(running.urls[protocol], calls="gr\udcfcn")
