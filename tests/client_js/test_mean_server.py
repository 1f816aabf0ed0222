"""The JavaScript client, in Node, with a server that is slow, silent or wrong."""

import json
import threading
import time
from collections.abc import Iterator

import pytest
from wsproto.events import Ping

from tests.client_js.driver import JsError, Node, driven
from tests.client_js.mean_server import Gone, MeanConnection, mean_server
from tests.host_broker.net.broker_process import until


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with driven() as node:
        yield node


def _connect(node: Node, url: str, options: str = "{}") -> None:
    node.run(f"state.client = await umq.connect('{url}', {options})")


def _close(node: Node) -> None:
    node.run("await state.client.close()")


def _calls(connection: MeanConnection) -> Iterator[tuple[str, list[object]]]:
    while True:
        said = connection.read()
        if isinstance(said, str) and said.startswith("C"):
            number, _, payload = said[1:].partition(":")
            yield number, json.loads(payload)


def test_bytes_one_by_one_and_pings_between(node: Node) -> None:
    """R5, A10: other texts come between a message and its attachments."""

    def behave(connection: MeanConnection) -> None:
        connection.welcome()
        calls = _calls(connection)
        number, (_, _, topic, _) = next(calls)
        told = [{"topic": "a", "at": 1, "attachment": True}, {"topic": "b", "at": 2, "text": "ž"}]
        ping = connection.frames.send(Ping(b"there?"))
        data = (
            connection.spelled(f"R{number}:{{}}", f"A1:T{topic}:{json.dumps(told)}")
            + ping
            + connection.spelled(f'T{topic}:[{{"topic":"c","at":3,"text":"x"}}]', b"\xff\x00")
        )
        for at in range(len(data)):
            connection.sock.sendall(data[at : at + 1])
        next(calls)

    with mean_server(behave) as server:
        _connect(node, server.url)
        heard = node.run(
            "const heard = await state.client.subscribe('*');"
            "const next = async () => { const {topic, payload} = await heard.next();"
            "  return [topic, payload]; };"
            "return [await next(), await next(), await next()]"
        )
        assert heard == [["a", {"hex": "ff00"}], ["b", "ž"], ["c", "x"]]
        _close(node)


def test_a_server_that_does_not_welcome(node: Node) -> None:
    said: list[str | bytes] = []

    def behave(connection: MeanConnection) -> None:
        connection.accept()
        while True:
            said.append(connection.read())

    with mean_server(behave) as server:
        with pytest.raises(JsError, match="did not welcome us within 300 ms") as error:
            _connect(node, server.url, "{timeoutMs: 300, reconnect: false}")
        assert error.value.name == "TimedOut"
    # On a busy machine the time may be over before anything is said.
    assert ["H1:", "F0:3 no welcome"][: len(said)] == said


def test_a_server_that_falls_silent_is_left_for_another(node: Node) -> None:
    fatal: list[str | bytes] = []

    def silent(connection: MeanConnection) -> None:
        connection.welcome()
        while True:
            fatal.append(connection.read())

    def well(connection: MeanConnection) -> None:
        connection.welcome()
        for number, _ in _calls(connection):
            connection.say(f"E{number}:3 what?")

    with mean_server(silent, well) as server:
        _connect(
            node,
            server.url,
            "{heartbeatMs: 500, onState: state => tell({state})}",
        )
        node.told_until(lambda told: told == {"state": "waiting"})
        node.told_until(lambda told: told == {"state": "open"})
        assert node.run("return state.client.connections") >= 2
        _close(node)
    assert fatal == ['C1:["ping"]', "F0:8 no answer"]


@pytest.mark.parametrize(
    ("said", "fatal"),
    [
        (["x"], "F0:3 "),
        (["W1:{}"], "F0:3 "),
        (["A1:E1:x"], "F0:3 "),
        (["A1:T1:[]", "T1:" + "x" * 2000], "F0:1 maxTextLength"),
        (["A1:C1:x", b"x" * 2000], "F0:1 maxAttachmentBytes"),
        (["AZZZZ:C1:x"], "F0:1 maxAttachments"),
        ([f"A1:C{n}:x" for n in range(10)], "F0:1 maxHeldMessages"),
        ([f"S:{n}=x" for n in range(100)], "F0:1 maxAttributes"),
    ],
)
def test_what_breaks_umq_ends_the_connection(
    node: Node, said: list[str | bytes], fatal: str
) -> None:
    answers: list[str | bytes] = []
    over = threading.Event()

    def mean(connection: MeanConnection) -> None:
        connection.welcome()
        connection.say(*said)
        try:
            while True:
                answers.append(connection.read())
        except Gone as gone:
            assert gone.code in (0, 1000)
            over.set()

    def well(connection: MeanConnection) -> None:
        connection.welcome()
        connection.read()

    limits = (
        "{maxTextLength: 1000, maxAttachmentBytes: 1000, maxAttachments: 1000, maxHeldMessages: 5}"
    )
    with mean_server(mean, well) as server:
        _connect(node, server.url, f"{{limits: {limits}, onState: state => tell({{state}})}}")
        node.told_until(lambda told: told == {"state": "waiting"})
        node.told_until(lambda told: told == {"state": "open"})
        assert over.wait(30)
        _close(node)
    assert str(answers[-1]).startswith(fatal), answers


def test_attachments_that_never_come_hold_nothing_else_up(node: Node) -> None:
    def behave(connection: MeanConnection) -> None:
        connection.welcome()
        calls = _calls(connection)
        number, (_, _, topic, _) = next(calls)
        connection.say(f"R{number}:{{}}", f"A1:T{topic}:[]")
        for number, _ in calls:
            connection.say(f'R{number}:{{"stats":1}}')

    with mean_server(behave) as server:
        _connect(node, server.url)
        node.run("await state.client.subscribe('a')")
        assert node.run("return await state.client.method('stats')") == {"stats": 1}
        _close(node)


def test_a_server_that_refuses_is_asked_again_slowly(node: Node) -> None:
    """Nobody in a browser is told why; so it may be another time."""

    def refuse(connection: MeanConnection) -> None:
        connection.refuse(403)

    with mean_server(refuse) as server:
        began = time.monotonic()
        node.run(f"state.client = new umq.Client('{server.url}')")
        until(lambda: server.connections >= 4)
        # 0.25 s, 0.5 s, 1 s, of each a random half less.
        assert time.monotonic() - began > 0.875
        _close(node)
        with pytest.raises(JsError, match=r"no connection to ws://127\.0\.0\.1"):
            _connect(node, server.url, "{timeoutMs: 1}")
        with pytest.raises(JsError) as error:
            _connect(node, server.url, "{reconnect: false}")
        assert error.value.name == "ConnectionLost"


def test_a_server_that_reads_nothing(node: Node) -> None:
    """What waits for the network is bounded, and the program is told."""
    over = threading.Event()

    def behave(connection: MeanConnection) -> None:
        connection.welcome()
        over.wait(60)

    with mean_server(behave) as server:
        _connect(
            node,
            server.url,
            "{limits: {maxBufferedBytes: 1 << 20, maxPendingCalls: 100000}, heartbeatMs: 0}",
        )
        name, sent = node.run(
            "let sent = 0, error = null;"
            "const body = new Uint8Array(1 << 16);"
            "while (error === null && sent < 10000) {"
            "  state.client.publish('a', body).catch(each => { error ??= each; });"
            "  sent += 1;"
            "  await new Promise(setImmediate);"
            "}"
            "return [error?.name, sent]"
        )
        assert name == "LimitExceeded"
        assert 16 <= sent < 10_000
        over.set()
        _close(node)


def test_answers_to_nobody_and_twice(node: Node) -> None:
    """R19: the first answer is the answer."""

    def behave(connection: MeanConnection) -> None:
        connection.welcome()
        for number, _ in _calls(connection):
            connection.say(
                "R9:{}", "EZZ:7 no", f'R{number}:{{"a":1}}', f"E{number}:7 no", f"R{number}:[]"
            )

    with mean_server(behave) as server:
        _connect(node, server.url)
        for _ in range(3):
            assert node.run("return await state.client.method('stats')") == {"a": 1}
        _close(node)
