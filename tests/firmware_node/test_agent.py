"""The agent's steps on the unix port against the real broker, seen by another client."""

import threading
import time

import pytest

from host_broker.client import Client
from tests.firmware_node.board import AgentProcess
from tests.firmware_node.conftest import BrokerPorts


def _texts(observer: Client, count: int) -> list[str]:
    texts = []
    while len(texts) < count and (message := observer.receive(timeout_s=20.0)) is not None:
        texts.append(message.payload.decode())
    return texts


def test_info(fmqp_agent: AgentProcess) -> None:
    info = fmqp_agent.step("info")
    assert info["ok"] is True
    assert info["machine"].startswith("linux")
    assert info["version"].count(".") == 2
    assert info["client"] == "0.3.0"
    assert info["uid"] == ""
    assert info["heap_free"] > 50_000


def test_fmqp_publish(fmqp_agent: AgentProcess, broker: BrokerPorts) -> None:
    with broker.observer() as observer:
        observer.subscribe("check/b1")
        observer.sync()
        assert fmqp_agent.step("connect", client_id="b1.check", will=None)["ok"]
        result = fmqp_agent.step("publish", topic="check/b1", payload="#n up", count=20)
        assert (result["ok"], result["sent"], result["responses"]) == (True, 20, 0)
        assert result["us"] > 0
        assert _texts(observer, 20) == [f"#{n} up" for n in range(20)]
        fmqp_agent.step("publish", topic="check/b1", payload="#n kept", retain=True)
        assert _texts(observer, 1) == ["#n kept"]
    with broker.observer() as late:
        late.subscribe("check/b1")
        assert _texts(late, 1) == ["#n kept"]


def test_fmqp_receive(fmqp_agent: AgentProcess, broker: BrokerPorts) -> None:
    fmqp_agent.step("connect", client_id="b1.check", will=None)
    sent = [f"#{n} dówn" for n in range(20)]
    with broker.observer() as publisher:

        def publish() -> None:
            for text in sent:
                publisher.publish("check/b1/down", text.encode())

        result = fmqp_agent.step("receive", publish, topic="check/b1/down", count=20)
        assert result == {"ok": True, "payloads": sent}
        start = time.monotonic()
        result = fmqp_agent.step("receive", topic="check/b1/down", count=1, timeout_ms=300)
        assert result == {"ok": True, "payloads": []}
        assert time.monotonic() - start < 20


def test_a_message_that_is_late_is_not_lost(fmqp_agent: AgentProcess, broker: BrokerPorts) -> None:
    """The time is that of silence: as long as messages come, a slow line is waited for."""
    fmqp_agent.step("connect", client_id="b1.check", will=None)
    pause = threading.Event()
    with broker.observer() as publisher:

        def publish() -> None:
            for number in range(6):
                publisher.publish("check/b1/slow", f"#{number}".encode())
                pause.wait(0.4)

        began = time.monotonic()
        result = fmqp_agent.step("take", publish, topic="check/b1/slow", count=6, timeout_ms=1800)
    assert time.monotonic() - began > 1.9
    assert result["count"] == 6


def test_fmqp_wills(fmqp_agent: AgentProcess, broker: BrokerPorts) -> None:
    with broker.observer() as observer:
        observer.subscribe("will/b1")
        observer.sync()
        assert fmqp_agent.step("connect", will=["will/b1", "clean"])["ok"]
        assert fmqp_agent.step("ping", count=1)["lost"] == 0
        assert observer.receive(timeout_s=0.2) is None
        assert fmqp_agent.step("close") == {"ok": True}
        assert _texts(observer, 1) == ["clean"]
        assert fmqp_agent.step("connect", will=["will/b1", "abrupt"])["ok"]
        observer.sync()
        assert observer.receive(timeout_s=0.2) is None
        fmqp_agent.kill()
        assert _texts(observer, 1) == ["abrupt"]


def test_lightmq(lightmq_agent: AgentProcess, broker: BrokerPorts) -> None:
    with broker.observer() as observer:
        observer.subscribe("lightmq/b2.check/up")
        observer.sync()
        assert lightmq_agent.step("connect", client_id="b2.check", will=None)["ok"]
        result = lightmq_agent.step("publish", topic="", payload="#n up", count=20)
        assert (result["ok"], result["sent"], result["responses"]) == (True, 20, 20)
        assert _texts(observer, 20) == [f"#{n} up" for n in range(20)]

        sent = [f"#{n} down" for n in range(20)]

        def publish() -> None:
            for text in sent:
                observer.publish("lightmq/b2.check/down", text.encode())

        assert lightmq_agent.step("receive", publish, count=20)["payloads"] == sent


def test_lightmq_presence(lightmq_agent: AgentProcess, broker: BrokerPorts) -> None:
    with broker.observer() as observer:
        observer.subscribe("lightmq/b2.presence/status")
        observer.sync()
        for end in (lambda: lightmq_agent.step("close"), lightmq_agent.kill):
            assert lightmq_agent.step("connect", client_id="b2.presence", will=None)["ok"]
            assert _texts(observer, 1) == ["online"]
            end()
            assert _texts(observer, 1) == ["offline"]


@pytest.mark.parametrize("protocol", ["fmqp", "lightmq"])
def test_ping(protocol: str, request: pytest.FixtureRequest) -> None:
    agent: AgentProcess = request.getfixturevalue(f"{protocol}_agent")
    agent.step("connect", client_id=f"{protocol}.ping")
    result = agent.step("ping", count=50, timeout_ms=2000)
    assert (result["ok"], result["lost"]) == (True, 0)
    assert len(result["rtt_us"]) == 50
    assert all(0 < rtt < 2_000_000 for rtt in result["rtt_us"])


def test_a_failing_step_says_why(fmqp_agent: AgentProcess, lightmq_agent: AgentProcess) -> None:
    for name, arguments, reason in (
        ("fly", {}, "no step 'fly'; there are: close, confirmed, connect, echo, info"),
        ("ping", {}, "run the step connect first"),
        ("ping", {"height": 3}, "TypeError"),
    ):
        result = fmqp_agent.step(name, **arguments)
        assert result["ok"] is False
        assert reason in result["error"]
    result = lightmq_agent.step("connect", will=["a", "b"])
    assert "no last will" in result["error"]
