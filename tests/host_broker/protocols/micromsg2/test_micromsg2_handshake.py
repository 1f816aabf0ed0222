"""MicroMsg2's handshake: every pair of offers ends in agreement, or in an ERROR of one side."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.protocols.micromsg2.codec import Codec, spell_error, spell_handshake
from host_broker.protocols.micromsg2.events import ErrorFrame, Event, Extension, Handshake
from host_broker.protocols.micromsg2.extensions import (
    ExtensionFault,
    ExtensionSpec,
    Pairs,
    Registry,
)
from host_broker.protocols.micromsg2.grammar import read_extensions, spell_extensions
from host_broker.protocols.micromsg2.negotiation import (
    SHARPMESSAGING,
    Agreement,
    Offer,
    choose,
    conclude,
    reply,
    request,
)
from host_broker.protocols.micromsg2.refusal import Refusal


def _list(text: str) -> tuple[Extension, ...]:
    return read_extensions(text.encode())


def _offer(identity: str, required: str = "", optional: str = "", accepted: str = "") -> Offer:
    return Offer(identity, _list(required), _list(optional), _list(accepted))


def _said(message: Handshake) -> tuple[str, str]:
    return (
        spell_extensions(message.required).decode(),
        spell_extensions(message.optional).decode(),
    )


def _replied(server: Offer, required: str = "", optional: str = "") -> Handshake:
    answer = reply(server, Handshake(1, 0, "c", _list(required), _list(optional)))
    assert isinstance(answer, Handshake)
    return answer


def _chosen(client: Offer, required: str = "", optional: str = "") -> tuple[str, str]:
    found = choose(client, Handshake(1, 0, "s", _list(required), _list(optional)))
    assert not isinstance(found, Refusal)
    return _said(found[0])


def _concluded(server: Offer, required: str = "", optional: str = "") -> Agreement | Refusal:
    first = Handshake(1, 0, "c")
    return conclude(
        server, first, replace(first, required=_list(required), optional=_list(optional))
    )


def _agreed(server: Offer, required: str = "", optional: str = "") -> Agreement:
    agreement = _concluded(server, required, optional)
    assert isinstance(agreement, Agreement)
    return agreement


# ---- whole conversations, in bytes ----


def _read(codec: Codec, data: bytes) -> Event:
    (event,) = codec.receive_data(data)
    return event


def _talk(client: Offer, server: Offer) -> tuple[Any, Any]:
    """What client and server end with: an agreement, a refusal of its own, or the other's ERROR."""
    at_server, at_client = Codec("server"), Codec("client")
    asked = _read(at_server, spell_handshake(request(client)))
    assert isinstance(asked, Handshake)
    answer = reply(server, asked)
    if isinstance(answer, Refusal):
        return _read(at_client, spell_error(answer.reason)), answer
    answered = _read(at_client, spell_handshake(answer))
    assert isinstance(answered, Handshake)
    chosen = choose(client, answered)
    if isinstance(chosen, Refusal):
        return chosen, _read(at_server, spell_error(chosen.reason))
    final, agreement = chosen
    ended = _read(at_server, spell_handshake(final))
    assert isinstance(ended, Handshake)
    concluded = conclude(server, asked, ended)
    if isinstance(concluded, Refusal):
        return _read(at_client, spell_error(concluded.reason)), concluded
    return agreement, concluded


_VENDORS = [ExtensionSpec(name="x-one", has_frames=True), ExtensionSpec(name="x-two")]
_NAMES = ["ack", "batch-ack", "json", "dotnet", "pubsub", "pub-sub", "x-one", "x-two", "x-alien"]


@st.composite
def _extension(draw: st.DrawFn) -> Extension:
    name = draw(st.sampled_from(_NAMES))
    properties: list[tuple[str, str]] = []
    if name == "batch-ack" and draw(st.booleans()):
        key = draw(st.sampled_from(["max-count", "count", "batch-max", "MessagesPerAck"]))
        properties.append((key, str(draw(st.integers(1, 32767)))))
    if draw(st.booleans()):
        properties.append(("note", draw(st.text("a ;=,:%ü", max_size=5))))
    return Extension(name, tuple(properties))


@st.composite
def _offers(draw: st.DrawFn, identity: str) -> Offer:
    """What one side could be made to want; each extension once."""
    registry = Registry(_VENDORS)
    lists: list[list[Extension]] = [[], [], []]
    seen = set()
    for extension in draw(st.lists(_extension(), max_size=6)):
        spec = registry.get(extension.name)
        name = spec.name if spec else extension.name
        if name not in seen:
            seen.add(name)
            lists[draw(st.integers(0, 2))].append(extension)
    required, optional, accepted = map(tuple, lists)
    version = draw(st.sampled_from([(1, 0)] * 6 + [(1, 1), (1, 7), (2, 0), (2, 3)]))
    return Offer(identity, required, optional, accepted, version, registry)


def _names(offer: Offer, extensions: tuple[Extension, ...]) -> set[str]:
    return {offer.canonical(each.name) for each in extensions}


@settings(max_examples=500)
@given(_offers("board"), _offers("broker"))
def test_every_pair_of_offers(client: Offer, server: Offer) -> None:
    """R1, R4, R5, R6, R7, R9, R10, A28: silence is no outcome, and both sides know the same."""
    at_client, at_server = _talk(client, server)
    has = {
        side.identity: _names(side, side.required + side.optional + side.accepted)
        for side in (client, server)
    }
    must = {side.identity: _names(side, side.required) for side in (client, server)}
    server_refuses = client.version[0] < server.version[0] or not must["board"] <= has["broker"]
    client_refuses = client.version[0] > server.version[0] or not must["broker"] <= has["board"]
    if server_refuses:
        assert isinstance(at_server, Refusal)
        assert at_client == ErrorFrame(at_server.reason)
        assert at_server.rule in ("R5", "R6")
        return
    if client_refuses:
        assert isinstance(at_client, Refusal)
        assert at_server == ErrorFrame(at_client.reason)
        assert at_client.rule in ("R5", "R7")
        return
    assert isinstance(at_client, Agreement)
    assert isinstance(at_server, Agreement)
    assert at_client.extensions == at_server.extensions
    assert (at_client.identity, at_server.identity) == ("broker", "board")
    assert at_client.version == at_server.version == min(client.version, server.version)
    assert at_client.acks == at_server.acks
    names = [each.name for each in at_client.extensions]
    assert len(set(names)) == len(names)
    assert must["board"] | must["broker"] <= set(names) <= has["board"] & has["broker"]
    for index, name in enumerate(names, 1):
        assert at_client.index(name) == at_server.index(name) == index
        for side in (at_client, at_server):
            spec = side.at(index)
            assert spec is not None
            assert spec.name == name
    assert at_client.at(0) is at_client.at(len(names) + 1) is None
    both_wanted = (
        (_names(client, client.optional) | _names(server, server.optional))
        & has["board"]
        & has["broker"]
    )
    if at_client.version != SHARPMESSAGING:  # of which no suggestion is taken
        assert both_wanted - set(names) <= {"ack", "batch-ack"}
    if {"ack", "batch-ack"} <= set(names):
        assert {"ack", "batch-ack"} <= must["board"] | must["broker"]


_PROPERTY = st.tuples(
    st.sampled_from(["max-count", "count", "AckExpireTime", "x"]),
    st.sampled_from(["0", "1", "10", "40000", "-1", "ten", "٣", "", "9" * 50]),
)
_ANY_MESSAGE = st.builds(
    Handshake,
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from(["c", "d"]),
    *[
        st.lists(
            st.builds(
                Extension, st.sampled_from(_NAMES), st.lists(_PROPERTY, max_size=2).map(tuple)
            ),
            max_size=4,
        ).map(tuple)
    ]
    * 2,
)


@given(_offers("me"), _ANY_MESSAGE, _ANY_MESSAGE)
def test_whatever_a_peer_says_is_answered(offer: Offer, one: Handshake, two: Handshake) -> None:
    """Nothing is raised, and what we say ourselves can be read and is within the lists' limits."""
    answer = reply(offer, one)
    if isinstance(answer, Handshake):
        assert _read(Codec("client"), spell_handshake(answer)) == answer
    chosen = choose(offer, one)
    if not isinstance(chosen, Refusal):
        assert _read(Codec("server"), spell_handshake(chosen[0])) == chosen[0]
        assert chosen[1].acks is None or 1 <= chosen[1].acks.window <= 32767
    concluded = conclude(offer, one, two)
    if isinstance(concluded, Agreement):
        assert _names(offer, offer.required) <= {each.name for each in concluded.extensions}
        assert concluded.acks is None or 1 <= concluded.acks.window <= 32767
    for outcome in (answer, chosen, concluded):
        if isinstance(outcome, Refusal):
            assert len(spell_error(outcome.reason)) > 10


# ---- the document's examples ----


def test_three_steps() -> None:
    """R1, R9: I require A, B and suggest X, Y; I also require C and suggest Y and Z; agreed."""
    client = Offer("c", _list("x-a;x-b"), _list("x-x;x-y"), _list("x-c;x-z"))
    server = Offer("s", _list("x-c"), _list("x-z"), _list("x-a;x-b;x-y"))
    assert _said(request(client)) == ("x-a;x-b", "x-x;x-y")
    assert _said(_replied(server, "x-a;x-b", "x-x;x-y")) == ("x-c", "x-y;x-z")
    assert _chosen(client, "x-c", "x-y;x-z") == ("x-a;x-b;x-c", "x-y;x-z")
    at_client, at_server = _talk(client, server)
    assert at_client.extensions == at_server.extensions == _list("x-a;x-b;x-c;x-y;x-z")


def test_the_complete_example() -> None:
    """R8, R10, R15: hulk requires json and dotnet, and takes the batches that the server
    suggests."""
    server = _offer("srver", "", "batch-ack", "json;dotnet")
    hulk = _offer("hulk", "json;dotnet", "", "batch-ack")
    at_hulk, at_server = _talk(hulk, server)
    assert [at_hulk.index(name) for name in ("json", "dotnet", "batch-ack")] == [1, 2, 3]
    assert at_server.extensions == at_hulk.extensions
    assert _chosen(_offer("hulk", "json;dotnet"), "", "batch-ack") == ("json;dotnet", "")


def test_a_client_that_wants_no_acks() -> None:
    """R25, A16: json of three, and one kind of acks, which is declined."""
    server = _offer("s", "", "ack;batch-ack", "json")
    assert _said(_replied(server, "", "json;xml;protobuf")) == ("", "json;batch-ack")
    client = _offer("c", "", "json;xml;protobuf")
    assert _chosen(client, "", "json;batch-ack") == ("", "json")
    at_client, _ = _talk(client, server)
    assert at_client.acks is None


# ---- refusals ----


def test_who_lacks_something_says_so() -> None:
    """R5, R6, R7, A25: with what is missing in the text."""
    server = _offer("s", "x-c", "", "json")
    found = reply(server, Handshake(1, 0, "c", _list("json;x-nope")))
    assert found == Refusal("R6", "unsupported extension: x-nope")
    found = choose(_offer("c", "json"), Handshake(1, 0, "s", _list("x-c")))
    assert found == Refusal("R7", "unsupported extension: x-c")
    assert _concluded(server, "json") == Refusal("R7", "this server requires the extension 'x-c'")
    assert _concluded(server, "x-c;xml") == Refusal("R6", "unsupported extension: xml")
    assert isinstance(_concluded(server, "json", "x-c"), Agreement)  # in either list


@pytest.mark.parametrize(
    ("client", "answer"),
    [((1, 0), (1, 0)), ((1, 1), (1, 0)), ((1, 255), (1, 0)), ((2, 0), (1, 0)), ((255, 3), (1, 0))],
)
def test_the_lower_version_is_answered(client: Any, answer: Any) -> None:
    """R3, R4, A28."""
    message = reply(_offer("s"), Handshake(*client, "c"))
    assert isinstance(message, Handshake)
    assert (message.major, message.minor) == answer


def test_versions_that_are_not_spoken() -> None:
    """R5, A28: major 0, and a major above ours once we have said ours; a minor is no matter."""
    offer = _offer("me")
    for refusal in (
        reply(offer, Handshake(0, 9, "c")),
        choose(offer, Handshake(0, 9, "s")),
        choose(offer, Handshake(2, 0, "s")),
        conclude(offer, Handshake(2, 0, "c"), Handshake(2, 0, "c")),
        reply(replace(offer, version=(2, 0)), Handshake(1, 7, "c")),
    ):
        assert isinstance(refusal, Refusal)
        assert refusal.rule == "R5"
        assert "this side speaks" in refusal.reason
    sharp = choose(offer, Handshake(1, 1, "s"))
    assert not isinstance(sharp, Refusal)
    assert (sharp[0].minor, sharp[1].version) == (0, (1, 0))


def test_the_last_word_is_checked() -> None:
    """R9, R10: the identity is repeated, and no extension has two indexes, not even by an alias."""
    server = _offer("s", "", "", "json;pubsub")
    changed = conclude(server, Handshake(1, 0, "c"), Handshake(1, 0, "d"))
    assert isinstance(changed, Refusal)
    assert changed.rule == "R9"
    for required, optional in (("json;json", ""), ("json", "json"), ("pubsub", "pub-sub")):
        refusal = _concluded(server, required, optional)
        assert isinstance(refusal, Refusal)
        assert (refusal.rule, "twice" in refusal.reason) == ("R10", True)


def test_so_many_extensions_have_an_index() -> None:
    """R10: it is one byte."""
    names = ";".join(f"x-{number}" for number in range(256))
    server = _offer("s", "", "", names)
    most = names.rpartition(";")[0]
    assert _agreed(server, most).index("x-254") == 255
    refusal = _concluded(server, names)
    assert isinstance(refusal, Refusal)
    assert "at most 255" in refusal.reason


# ---- details ----


def test_what_the_client_requires_is_not_repeated() -> None:
    """A29: but may be; also by its other name, and with properties of the server's own."""
    server = _offer("s", "json;pubsub", "dotnet", "batch-ack:max-count=50")
    assert _said(_replied(server, "json;pub-sub", "dotnet")) == ("", "dotnet")
    client = _offer("c", "json;batch-ack:max-count=80", "", "pubsub")
    assert _chosen(client, "json;pub-sub;batch-ack:max-count=50") == (
        "json;batch-ack:max-count=50;pub-sub",
        "",
    )
    assert _chosen(_offer("c", "json:a=1"), "json") == ("json:a=1", "")


def test_sharpmessaging_s_habits() -> None:
    """A28, A29: its client fails if what it requires is not repeated, and its server suggests
    whatever it was told, which it need not have."""
    server = _offer("s", "", "", "ack;batch-ack:max-count=50")
    said = _list("ack:MessagesPerAck=10,AckExpireTime=1000")
    answer = reply(server, Handshake(1, 1, "MyClient", said))
    assert isinstance(answer, Handshake)
    assert (answer.required, answer.optional, answer.minor) == (said, (), 0)
    client = _offer("c", "batch-ack:max-count=80", "pubsub;json")
    required = _list("batch-ack:MessagesPerAck=10,AckExpireTime=1000")
    found = choose(client, Handshake(1, 1, "SERVER", required, _list("pubsub;json")))
    assert not isinstance(found, Refusal)
    final, agreement = found
    assert [each.name for each in agreement.extensions] == ["batch-ack"]
    assert (final.optional, agreement.acks and agreement.acks.window) == ((), 10)


@pytest.mark.parametrize(
    "said",
    [
        "batch-ack:max-count=7",
        "batch-ack:count=7",
        "batch-ack:batch-max=7;",
        "batch-ack:MessagesPerAck=7,AckExpireTime=1000",
        "batch-ack:max-count:7;",
    ],
)
def test_spellings_of_the_window(said: str) -> None:
    """A7: each is understood, and what is said back has the peer's own name for it."""
    server = _offer("s", "", "", "batch-ack:max-count=1000")
    acks = _agreed(server, said).acks
    assert acks is not None
    assert (acks.window, acks.expire_s) == (7, 1.0 if "Expire" in said else None)
    (suggested,) = _replied(server, "", said).optional
    assert suggested == _list(said)[0]


def test_no_time_after_which_a_message_is_lost() -> None:
    """A15: SharpMessaging's ``ack`` says 0 unless its program says another; both sides take it."""
    said = "ack:AckExpireTime=0"
    acks = _agreed(_offer("s", "", "", "ack"), said).acks
    assert acks is not None
    assert (acks.window, acks.expire_s, acks.per_ack) == (1, None, None)
    assert _chosen(_offer("c", "", "ack"), said) == (said, "")


@pytest.mark.parametrize(
    ("client", "server", "agreed"),
    [
        ("batch-ack", "batch-ack", 10),
        ("batch-ack:max-count=30", "batch-ack:max-count=20", 20),
        ("batch-ack:max-count=20", "batch-ack:max-count=30", 20),
        ("batch-ack:max-count=30", "batch-ack", 10),
        ("batch-ack", "batch-ack:max-count=5", 5),
        ("batch-ack:max-count=32767", "batch-ack:max-count=32767", 32767),
        ("ack", "ack", 1),
        ("ack:MessagesPerAck=10,AckExpireTime=1000", "ack", 1),
    ],
)
def test_windows(client: str, server: str, agreed: int) -> None:
    """R27, R30, A8, A15: the smaller one of two, ten where none is named, one with ``ack``."""
    at_client, at_server = _talk(_offer("c", "", client), _offer("s", "", server))
    assert at_client.acks == at_server.acks
    assert (at_server.acks.index, at_server.acks.window) == (1, agreed)


@pytest.mark.parametrize(
    "said",
    [
        *(f"batch-ack:max-count={value}" for value in ("0", "32768", "-1", "ten", "", "9" * 40)),
        "batch-ack:max-count=5,count=6",
        "batch-ack:AckExpireTime=soon",
        "ack:AckExpireTime=-1",
    ],
)
def test_windows_that_cannot_be(said: str) -> None:
    """A8: an ERROR where it is required, in the last word, too; as a suggestion it is not taken."""
    server = _offer("s", "", "", "batch-ack;ack")
    for refusal in (reply(server, Handshake(1, 0, "c", _list(said))), _concluded(server, "", said)):
        assert isinstance(refusal, Refusal)
        assert refusal.rule == "R6"
        assert "cannot be used: " in refusal.reason
    assert _replied(server, "", said).optional == ()


def test_only_one_way_of_acks_is_suggested() -> None:
    """A16: unless both are required: then batches decide."""
    server = _offer("s", "", "ack", "batch-ack")
    assert _said(_replied(server, "", "batch-ack;ack")) == ("", "batch-ack")
    assert _said(_replied(server, "ack", "batch-ack")) == ("", "")
    assert _chosen(_offer("c", "ack", "batch-ack"), "", "batch-ack") == ("ack", "")
    acks = _agreed(server, "ack;batch-ack:count=4").acks
    assert acks is not None
    assert (acks.index, acks.window) == (2, 4)


def test_vendors() -> None:
    """R14: an extension from outside: its name, and what two sides agree on."""

    def lower(theirs: Pairs, ours: Pairs) -> Pairs:
        levels = [int(value) for key, value in (*theirs, *ours) if key == "level"]
        if not levels:
            raise ExtensionFault("it has no level")
        return (("level", str(min(levels))),)

    zip_spec = ExtensionSpec(name="x-zip", aliases=("x-z",), has_frames=True, agree=lower)
    server = replace(_offer("s", "", "", "x-zip:level=6"), registry=Registry([zip_spec]))
    assert _said(_replied(server, "", "x-z:level=9")) == ("", "x-z:level=6")
    agreement = _agreed(server, "x-z:level=3")
    assert agreement.extensions == _list("x-zip:level=3")
    spec = agreement.at(1)
    assert spec is zip_spec
    refusal = _concluded(server, "x-zip")
    assert refusal == Refusal("R6", "the extension x-zip cannot be used: it has no level")
    for name, complaint in (
        ("zip", "call it 'x-zip'"),
        ("x_zip", "small letters"),
        ("x-Zip", "small letters"),
    ):
        with pytest.raises(ValueError, match=complaint):
            Registry([ExtensionSpec(name=name)])
    with pytest.raises(ValueError, match="two extensions"):
        Registry([zip_spec, ExtensionSpec(name="x-z")])


def test_which_extensions_have_frames() -> None:
    """A27: those of the others are skipped; an index that was not given is an ERROR."""
    agreement = _agreed(_offer("s", "", "", "json;ack;pubsub"), "json;ack", "pub-sub")
    frames = [spec and spec.has_frames for spec in map(agreement.at, range(5))]
    assert frames == [None, False, True, False, None]
