"""The npm client fq, 0.4.1, in Node, against a real broker: it takes it for fqd."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from boards.virtual.rp2040.node import NodeTools, find_node
from host_broker.client import connect
from tests.host_broker.net.broker_process import END_S, BrokerProcess, broker, line_of, spawn
from tests.npm_packages import node_modules

_HERE = Path(__file__).parent / "npm_fq"
_ANSWER_S = 30.0
_MOST_ASKED = 10_000
_KEY_ORDER = [
    "dropped_in",
    "no_exchange",
    "no_route",
    "routed",
    "dropped",
    "size_dropped",
    "msgs_in",
    "msgs_out",
    "octets_in",
    "octets_out",
]


class _Node:
    """The driver: what clients are told to do, and what happens to them."""

    def __init__(self, package: Path, tools: NodeTools) -> None:
        argv = [str(tools.node), "--no-deprecation", str(_HERE / "driver.js"), str(package)]
        self.process = spawn(argv, stdin=subprocess.PIPE)
        self._seen: list[dict[str, Any]] = []
        self._last = 0
        self.wait(None, "up")

    def name(self) -> str:
        self._last += 1
        return f"client{self._last}"

    def tell(self, do: str, name: str, **how: Any) -> None:
        assert self.process.stdin is not None
        line = json.dumps({"do": do, "name": name, **how}) + "\n"
        self.process.stdin.write(line.encode())

    def wait(self, name: str | None, event: str) -> dict[str, Any]:
        """Return the next event of that kind; what comes before it waits for its own turn."""

        def is_it(seen: dict[str, Any]) -> bool:
            return seen.get("name") == name and seen["event"] == event

        return self.wait_for(is_it)

    def wait_for(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        for position, seen in enumerate(self._seen):
            if is_it(seen):
                return self._seen.pop(position)
        while True:
            seen = json.loads(line_of(self.process, _ANSWER_S))
            if is_it(seen):
                return seen
            self._seen.append(seen)

    def ask(self, do: str, name: str, event: str, **how: Any) -> dict[str, Any]:
        self.tell(do, name, **how)
        answer = self.wait(name, event)
        assert answer.get("error") is None, answer
        return answer


@pytest.fixture(scope="module")
def node() -> Iterator[_Node]:
    tools = find_node()
    node = _Node(node_modules("npm-fq", _HERE, tools) / "fq", tools)
    yield node
    node.process.communicate(timeout=END_S)  # the end of its input is the end of the driver
    assert node.process.returncode == 0


# It opens both connections before it says a word, so that a port for all protocols has to wait.
@pytest.fixture(scope="module", params=["fq", "auto"])
def running(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    where = f"{request.param}://127.0.0.1:0"
    with broker("--listen", where, "--listen", "fmqp://127.0.0.1:0") as running:
        running.ports["npm"] = running.ports[request.param]
        yield running


def _connected(node: _Node, running: BrokerProcess, **options: Any) -> str:
    name = node.name()
    options = {"host": "127.0.0.1", "port": running.ports["npm"], "queue": name} | options
    node.ask("connect", name, "ready", options=options)
    return name


def _bound(node: _Node, name: str, exchange: str, program: str) -> int:
    answer = node.ask("bind", name, "bound", exchange=exchange, program=program, flags=0)
    assert isinstance(answer["route"], int)
    return answer["route"]


def test_what_is_published_is_consumed(node: _Node, running: BrokerProcess) -> None:
    """R1, R16, R21 to R24, R28: with sender and hops, in order."""
    consumer, publisher = _connected(node, running), _connected(node, running, user="pub")
    assert _bound(node, consumer, "flow", 'prefix:"a."') > 0
    node.ask("consume", consumer, "consuming")
    for route in ("a.b", "b.a"):
        node.tell("publish", publisher, exchange="flow", route=route, payload="p", count=50)
    for number in range(50):
        message = node.wait(consumer, "message")
        assert (message["exchange"], message["route"]) == ("flow", "a.b")
        assert (message["payload"], message["sender"]) == (f"p{number}", "pub")
        assert message["hops"][1:] == ["127.0.0.1"]
        assert len(message["id"]) == 16
    status = node.ask("status", publisher, "status")["status"]
    assert list(status) == _KEY_ORDER
    # The other fifty are nobody's, and may be on their way still.
    assert 50 <= status["msgs_in"] <= 100
    assert (status["routed"], status["no_exchange"]) == (50, 0)


def test_it_meets_another_protocol(node: _Node, running: BrokerProcess) -> None:
    """What FMQP publishes has no sender and no hops of its own, which it could not read."""
    consumer = _connected(node, running)
    _bound(node, consumer, "other", "prefix:")
    node.ask("consume", consumer, "consuming")
    with connect(running.urls["fmqp"]) as client:
        subscription = client.subscribe("other/back", confirm=True)
        client.publish("other/there/and", b"more")
        message = node.wait(consumer, "message")
        assert (message["exchange"], message["route"]) == ("other", "there/and")
        assert message["payload"] == "more"
        assert (len(message["hops"]), bool(message["sender"])) == (1, True)
        node.tell("publish", consumer, exchange="other", route="back", payload="b", count=1)
        back = subscription.receive(_ANSWER_S)
        assert back is not None
        assert back.payload == b"b0"


def test_programs_are_refused_and_the_connection_stays(node: _Node, running: BrokerProcess) -> None:
    """R17: the route id of a refusal is -1 to it."""
    name = _connected(node, running)
    assert _bound(node, name, "flow", 'prefix:"x') == -1
    assert _bound(node, name, "flow", 'exact:"x" (true() && nonsense())') == -1
    assert _bound(node, name, "flow", 'exact:"x" (true() && payload_prefix("x"))') > 0


def test_unbinding(node: _Node, running: BrokerProcess) -> None:
    """R18: nothing comes of it any more, and once more is no success."""
    consumer, publisher = _connected(node, running), _connected(node, running, user="pub")
    witness = _connected(node, running)
    _bound(node, consumer, "unbound", "prefix:")
    _bound(node, witness, "unbound", "prefix:")
    node.ask("consume", consumer, "consuming")
    node.ask("consume", witness, "consuming")
    node.tell("publish", publisher, exchange="unbound", route="r", payload="one", count=1)
    assert node.wait(consumer, "message")["payload"] == "one0"
    assert node.ask("unbind", consumer, "unbound")["success"] is True
    node.tell("publish", publisher, exchange="unbound", route="r", payload="two", count=1)
    assert [node.wait(witness, "message")["payload"] for _ in range(2)] == ["one0", "two0"]
    status = node.ask("status", consumer, "status")["status"]
    # exchange, route, id, sender, two hops, and "one0", with their lengths
    octets = (1 + 7) + (1 + 1) + 16 + (1 + 3) + (1 + 8) + (4 + 4)
    assert (status["msgs_out"], status["octets_out"]) == (1, octets)


def test_status_again_and_again(node: _Node, running: BrokerProcess) -> None:
    """A17: its request has two bytes too many, which fqd does not survive."""
    name = _connected(node, running)
    asked = 0
    # The two connections are the client's: which the broker sees first is nobody's promise.
    while "msgs_in" not in (status := node.ask("status", name, "status")["status"]):
        asked += 1
        assert asked < _MOST_ASKED, status
    for _ in range(3):
        assert status["msgs_in"] == 0
        status = node.ask("status", name, "status")["status"]
    assert _bound(node, name, "status", "prefix:") > 0


def test_heartbeats(node: _Node, running: BrokerProcess) -> None:
    """R13, R15: it gives up a broker that is silent for three intervals; ours is heard."""
    name = _connected(node, running, heartbeat=400)
    beats = {node.ask("heartbeat", name, "heartbeat")["last"]}
    while len(beats) < 4:
        beats.add(node.ask("heartbeat", name, "heartbeat")["last"])
        _bound(node, name, "beats", "prefix:")  # an answer between two beats
    node.ask("shutdown", name, "shut down")


def test_two_consumers_compete(node: _Node, running: BrokerProcess) -> None:
    """R29, R31: each message goes to exactly one of a public queue's clients, to both their share.

    One of them alone would have had to take all.
    """
    how = {"queue": "shared", "queueType": "mem:public,drop"}
    consumers = [_connected(node, running, **how) for _ in range(2)]
    publisher = _connected(node, running)
    _bound(node, consumers[0], "compete", "prefix:")
    for consumer in consumers:
        node.ask("consume", consumer, "consuming")
    count = 400
    for begin in range(0, count, 40):
        payload = f"{begin}+"
        node.tell("publish", publisher, exchange="compete", route="r", payload=payload, count=40)
    heard = [
        node.wait_for(lambda seen: seen["event"] == "message" and seen["name"] in consumers)
        for _ in range(count)
    ]
    assert len({message["payload"] for message in heard}) == count
    assert {message["name"] for message in heard} == set(consumers)


def test_a_private_queue_is_for_one(node: _Node, running: BrokerProcess) -> None:
    """R8, R30: the other one is told why."""
    _connected(node, running, queue="mine")
    other = node.name()
    options = {"port": running.ports["npm"], "queue": "mine", "reconnect": 600_000}
    node.tell("connect", other, options=options)
    error = node.wait(other, "error")["error"]
    assert "requested queue is private and in use" in error
    node.ask("shutdown", other, "shut down")
