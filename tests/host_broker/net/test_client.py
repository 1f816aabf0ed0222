"""The public client against a real broker."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_broker.client import BadArgument, Client, ConnectionLost, Refused, connect
from tests.host_broker.net.broker_process import BrokerProcess, broker, until


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process


def fmqp(running: BrokerProcess) -> Client:
    client = connect(running.urls["fmqp"])
    return client


def lightmq(running: BrokerProcess, client_id: str) -> Client:
    client = connect(f"{running.urls['lightmq']}/{client_id}")
    return client


def test_sync_makes_a_subscription_active(running: BrokerProcess) -> None:
    with fmqp(running) as listener, fmqp(running) as publisher:
        listener.subscribe("home/*/temperature")
        listener.sync()
        publisher.publish("/home/kitchen/temperature/", b"21.5")
        message = listener.receive(20.0)
        assert message is not None
        assert (message.topic, message.payload) == ("home/kitchen/temperature", b"21.5")
        assert (message.retain, message.will, message.feedback) == (False,) * 3
        assert 0 <= time.monotonic_ns() - message.received_ns < 5e9
        listener.unsubscribe("home/*/temperature")
        listener.sync()
        publisher.publish("home/kitchen/temperature", b"22")
        publisher.sync()
        assert listener.receive(0) is None


def test_cached_messages_and_feedback(running: BrokerProcess) -> None:
    with fmqp(running) as client:
        client.publish("state/lamp", b"on", retain=True)
        client.subscribe("state/lamp", feedback=True)
        client.sync()
        client.subscribe("state/*", uncounted=True)
        kept = client.receive(20.0)
        assert kept is not None
        assert (kept.topic, kept.payload, kept.retain) == ("state/lamp", b"on", True)
        client.subscribe("state/lamp")
        received = [client.receive(20.0) for _ in range(2)]
        assert {(got.topic, got.feedback) for got in received if got} == {
            ("state/lamp", True),
            ("state/lamp", False),
        }


def test_messages_that_come_during_a_ping_are_kept_in_order(running: BrokerProcess) -> None:
    with fmqp(running) as client:
        client.subscribe("t")
        for number in range(100):
            client.publish("t", str(number).encode())
        assert 0 < client.ping(20.0) < 20.0
        received = [client.receive(0) for _ in range(100)]
        assert [got.payload for got in received if got] == [b"%d" % n for n in range(100)]
        assert client.receive(0) is None


def test_what_is_confirmed_was_processed(running: BrokerProcess) -> None:
    with fmqp(running) as client, fmqp(running) as witness:
        client.publish("confirmed/kept", b"1", retain=True, confirm=True)
        assert client.receive(0) is None  # an echo is no message
        witness.subscribe("confirmed/kept")
        message = witness.receive(20.0)
        assert message is not None
        assert message.payload == b"1"


def test_a_silent_connection_is_probed(running: BrokerProcess) -> None:
    """A broker without power says no goodbye: our kernel's keepalive timer runs (proc(5))."""
    with fmqp(running) as client:
        client.sync()
        peer = f":{running.ports['fmqp']:04X}"

        def timers() -> list[str]:
            rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
            return [row[5] for row in rows if row[2].endswith(peer) and row[3] == "01"]

        until(lambda: timers() != [] and all(timer.startswith("02:") for timer in timers()))
        assert max(int(timer.split(":")[1], 16) for timer in timers()) <= 15 * 100


def test_receive_waits_no_longer_than_asked(running: BrokerProcess) -> None:
    with fmqp(running) as client:
        started = time.monotonic()
        assert client.receive(0.2) is None
        assert 0.2 <= time.monotonic() - started < 2.0


@pytest.mark.parametrize("ending", ["close", "abort"])
def test_an_ended_client_says_so(running: BrokerProcess, ending: str) -> None:
    client = fmqp(running)
    getattr(client, ending)()
    getattr(client, ending)()  # twice is harmless
    with pytest.raises(ConnectionLost, match="is closed; connect again"):
        client.publish("t", b"x")
    with pytest.raises(ConnectionLost, match="is closed; connect again"):
        client.receive(0.1)


@pytest.mark.parametrize("topic", ["", "/", "a\0b", "x" * 256])
def test_a_topic_that_fmqp_cannot_carry_is_the_callers_mistake(
    running: BrokerProcess, topic: str
) -> None:
    with fmqp(running) as client:
        with pytest.raises(BadArgument, match="topic"):
            client.publish(topic, b"x")
        client.sync()  # nothing was sent, the connection lives


def test_lightmq_sends_receives_and_responds(running: BrokerProcess) -> None:
    with lightmq(running, "hall") as hall, fmqp(running) as program:
        program.subscribe("lightmq/hall/*")
        online = program.receive(20.0)
        assert online is not None
        assert (online.topic, online.payload) == ("lightmq/hall/status", b"online")
        program.publish("lightmq/hall/down", b"question")
        assert hall.receive(20.0) is not None
        program.sync()
        question = program.receive(1.0)  # its own message: it subscribed to that too
        assert question is not None
        program.publish("lightmq/hall/down", b"again")
        request = hall.receive(20.0)
        assert request is not None
        assert request.payload == b"again"
        hall.respond(request, b"answer")
        assert hall.request("up", b"reading", 20.0) == b""
        topics = {}
        for _ in range(3):
            message = program.receive(20.0)
            assert message is not None
            topics[message.topic] = message.payload
        assert topics["lightmq/hall/reply"] == b"answer"
        assert topics["lightmq/hall/up"] == b"reading"
        hall.abort()
        gone = program.receive(20.0)
        assert gone is not None
        assert (gone.topic, gone.payload) == ("lightmq/hall/status", b"offline")


def test_a_waiting_lightmq_client_answers_the_brokers_pings() -> None:
    settings = ("--set", "lightmq.ping_interval_s=0.1", "--set", "lightmq.ping_timeout_s=2")
    with broker(*settings) as impatient:
        with lightmq(impatient, "patient") as client:
            assert client.receive(3.0) is None
            assert client.ping(20.0) < 20.0
        with lightmq(impatient, "busy") as client:
            time.sleep(3.0)  # what the program does meanwhile is its own business
            assert client.ping(20.0) < 20.0


def test_the_other_dialect() -> None:
    with broker("--set", "lightmq.dialect=gbaranski") as running:
        url = running.urls["lightmq"] + "/go"
        with connect(url, dialect="gbaranski") as client:
            assert client.request("up", b"x", 20.0) == b""
            assert client.ping(20.0) < 20.0
            with pytest.raises(Refused, match="another client") as refused:
                connect(url, dialect="gbaranski")
            assert refused.value.code == 4


def test_a_client_id_in_use_is_refused_with_its_code(running: BrokerProcess) -> None:
    with lightmq(running, "twin"):
        with pytest.raises(Refused, match="is another client connected") as refused:
            lightmq(running, "twin")
        assert refused.value.code == 4
        assert refused.value.args[0].startswith("lightmq://127.0.0.1:")


def test_what_lightmq_cannot_carry_is_the_callers_mistake(running: BrokerProcess) -> None:
    with pytest.raises(BadArgument, match="255"):
        lightmq(running, "x" * 256)
    with lightmq(running, "wide") as client:
        with pytest.raises(BadArgument, match="65463"):
            client.request("up", bytes(65464), 20.0)
        assert client.request("up", bytes(65463), 20.0) == b""


def test_without_a_client_id_it_makes_one_up(running: BrokerProcess) -> None:
    with connect(running.urls["lightmq"]) as client:
        assert re.fullmatch(r"host-[0-9a-f]{8}", client.name)
