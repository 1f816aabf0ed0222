"""Connections that are lost, and brokers that are not there yet."""

import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Iterator

import pytest

import motemq
from benchmarks.ports import port_for_later
from host_broker.client import ConnectFailed, ConnectionLost, connect
from tests.host_broker.cli.cutting import relay
from tests.host_broker.net.broker_process import BrokerProcess, broker, until

_SOON_S = 20.0


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process


@pytest.fixture
def later() -> str:
    """Return an address at which nothing listens yet."""
    return f"fmqp://127.0.0.1:{port_for_later()}"


def test_a_lost_connection_is_replaced_and_everything_is_as_before(later: str) -> None:
    """A restarted broker knows nothing: subscriptions, wills and what it never had come again."""
    told: list[object] = []
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(broker("--listen", later))
        client = stack.enter_context(connect(later, reconnect=True, watcher=told.append))
        subscription = client.subscribe("re/*", confirm=True)
        client.publish("re/will", b"gone", will=True)
        client.publish("re/a", b"1", confirm=True)
        heard = _next(subscription)
        assert heard is not None
        assert heard.payload == b"1"
        first.end(signal.SIGKILL)
        until(lambda: client.trouble is not None)
        client.publish("re/a", b"2")  # held until there is a broker again
        assert client.unconfirmed >= 1
        stack.enter_context(broker("--listen", later))
        client.sync(60.0)
        assert client.unconfirmed == 0
        assert subscription.receive(_SOON_S) is None  # the mark: it was interrupted
        assert not subscription.active
        assert subscription.receive(_SOON_S) is None
        assert subscription.active
        message = subscription.receive(_SOON_S)
        assert message is not None
        assert message.payload == b"2"
        witness = stack.enter_context(connect(later))
        witness.subscribe("re/will", confirm=True)
        client.abort()
        will = witness.receive(_SOON_S)
        assert will is not None
        assert will.payload == b"gone"
    assert isinstance(told[0], ConnectionLost | type(None))
    assert any(isinstance(each, ConnectionLost) for each in told)


def _next(subscription: motemq.Subscribing) -> motemq.Message | None:
    return subscription.receive(_SOON_S)


def test_no_message_is_lost_however_often_the_connection_is(running: BrokerProcess) -> None:
    count = 20_000
    cuts = [1, 70, 400, 33_333, 90_001, 120_000]
    with (
        connect(running.urls["fmqp"], timeout_s=_SOON_S) as listener,
        relay(running.ports["fmqp"], cuts) as cutting,
        connect(cutting.url, reconnect=True, timeout_s=_SOON_S) as client,
    ):
        subscription = listener.subscribe("cut/t", confirm=True)
        subscription.receive(0)
        for number in range(count):
            client.publish("cut/t", b"%05d" % number, timeout_s=60.0)
        client.sync(60.0)
        listener.sync()
        heard = [each.payload for each in iter(lambda: subscription.receive(0), None)]
    assert sorted(set(heard)) == [b"%05d" % number for number in range(count)]
    assert sum(after <= before for before, after in itertools.pairwise(heard)) <= len(cuts)


def test_a_broker_that_is_not_there_yet(later: str) -> None:
    started = time.monotonic()
    with pytest.raises(ConnectFailed, match="nothing listens"):
        connect(later, wait_s=0.5)
    assert 0.3 < time.monotonic() - started < _SOON_S
    opened: list[motemq.Client] = []
    waiting = threading.Thread(target=lambda: opened.append(connect(later, wait_s=60.0)))
    waiting.start()
    with broker("--listen", later):
        waiting.join(60)
        assert opened[0].ping() > 0
        opened[0].close()
    # With reconnect one can begin without any, and publish.
    with connect(later, reconnect=True, wait_s=0) as client:
        assert isinstance(client.trouble, ConnectFailed)
        client.publish("early/t", b"kept", retain=True)
        with broker("--listen", later), connect(later, wait_s=60.0) as witness:
            client.sync(60.0)
            message = witness.subscribe("early/t", confirm=True).receive(_SOON_S)
            assert message is not None
            assert (message.payload, message.kept) == (b"kept", True)


def test_who_subscribes_and_publishes_without_a_broker_is_heard_when_there_is_one(
    later: str,
) -> None:
    with connect(later, reconnect=True, wait_s=0, timeout_s=_SOON_S) as client:
        subscription = client.begin_subscribing("before/*")
        for number in range(50):
            client.publish("before/t", b"%d" % number)
        with pytest.raises(motemq.BadArgument, match="topic"):
            client.publish("", b"x")
        with pytest.raises(motemq.NotSupported):
            client.publish("t", b"x", properties={"a": 1})
        with broker("--listen", later):
            heard = []
            while len(heard) < 50:
                message = subscription.receive(_SOON_S)
                if message is not None:
                    heard.append(message.payload)
            assert heard == [b"%d" % number for number in range(50)]
            client.sync(_SOON_S)


def test_a_lightmq_client_comes_back_under_the_same_name() -> None:
    port = port_for_later()
    listen = ("--listen", f"lightmq://127.0.0.1:{port}", "--listen", "fmqp://127.0.0.1:0")
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(broker(*listen))
        client = stack.enter_context(connect(f"lightmq://127.0.0.1:{port}", reconnect=True))
        name = client.name
        client.publish("up", b"1", confirm=True)
        first.end(signal.SIGKILL)
        until(lambda: client.trouble is not None)
        again = stack.enter_context(broker(*listen))
        witness = stack.enter_context(connect(again.urls["fmqp"]))
        witness.subscribe(f"lightmq/{name}/up", confirm=True)
        client.publish("up", b"2", timeout_s=60.0)
        client.sync(60.0)
        message = witness.receive(_SOON_S)
        assert message is not None
        assert message.payload in (b"1", b"2")


def test_what_is_sent_to_a_client_that_ignores_it_holds_up_nothing(running: BrokerProcess) -> None:
    """A publisher over LightMQ is sent what is for it, wanted or not; its responses come behind."""
    with (
        connect(running.urls["lightmq"] + "/loud", timeout_s=_SOON_S) as loud,
        connect(running.urls["fmqp"], timeout_s=_SOON_S) as client,
    ):
        for number in range(200):
            client.publish("lightmq/loud/down", bytes(60_000))
            if number % 20 == 0:
                client.sync()
                loud.publish("up", b"x", confirm=True)
        loud.ignore_others()
        for _ in range(100):
            loud.publish("up", b"x")
        loud.sync()
        assert loud.receive(0) is None
