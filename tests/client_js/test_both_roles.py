"""UMQ itself, between the JavaScript client and the broker's own peer, in any direction."""

import threading
from collections.abc import Callable
from typing import Any

from host_broker.protocols.umq.codec import spell_id
from host_broker.protocols.umq.events import (
    Attachment,
    Call,
    Callback,
    ClearAttribute,
    Event,
    Failed,
    Hello,
    Missing,
    Result,
    SetAttribute,
    TopicEnd,
    Unsubscribe,
    Update,
)
from host_broker.protocols.umq.peer import Peer, PeerLimits
from host_broker.wire.violation import Violation
from tests.client_js.driver import Node, driven
from tests.client_js.mean_server import Gone, MeanConnection, mean_server


class _Server:
    """The broker's peer at one end of a connection."""

    def __init__(self, connection: MeanConnection) -> None:
        self.peer = Peer("server", PeerLimits(max_attachment=1 << 20))
        self._connection = connection
        self._events: list[Event] = []
        connection.accept()
        hello = self.next(Hello)
        self.peer.welcome(hello.version, "{}")
        self.flush()

    def flush(self) -> None:
        self._connection.say(*self.peer.out)
        self.peer.out.clear()

    def next(self, kind: Any) -> Any:
        """Return the next event of a kind; others wait."""
        while True:
            for event in self._events:
                if isinstance(event, kind):
                    self._events.remove(event)
                    return event
            for event in self.peer.receive(self._connection.read()):
                assert not isinstance(event, Violation), event
                self._events.append(event)
            self.flush()


def _talk(play: Callable[[_Server], None], program: str) -> Any:
    """Have the server play its part while Node runs a program with a connected ``client``."""
    played = threading.Event()

    def behave(connection: MeanConnection) -> None:
        server = _Server(connection)
        play(server)
        played.set()
        try:
            while True:
                connection.read()
        except Gone as gone:
            assert gone.code == 1000

    node: Node
    with mean_server(behave) as server, driven() as node:
        said = node.run(
            f"const url = '{server.url}';"
            "const text = ({payload, attachments}) =>"
            "  [payload, attachments.map(each => each.message ?? each)];"
            f"{program}"
        )
        assert played.wait(30)
        node.run("await state.client.close()")
    return said


def _hex(*attachments: bytes) -> list[dict[str, str]]:
    return [{"hex": each.hex()} for each in attachments]


def test_calls_both_ways() -> None:
    """R17 to R21, A26"""
    answers: list[Event] = []

    def play(server: _Server) -> None:
        asked = [
            server.peer.call("echo", [b"\0", b""]),
            server.peer.call("fail"),
            server.peer.call("worse"),
        ]
        server.flush()
        call = server.next(Call)
        assert (call.payload, list(call.attachments)) == ("to you", [b"\xff"])
        server.peer.answer(call.id, "from me", [b"\1"])
        server.flush()
        answers.extend(server.next((Result, Failed)) for _ in asked)
        assert sorted(each.id for each in answers) == asked  # type: ignore[union-attr]

    said = _talk(
        play,
        "const onCall = async ({payload, attachments}) => {"
        "  if (payload === 'fail') throw new umq.CallFailed('teapot', 418);"
        "  if (payload === 'worse') throw new Error('\\ud800 broken');"
        "  return {payload, attachments}; };"
        "state.client = await umq.connect(url, {onCall});"
        "return text(await state.client.request('to you', {attachments: [Uint8Array.of(255)]}))",
    )
    assert said == ["from me", _hex(b"\1")]
    by_id = {each.id: each for each in answers}  # type: ignore[union-attr]
    assert by_id[1] == Result(1, "echo", [b"\0", b""])
    assert by_id[2] == Failed(2, "418 teapot")
    assert by_id[3] == Failed(3, "\ufffd broken")


def test_callbacks_both_ways() -> None:
    """R22 to R24, A15, A16: once, and then they are not found."""
    heard: list[Any] = []

    def play(server: _Server) -> None:
        server.peer.register_callback(4454)
        call = server.next(Call)
        server.peer.answer(call.id, spell_id(4454))
        theirs = int(call.payload, 36)
        server.peer.call_back(theirs, "work: 1", [b"a"])
        server.peer.call_back(theirs, "work: 2", [b"b"])
        server.flush()
        heard.append(server.next(Result))
        heard.append(server.next(Failed))
        back = server.next(Callback)
        heard.append((back.callback, back.argument, list(back.attachments)))
        server.peer.answer(back.id, "thank you")
        server.flush()
        server.next(SetAttribute)

    said = _talk(
        play,
        "const client = state.client = await umq.connect(url);"
        "const id = client.registerCallback(({payload, attachments}) =>"
        "  ({payload: `did ${payload}`, attachments}));"
        "const {payload} = await client.request(id);"
        "const attachments = [new Uint8Array(1)];"
        "const thanks = await client.callBack(payload, 'done: x', {attachments});"
        "const again = await client.callBack(payload, 'again').catch(each => each.code);"
        "client.setAttribute('done', '');"
        "return [text(thanks), again]",
    )
    assert said == [["thank you", []], 2]
    assert heard[0].payload == "did work: 1"
    assert list(heard[0].attachments) == [b"a"]
    assert heard[1].payload.startswith("2 ")
    assert heard[2] == (4454, "done: x", [b"\0"])


def test_topics_both_ways() -> None:
    """R25 to R31, A17, A18"""
    updates: list[tuple[str, list[Attachment]]] = []

    def play(server: _Server) -> None:
        server.peer.subscribe(7)
        call = server.next(Call)
        server.peer.answer(call.id, "7")
        server.peer.open_topic(99)
        server.peer.update(99, "nobody's")
        server.flush()
        for _ in range(2):
            update = server.next(Update)
            updates.append((update.payload, list(update.attachments)))
        server.peer.unsubscribe(7)
        server.flush()
        assert server.next(TopicEnd) == TopicEnd(7)
        assert server.next(Unsubscribe) == Unsubscribe(99)
        server.peer.close_topic(99)
        server.flush()

    said = _talk(
        play,
        "const client = state.client = await umq.connect(url);"
        "const {payload} = await client.request('publish for me');"
        "const topic = client.openTopic(payload);"
        "const ended = new Promise(resolve => { topic.onEnded = resolve; });"
        "topic.update('one', [Uint8Array.of(1), new umq.AttachmentError('lost')]);"
        "topic.update('two');"
        "await ended;"
        "return [topic.isOpen, topic.update('three')]",
    )
    assert said == [False, False]
    assert updates == [("one", [b"\1", Missing("lost")]), ("two", [])]


def test_attributes_both_ways() -> None:
    """R32 to R34"""
    heard: list[Event] = []

    def play(server: _Server) -> None:
        server.peer.set_attribute("k", "a=b", [b"\2"])
        server.peer.set_attribute("gone", "x")
        server.peer.clear_attribute("gone")
        server.flush()
        heard.extend(server.next((SetAttribute, ClearAttribute)) for _ in range(3))
        assert list(server.peer.attributes) == ["name"]

    said = _talk(
        play,
        "const told = [];"
        "let last;"
        "const all = new Promise(resolve => { last = resolve; });"
        "const onAttribute = (name, attribute) => {"
        "  told.push([name, attribute && [attribute.value, attribute.attachments]]);"
        "  if (told.length === 3) last(); };"
        "const client = state.client ="
        "  await umq.connect(url, {onAttribute, attributes: {name: 'js', more: ' '}});"
        "client.unsetAttribute('more');"
        "await all;"
        "return [told, [...client.attributes.keys()]]",
    )
    assert said == [
        [["k", ["a=b", _hex(b"\2")]], ["gone", ["x", []]], ["gone", None]],
        ["k"],
    ]
    assert heard == [
        SetAttribute("name", "js"),
        SetAttribute("more", " "),
        ClearAttribute("more"),
    ]
