"""The JavaScript client and Python's, through one broker."""

import contextlib
import hashlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.ports import port_for_later
from host_broker.client import Client, connect
from tests.client_js.driver import JsError, Node, driven
from tests.host_broker.net.answering_board import answering
from tests.host_broker.net.broker_process import BrokerProcess, broker
from tests.host_broker.net.certificates import Authority

_SOON_S = 30.0


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker("--listen", "auto://127.0.0.1:0") as process:
        yield process


@pytest.fixture(scope="module")
def node(running: BrokerProcess) -> Iterator[Node]:
    with driven() as node:
        node.run(f"state.client = await umq.connect('umq://127.0.0.1:{running.ports['auto']}')")
        yield node


@pytest.fixture(params=["umq", "fmqp"])
def python(request: pytest.FixtureRequest, running: BrokerProcess) -> Iterator[Client]:
    with connect(f"{request.param}://127.0.0.1:{running.ports['auto']}") as client:
        yield client


_BODIES = [b"on", "ž\0\r\n\u2028".encode(), bytes(range(256)), b"\xff\xfe", b"x" * 300_000]


def test_from_python_to_javascript(node: Node, python: Client) -> None:
    node.run("state.heard = await state.client.subscribe('to/js/*')")
    for number, body in enumerate(_BODIES):
        python.publish(f"to/js/{number}", body)
    for number, body in enumerate(_BODIES):
        topic, hexadecimal = node.run(
            "const {topic, bytes} = await state.heard.next(); return [topic, bytes]"
        )
        assert (topic, bytes.fromhex(hexadecimal["hex"])) == (f"to/js/{number}", body)
    node.run("await state.heard.unsubscribe()")


def test_from_javascript_to_python(node: Node, python: Client) -> None:
    heard = python.subscribe("to/py/*", confirm=True)
    for number, body in enumerate(_BODIES):
        spelled = f"Buffer.from('{body.hex()}', 'hex')"
        node.run(f"await state.client.publish('to/py/{number}', {spelled})")
        message = heard.receive(_SOON_S)
        assert message is not None
        assert (message.topic, message.payload) == (f"to/py/{number}", body)
    node.run("await state.client.publish('to/py/json', {a: [1, 'ž']})")
    message = heard.receive(_SOON_S)
    assert message is not None
    assert message.json() == {"a": [1, "ž"]}


def test_properties_and_what_is_retained(running: BrokerProcess, node: Node) -> None:
    node.run(
        "await state.client.publish('kept/js', 'on', {retain: true, properties: {unit: '°C'}})"
    )
    with connect(f"umq://127.0.0.1:{running.ports['auto']}") as client:
        message = client.subscribe("kept/js", confirm=True).receive(_SOON_S)
        assert message is not None
        assert (message.payload, message.kept, message.properties) == (b"on", True, {"unit": "°C"})
        client.publish("kept/py", b"\xff", retain=True, properties={"a": "b"}, confirm=True)
    said = node.run(
        "const kept = await state.client.subscribe('kept/py');"
        "const {payload, retained, properties} = await kept.next();"
        "await kept.unsubscribe();"
        "return [payload, retained, properties]"
    )
    assert said == [{"hex": "ff"}, True, {"a": "b"}]


def test_a_program_that_is_too_slow_is_told_what_was_dropped(
    running: BrokerProcess, node: Node, tmp_path: Path
) -> None:
    """And nobody waits for it."""
    count, go_on = 400, tmp_path / "go on"
    node.run(
        "state.came = 0;"
        "state.slow = await state.client.subscribe('slow/js', {}, update => {"
        "  state.came += update.publications.length;"
        "  if (update.publications.at(-1)?.text === 'last') tell('last'); });"
    )
    with connect(f"fmqp://127.0.0.1:{running.ports['auto']}") as publisher:
        busy = node.start(
            "const {existsSync} = await import('node:fs');"
            "const cell = new Int32Array(new SharedArrayBuffer(4));"
            "tell('busy');"
            f"while (!existsSync('{go_on}')) Atomics.wait(cell, 0, 0, 20);"  # it reads nothing
        )
        assert node.told() == "busy"
        for _ in range(count):
            publisher.publish("slow/js", b"x" * 200_000)
        publisher.publish("slow/js", b"last", confirm=True)
    go_on.touch()
    node.result(busy)
    assert node.told() == "last"
    came, dropped = node.run("return [state.came, state.slow.dropped]")
    assert dropped > 0
    assert came + dropped == count + 1
    node.run("await state.slow.unsubscribe()")


def test_both_call_a_board(running: BrokerProcess, node: Node, python: Client) -> None:
    with answering(f"lightmq://127.0.0.1:{running.ports['auto']}/both", lambda data: data[::-1]):
        assert python.call("both", b"abc") == b"cba"
        assert node.run("return await state.client.call('both', 'abc')") == "cba"
        assert node.run("return await state.client.call('both', Uint8Array.of(1, 255))") == {
            "hex": "ff01"
        }
    with pytest.raises(JsError, match="both") as error:
        node.run("return await state.client.call('both', 'abc')")
    assert (error.value.name, error.value.code) == ("CallFailed", 7)


def test_a_broker_that_is_killed_and_comes_again() -> None:
    port = port_for_later()
    url = f"umq://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(broker("--listen", f"auto://127.0.0.1:{port}"))
        node = stack.enter_context(driven())
        node.run(
            f"state.client = await umq.connect('{url}', {{timeoutMs: {_SOON_S * 2000:.0f},"
            "  onState: state => tell({state})});"
            "await state.client.subscribe('re/*', {}, update => tell({"
            "  resumed: update.resumed, topics: update.publications.map(each => each.topic)}))"
        )
        python = stack.enter_context(connect(url, reconnect=True, timeout_s=2 * _SOON_S))
        heard = python.subscribe("re/*", confirm=True)
        python.publish("re/1", b"x", confirm=True)
        assert node.told() == {"state": "open"}
        assert node.told() == {"resumed": False, "topics": ["re/1"]}
        first.end(signal.SIGKILL)
        assert node.told() == {"state": "waiting"}
        call = node.start("await state.client.publish('re/2', 'y')")  # waits for a broker
        python.publish("re/3", b"z")  # held
        stack.enter_context(broker("--listen", f"auto://127.0.0.1:{port}"))
        node.result(call)
        python.sync(60.0)
        node.told_until(lambda told: told.get("resumed") is True)
        python.publish("re/last", b"x", confirm=True)
        last = {"resumed": False, "topics": ["re/last"]}
        node.told_until(lambda told: told == last or "re/last" in told.get("topics", []))
        while (message := heard.receive(_SOON_S)) is None or message.topic != "re/last":
            pass
        assert node.run("await state.client.close(); return state.client.connections") == 2


def test_by_tls_and_with_a_token(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    certificate, key = authority.issue("broker", "localhost")
    token = tmp_path / "token"
    token.write_text("a secret\n")
    digest = hashlib.sha256(b"a secret").hexdigest()
    with (
        broker(
            *("--listen", f"umqs://127.0.0.1:0?cert={certificate}&key={key}"),
            *("--set", f"http.token=sha256:{digest}"),
        ) as running,
        driven(NODE_EXTRA_CA_CERTS=str(authority.file)) as node,
    ):
        url = f"umqs://localhost:{running.ports['umqs']}"
        node.run(f"state.client = await umq.connect('{url}', {{token: 'a secret'}})")
        assert node.run("return await state.client.ping()") > 0
        for options in ("{token: 'wrong'}", "{}"):
            with pytest.raises(JsError) as error:
                node.run(f"await umq.connect('{url}', {options})")
            assert (error.value.name, error.value.code) == ("Refused", 1)
        with connect(f"{url}?ca={authority.file}&token_file={token}") as client:
            assert client.ping() > 0
        node.run("await state.client.close()")
