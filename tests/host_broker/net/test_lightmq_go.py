"""What the real Go client needs (docs/lightmq-go.md), said with bytes that it was seen to send."""

import re
import select
import shlex
from pathlib import Path

from host_broker.client import connect
from tests.host_broker.desk import Desk
from tests.host_broker.lightmq_peer import Peer
from tests.host_broker.net.broker_process import broker

_PAGE = Path(__file__).parents[3] / "docs" / "lightmq-go.md"
_CONNECT = bytes.fromhex("01000908") + b"client-1"
_CONNACK = bytes.fromhex("02000101")
_SEND = bytes.fromhex("0300061ced00") + b"Hi\n"  # captured
_PING, _PONG = bytes.fromhex("0500021272"), bytes.fromhex("0600021272")


def _settings() -> list[str]:
    """Return the settings of the page's recipe."""
    block = re.findall(r"^```sh\n(.*?)^```", _PAGE.read_text(), re.DOTALL | re.MULTILINE)[0]
    words = shlex.split(block.replace("\\\n", " ").splitlines()[0])
    places = [place for place, word in enumerate(words) if word == "--set"]
    return [word for place in places for word in words[place : place + 2]]


def test_it_is_told_nothing_that_blocks_it() -> None:
    """Its SENDs are published and not answered; its PINGs are."""
    with broker(*_settings()) as running, connect(running.urls["fmqp"]) as listener:
        listener.subscribe("lightmq/client-1/up")
        listener.sync()
        with running.raw("lightmq") as go:
            go.sendall(_CONNECT)
            assert go.recv(100) == _CONNACK
            for sends in (1, 20):  # one by one, and many in a read
                go.sendall(_SEND * sends)
                for _ in range(sends):
                    message = listener.receive(20.0)
                    assert message is not None
                    assert message.payload == b"Hi\n"
                go.sendall(_PING)
                answer = go.recv(100)
                assert answer == _PONG  # after all of them, and nothing before it
            assert not select.select([go], [], [], 0)[0]


def test_it_is_never_pinged() -> None:
    desk = Desk(lightmq={"dialect": "gbaranski", "send_responses": False, "ping_interval_s": 0.0})
    peer = Peer(desk, "gbaranski")
    assert peer.connect("client-1").accepted
    desk.advance(3600.0)
    assert peer.say(_SEND) == []
    desk.advance(3600.0)
    assert peer.heard() == []
    assert not peer.closed


def test_with_responders_it_is_not_answered_either() -> None:
    desk = Desk(lightmq={"send_responses": False})
    responder = desk.open()
    desk.sub(responder, "lightmq/client-1/up/*")
    peer = Peer(desk)
    assert peer.connect("client-1").accepted
    assert peer.say(peer.codec.send(7, b"x") + peer.codec.send(8, b"")) == []
    assert peer.say(b"".join(peer.codec.send(number, b"x") for number in range(20))) == []
    desk.advance(10.0)  # nobody waits for an answer
    assert [type(event).__name__ for event in peer.heard()] == []
