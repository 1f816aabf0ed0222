"""Extensions of vendors (R14) in a whole broker on a desk."""

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import motemq_deflate
from host_broker.protocol import BrokerContext, ProtocolServer
from host_broker.protocols.micromsg2 import MICROMSG2
from host_broker.protocols.micromsg2.codec import (
    MAX_FRAGMENT,
    Codec,
    spell_command_frame,
    spell_extension,
    spell_handshake,
    spell_message,
)
from host_broker.protocols.micromsg2.events import ErrorFrame, ExtensionFrame, Handshake
from host_broker.protocols.micromsg2.extensions import Pairs
from host_broker.protocols.micromsg2.grammar import read_extensions
from host_broker.protocols.micromsg2.server import MicroMsg2Server
from host_broker.protocols.micromsg2.settings import MicroMsg2Settings
from host_broker.protocols.micromsg2.vendor import (
    ExtensionRefusal,
    ExtensionSession,
    Message,
    VendorExtension,
    registry_of,
)
from host_broker.registry import BUILT_IN
from tests.host_broker.desk import Desk
from tests.host_broker.protocols.micromsg2.peer import (
    Peer,
    micromsg2_desk,
    payloads,
    refused,
    told,
)


class Seen(ExtensionSession):
    """Notes what it is shown; answers a frame with itself, twice."""

    def __init__(self, said: Pairs) -> None:
        self.said = said
        self.shown: list[tuple[str, bytes, dict[str, bytes], bytes]] = []

    def received(self, payload: bytes) -> Sequence[bytes]:
        return [payload, payload]

    def incoming(self, message: Message) -> None:
        self.shown.append(("in", message.destination, dict(message.properties), message.payload))
        message.payload = message.payload.removesuffix(b"!")
        message.properties["seen"] = b"in"

    def outgoing(self, message: Message) -> Sequence[bytes]:
        self.shown.append(("out", message.destination, dict(message.properties), message.payload))
        message.payload += b"!"
        message.properties["seen"] = b"out"
        return [b"next: %d" % len(message.payload)]


def extension_desk(*vendors: VendorExtension, **more: Any) -> Desk:
    """A desk whose broker has these extensions."""

    def server(settings: MicroMsg2Settings, context: BrokerContext) -> ProtocolServer:
        return MicroMsg2Server(settings, context, vendors)

    specs = {spec.name: spec for spec in BUILT_IN} | {
        MICROMSG2.name: replace(MICROMSG2, server=server)
    }
    return micromsg2_desk(specs=specs, **more)


def _answer(desk: Desk, required: str = "", optional: str = "") -> Any:
    """What the broker answers to a client's first words."""
    connection = desk.open("micromsg2")
    lists = [read_extensions(text.encode()) for text in (required, optional)]
    desk.send(connection, spell_handshake(Handshake(1, 0, "c", *lists)))
    (answer,) = Codec("client").receive_data(desk.got(connection))
    return answer


def test_payloads_are_compressed_on_the_wire_only() -> None:
    """R14, R10: its index is its place; peers without it, queues and the journal are as ever."""
    desk = extension_desk(motemq_deflate.DEFLATE)
    packed = Peer(desk, "pubsub;x-acme-deflate;batch-ack")
    plain, writer = Peer(desk), Peer(desk, "x-acme-deflate:level=9;batch-ack")
    assert packed.agreement.index("x-acme-deflate") == 2
    for each in (packed, plain):
        each.subscribe("topic/t")
    packed.subscribe("jobs")
    body = b"21.5 degrees; " * 50
    assert writer.acked(writer.publish("topic/t", zlib.compress(body), "n:N1")) == [1]
    writer.publish("jobs", zlib.compress(b"work"))
    assert told(plain.heard()) == [(1, "topic/t", "n:N1", body)]
    heard = told(packed.heard())
    assert [zlib.decompress(payload) for *_, payload in heard] == [body, b"work"]
    assert len(heard[0][3]) < 60
    assert (heard[0][2], packed.agreement.index("batch-ack")) == ("n:N1", 3)
    assert [record.body.count(body) for record in map(_with_bytes, desk.records)] == [1, 0]
    packed.acknowledge(2)
    saved = len(body) + len(b"work") - sum(len(payload) for *_, payload in heard)
    assert packed.say(spell_extension(2, b"?")) == [ExtensionFrame(2, b"%d" % saved)]
    Peer(desk).publish("topic/t", b"in plain")
    assert zlib.decompress(payloads(packed.heard())[0]) == b"in plain"


def _with_bytes(record: Any) -> Any:
    return replace(record, body=bytes(record.body))


def test_properties_are_agreed_on() -> None:
    """R13, R15, A8: the broker says its own, the final message decides."""
    desk = extension_desk(motemq_deflate.DEFLATE)
    for said, agreed in (("", "level=6"), (":level=9", "level=6"), (":level=2", "level=2")):
        answer = _answer(desk, optional=f"pubsub;x-acme-deflate{said}")
        assert answer.optional == read_extensions(b"pubsub;x-acme-deflate:" + agreed.encode())
    error = _answer(desk, required="x-acme-deflate:level=12")
    reason = "the extension x-acme-deflate cannot be used: level is '12', it can be 1 to 9"
    assert error == ErrorFrame(reason)
    assert _answer(desk, optional="x-acme-deflate:level=12").optional == ()


@pytest.mark.parametrize(("policy", "said"), [("accepted", ((), ())), ("suggested", ((), "x-a"))])
def test_who_lacks_it_need_not_have_it(policy: Any, said: Any) -> None:
    """R6, R15: the broker takes an extension, or suggests it to all."""
    desk = extension_desk(VendorExtension(name="x-a", open=Seen, policy=policy))
    answer = _answer(desk)
    assert [each.name for each in answer.optional] == ([said[1]] if said[1] else [])
    assert answer.required == ()
    assert Peer(desk).subscribe("topic/t") == []


def test_who_lacks_a_required_one_is_refused() -> None:
    """R7: by ERROR, after its last word; who has it goes on."""
    vendor = VendorExtension(name="x-a", open=Seen, policy="required", properties=(("v", "2"),))
    desk = extension_desk(vendor)
    answer = _answer(desk)
    assert answer.required == read_extensions(b"x-a:v=2")
    connection = desk.open("micromsg2")
    desk.send(connection, spell_handshake(Handshake(1, 0, "c")) * 2)
    *_, error = Codec("client").receive_data(desk.got(connection))
    assert error == ErrorFrame("this server requires the extension 'x-a'")
    assert Peer(desk, "pubsub;x-a").subscribe("topic/t") == []


def test_an_alias_is_the_same_extension() -> None:
    """R10: it is told by the name that the client has for it."""
    desk = extension_desk(VendorExtension(name="x-a", aliases=("x-old-a",), open=Seen))
    assert _answer(desk, optional="x-old-a").optional == read_extensions(b"x-old-a")
    peer = Peer(desk, "x-old-a;pubsub")
    assert peer.say(spell_extension(1, b"?")) == [ExtensionFrame(1, b"?")] * 2


def test_what_an_extension_is_shown() -> None:
    """R19, R23, R33: whole messages with their properties; frames before what they belong to; with
    several extensions in the order of their indexes, and back."""
    opened: list[Seen] = []

    def noted(said: Pairs) -> Seen:
        opened.append(Seen(said))
        return opened[-1]

    first, second = (VendorExtension(name=name, open=noted) for name in ("x-one", "x-two"))
    desk = extension_desk(first, second, bus={"max_body": 4 * MAX_FRAGMENT})
    peer = Peer(desk, "x-two:b=%20;pubsub;dotnet;x-one:a=1")
    two, one = opened
    assert (one.said, two.said) == ((("a", "1"),), (("b", " "),))
    plain = Peer(desk)
    plain.codec = Codec("client", 4 * MAX_FRAGMENT)
    plain.codec.receive_data(spell_handshake(Handshake(1, 0, "")))
    plain.subscribe("topic/t")
    long = bytes(MAX_FRAGMENT)
    peer.say(spell_extension(3, b"A, B") + peer.spell("topic/t", long, "n:N1", continued=True))
    peer.publish("topic/t", b"end!!")
    whole = long + b"end"
    kinds = {"n": b"1", "micromsg2.types": b"n:N", "dotnet.type": b"A, B"}
    assert one.shown == [("in", b"topic/t", kinds, whole + b"!!")]
    assert two.shown == [("in", b"topic/t", kinds | {"seen": b"in"}, whole + b"!")]
    assert b"".join(payloads(plain.heard())) == whole
    one.shown.clear()
    two.shown.clear()
    peer.subscribe("topic/u")
    Peer(desk).publish("topic/u", b"x", "n:N2")
    before_two, before_one, message = peer.heard()
    assert before_two == ExtensionFrame(1, b"next: 2")
    assert before_one == ExtensionFrame(4, b"next: 3")
    assert told([message]) == [(1, "topic/u", "n:N2;seen:Tout", b"x!!")]
    assert [each[0] for each in two.shown + one.shown] == ["out", "out"]


def test_what_waits_for_the_window_keeps_its_frames() -> None:
    """R26: a frame that belongs to a message goes just before it, whenever that is."""
    desk = extension_desk(VendorExtension(name="x-a", open=Seen))
    reader, writer = Peer(desk, "pubsub;x-a;ack"), Peer(desk)
    reader.subscribe("topic/t")
    for size in (1, 2, 3):
        writer.publish("topic/t", bytes(size))
    heard = reader.heard()
    for number in (1, 2, 3):
        frame, message = heard
        assert frame.payload == b"next: %d" % (number + 1)
        assert message.payload == bytes(number) + b"!"
        heard = reader.acknowledge(number)


@pytest.mark.parametrize(
    "payload",
    [b"not compressed", zlib.compress(b"x")[:-1], zlib.compress(bytes(64 * 1024 + 1)), b""],
)
def test_a_refusal_is_an_error(payload: bytes) -> None:
    """A25: with the extension's own reason; what is decompressed is bounded, and is published or
    not acknowledged."""
    desk = extension_desk(motemq_deflate.DEFLATE)
    reader, writer = Peer(desk), Peer(desk, "x-acme-deflate;batch-ack")
    reader.subscribe("topic/t")
    assert refused(writer, writer.publish("topic/t", payload)) == "x-acme-deflate"
    other = Peer(desk, "x-acme-deflate")
    assert refused(other, other.say(spell_extension(1, b"what?"))) == "x-acme-deflate"
    assert reader.heard() == []
    assert reader.why_closed == ""


def _raising(*_: Any) -> Any:
    raise LookupError("secret\nof the vendor")


def _breaking(where: str) -> type[ExtensionSession]:
    return type("Breaking", (ExtensionSession,), {where: _raising})


def _wrong(where: str, result: Any) -> type[ExtensionSession]:
    return type("Wrong", (ExtensionSession,), {where: lambda *_: result})


def _changing(where: str, **changes: Any) -> type[ExtensionSession]:
    def change(self: object, message: Message) -> Sequence[bytes]:
        for name, value in changes.items():
            setattr(message, name, value)
        return ()

    return type("Changing", (ExtensionSession,), {where: change})


_X: dict[str, Callable[..., Any]] = {
    "agree": Seen,
    "open": _raising,
    "open returns None": lambda said: None,
    "received": lambda said: _breaking("received")(),
    "received returns bytes": lambda said: _wrong("received", b"x")(),
    "received returns numbers": lambda said: _wrong("received", [1])(),
    "incoming": lambda said: _breaking("incoming")(),
    "incoming makes text": lambda said: _changing("incoming", payload="text")(),
    "incoming makes properties": lambda said: _changing("incoming", properties={"a": 1})(),
    "incoming makes none": lambda said: _changing("incoming", properties=None)(),
    "outgoing": lambda said: _breaking("outgoing")(),
    "outgoing makes text": lambda said: _changing("outgoing", payload="text")(),
    "outgoing returns text": lambda said: _wrong("outgoing", ["x"])(),
}


@pytest.mark.parametrize("what", _X)
def test_one_that_raises_costs_only_its_connection(what: str) -> None:
    """R14, A25: ERROR without a word of what is inside, one line for the log; others go on."""
    where, *_ = what.split()
    agree = _raising if where == "agree" else lambda theirs, ours: theirs
    desk = extension_desk(VendorExtension(name="x-bad", open=_X[what], agree=agree))
    desk.failures_expected = True
    bystander = Peer(desk)
    bystander.subscribe("topic/t")
    codec, connection = Codec("client"), desk.open("micromsg2")
    desk.send(connection, spell_handshake(Handshake(1, 0, "c", read_extensions(b"x-bad;pubsub"))))
    desk.send(connection, spell_handshake(Handshake(1, 0, "c", read_extensions(b"x-bad;pubsub"))))
    for said in (
        spell_extension(1, b"?"),
        spell_command_frame("subscribe", [("destination", b"topic/t")]),
        spell_message(1, b"topic/t", b"", b"x"),
    ):
        desk.send(connection, said)
    Peer(desk).publish("topic/t", b"still here")
    errors = [each for each in codec.receive_data(desk.got(connection)) if type(each) is ErrorFrame]
    assert errors == [ErrorFrame("the extension x-bad failed")]
    (failure,) = desk.failures
    assert (failure.part, failure.connection) == ("extension", connection)
    text = str(failure.error)
    assert text.startswith(f"the extension x-bad failed in {where}")
    assert "\n" not in text
    assert [close.connection for close in desk.closes] == [connection]
    assert b"still here" in payloads(bystander.heard())


def test_an_extension_cannot_make_more_than_the_bus_takes() -> None:
    """R18: the limit on a body holds for what it makes of it, too."""

    class Growing(ExtensionSession):
        def incoming(self, message: Message) -> None:
            message.payload *= 2
            message.properties.update({f"p{n}": b"" for n in range(len(message.payload))})

    vendor = VendorExtension(name="x-grow", open=lambda said: Growing())
    desk = extension_desk(vendor, bus={"max_body": 100})
    peer = Peer(desk, "x-grow")
    assert peer.publish("topic/t", bytes(20)) == []
    assert refused(peer, peer.publish("topic/t", bytes(40))) == "bus.properties"
    peer = Peer(desk, "x-grow")
    assert refused(peer, peer.publish("topic/t", bytes(51))) == "bus.max_body"


def test_runs_are_as_single_messages() -> None:
    """R14: what comes in one read is shown message by message."""
    desk = extension_desk(motemq_deflate.DEFLATE)
    reader, writer = Peer(desk), Peer(desk, "x-acme-deflate;batch-ack")
    reader.subscribe("topic/t")
    source = random.Random(5)
    bodies = [source.randbytes(7) for _ in range(9)]
    said = b"".join(writer.spell("topic/t", zlib.compress(body)) for body in bodies)
    assert writer.acked(writer.say(said)) == [9]
    assert payloads(reader.heard()) == bodies


def test_an_open_that_refuses() -> None:
    """R6: what the final message says may still be impossible."""

    def open_none(said: Pairs) -> ExtensionSession:
        raise ExtensionRefusal("no licence for this board")

    desk = extension_desk(VendorExtension(name="x-a", open=open_none))
    connection = desk.open("micromsg2")
    desk.send(connection, spell_handshake(Handshake(1, 0, "c", read_extensions(b"x-a"))) * 2)
    *_, error = Codec("client").receive_data(desk.got(connection))
    assert error == ErrorFrame("no licence for this board")


@pytest.mark.parametrize(
    ("vendors", "said"),
    [
        ([{"name": "compress"}], "the extension 'compress' is a vendor's: call it 'x-compress'"),
        ([{"name": "x-Big"}], "'x-Big' is not a name of small letters, digits and hyphens"),
        ([{"name": "x-a", "aliases": ("json",)}], "'json' is a vendor's"),
        ([{"name": "x-a"}, {"name": "x-b", "aliases": ("x-a",)}], "there are two extensions"),
        ([{"name": "x-motemq-login"}], "there are two extensions of the name 'x-motemq-login'"),
        ([{"name": "x-a", "properties": "level=6"}], "are not pairs of a name and a text each"),
    ],
)
def test_names_that_no_vendor_can_have(vendors: Any, said: str) -> None:
    """R13, R14: the registry says so when it is made."""
    with pytest.raises(ValueError, match=said):
        registry_of(VendorExtension(open=Seen, **each) for each in vendors)
