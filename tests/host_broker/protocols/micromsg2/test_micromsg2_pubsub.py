"""MicroMsg2's destinations, properties and filters, on the bus that they are for."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_broker.bus.publication import property_fault
from host_broker.protocols.micromsg2.codec import Codec, spell_command_frame, spell_handshake
from host_broker.protocols.micromsg2.destinations import (
    Destination,
    Subscription,
    ToQueue,
    ToTopic,
    read_destination,
    read_subscribe,
    read_unsubscribe,
    spell_destination,
)
from host_broker.protocols.micromsg2.dotnet import MAX_TYPE, TypeOfMessages
from host_broker.protocols.micromsg2.events import CommandFrame, Handshake
from host_broker.protocols.micromsg2.filters import (
    MAX_FILTER_BYTES,
    MAX_FILTERS,
    compile_filters,
)
from host_broker.protocols.micromsg2.grammar import GrammarError, read_command, url_encode
from host_broker.protocols.micromsg2.refusal import Refusal
from host_broker.protocols.micromsg2.values import (
    TYPES,
    Value,
    properties_to_bus,
    properties_to_wire,
    read_value,
)


def _subscribe(text: str) -> Subscription | Refusal:
    """Read it as a server does."""
    codec = Codec("server")
    codec.receive_data(spell_handshake(Handshake(1, 0, "")) * 2)
    command = read_command(text.encode())
    (event,) = codec.receive_data(spell_command_frame(command.name, command.arguments))
    assert event == command
    return read_subscribe(command)


def _rule(found: object) -> str:
    assert isinstance(found, Refusal), found
    assert len(found.reason) > 10
    return found.rule


# ---- destinations ----


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        (b"topic/a/b", ToTopic(b"a/b")),
        (b"topic/domain-events", ToTopic(b"domain-events")),
        (b"topic//a/b/", ToTopic(b"a/b")),
        (b"topic/a/*", ToTopic(b"a/*")),
        (b"topic/topic/a", ToTopic(b"topic/a")),
        (b"topic", ToQueue(b"topic")),
        (b"topics/a", ToQueue(b"topics/a")),
        (b"Topic/a", ToQueue(b"Topic/a")),
        (b"commands", ToQueue(b"commands")),
        ("grün/1".encode(), ToQueue("grün/1".encode())),
        (b"t" * 255, ToQueue(b"t" * 255)),
    ],
)
def test_destinations(text: bytes, destination: Destination) -> None:
    """A24."""
    assert read_destination(text) == destination
    assert read_destination(spell_destination(destination) or b"") == destination


@pytest.mark.parametrize(
    "text",
    [b"", b"/", b"a/", b"/a", b"topic/", b"topic///", b"topic/a\0", b"\xff", b"$/x", b"topic/$/x"],
)
def test_no_destinations(text: bytes) -> None:
    """A24: what the bus has no name for, and the broker's own."""
    assert _rule(read_destination(text)) == "R17"


def test_a_topic_may_be_too_long_to_be_said() -> None:
    """A24: topics of the bus have up to 255 bytes, and here six more."""
    assert spell_destination(ToTopic(b"t" * 249)) == b"topic/" + b"t" * 249
    assert spell_destination(ToTopic(b"t" * 250)) is None


# ---- commands ----


@pytest.mark.parametrize(
    ("text", "destination", "filters"),
    [
        ("subscribe;destination=topic%2Fa", ToTopic(b"a"), []),
        ("SUBSCRIBE;DESTINATION=jobs", ToQueue(b"jobs"), []),
        ("Subscribe;topic=a%2Fb", ToTopic(b"a/b"), []),
        ("subscribe;topic=topic/a", ToTopic(b"a"), []),
        ("subscribe;queue=topic%2Fa", ToQueue(b"topic/a"), []),
        ("subscribe;destination=q,filter=a%3DT1", ToQueue(b"q"), [b"a=T1"]),
        ("subscribe;filter=a%3DT1,queue=q,filter=b%3CN5", ToQueue(b"q"), [b"a=T1", b"b<N5"]),
    ],
)
def test_subscribe(text: str, destination: Destination, filters: list[bytes]) -> None:
    """A23, R37: in any letters; a topic by its name or its destination; any number of filters."""
    assert _subscribe(text) == Subscription(destination, compile_filters(filters))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("subscribe", "R24"),
        ("subscribe;filter=a%3DT1", "R24"),
        ("subscribe;queue=a,topic=b", "R24"),
        ("subscribe;destination=a,destination=a", "R24"),
        ("subscribe;destination=a,filters=b%3DN1", "R24"),
        ("subscribe;destination=", "R17"),
        ("subscribe;topic=$", "R17"),
        ("subscribe;destination=a,filter=", "R39"),
        ("subscribe;destination=a,filter=b", "R39"),
        ("subscribe;destination=a,filter=b%3DT%25", "R13"),
    ],
)
def test_subscribe_refused(text: str, rule: str) -> None:
    """A23: above all an argument that there is not, as it could be a filter misspelt."""
    assert _rule(_subscribe(text)) == rule


def test_unsubscribe() -> None:
    """A23."""
    assert read_unsubscribe(read_command(b"UnSubscribe;topic=a")) == ToTopic(b"a")
    assert _rule(read_unsubscribe(CommandFrame("unsubscribe"))) == "R24"
    filtered = read_command(b"unsubscribe;topic=a,filter=b%3DN1")
    assert _rule(read_unsubscribe(filtered)) == "R24"


# ---- values ----


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"N1", Value("N", b"1", Decimal(1))),
        (b"N-9223372036854775808", Value("N", b"-9223372036854775808", Decimal(-(2**63)))),
        (b"N9223372036854775807", Value("N", b"9223372036854775807", Decimal(2**63 - 1))),
        (b"N21.5", Value("N", b"21.5", Decimal("21.5"))),
        (b"D1413198000.0", Value("D", b"1413198000.0", Decimal(1413198000))),
        (b"D1413198000", Value("D", b"1413198000", Decimal(1413198000))),
        (b"THello%20%22world%22", Value("T", b'Hello "world"')),
        (b"T", Value("T", b"")),
        (b"T5", Value("T", b"5")),
        (b"Tom", Value("T", b"om")),
        (b"jonas", Value("T", b"jonas")),
        (b"Nick", Value("T", b"Nick")),
        (b"N", Value("T", b"N")),
        (b"N1e5", Value("T", b"N1e5")),
        (b"N12345678901234567890", Value("T", b"N12345678901234567890")),
        (b"N\xd9\xa1", Value("T", b"N\xd9\xa1")),
        (b"Dora", Value("T", b"Dora")),
        (b"D1413198000.", Value("T", b"D1413198000.")),
        (b"", Value("T", b"")),
    ],
)
def test_values(text: bytes, value: Value) -> None:
    """R40, A20: what does not read as N, D or T is text; ``Tom`` reads as T."""
    assert read_value(text) == value


def test_the_documents_properties_on_the_bus() -> None:
    """R40, A20: readable to other protocols, and typed again for peers."""
    wire = b"count:N1;at:D1413198000.0;greeting:THello%20%22world%22"
    properties = properties_to_bus(wire)
    assert properties == {
        "count": b"1",
        "at": b"1413198000.0",
        "greeting": b'Hello "world"',
        TYPES: b"count:N;at:D",
    }
    assert properties_to_wire(properties) == wire
    untyped = properties_to_bus(b"first_name:jonas;twitter:jgauffin;")
    assert untyped == {"first_name": b"jonas", "twitter": b"jgauffin"}
    assert properties_to_wire(untyped) == b"first_name:Tjonas;twitter:Tjgauffin"


def test_properties_of_other_protocols() -> None:
    """R40: text, under names that can be said; whatever they claim about types."""
    foreign = {"fq.sender": b"a;b:c", "fq-sender": b"2", "n": b"x", "ü": b"\xff", TYPES: b"n:N;-:D"}
    assert properties_to_wire(foreign) == b"fq-sender:Ta%3Bb%3Ac;n:Tx;-:T%FF"
    for claim in (b"nonsense", b"n:Q", b"\xff", b";"):
        assert properties_to_wire({"n": b"1", TYPES: claim}) == b"n:T1"
    for wire in (b"a", b"a:%", b"a b:c"):
        with pytest.raises(GrammarError):
            properties_to_bus(wire)


def test_properties_that_do_not_fit() -> None:
    """R40: are left out; those that do are said."""
    long = {"a": b"x" * 65000, "b": b"y" * 600, "c": b"z" * 500}
    said = properties_to_bus(properties_to_wire(long))
    assert said == {"a": long["a"], "c": long["c"]}


_NAME = st.text("abz09-_", min_size=1, max_size=4)
_NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.decimals(-1000, 1000, places=3, allow_nan=False).map(lambda number: f"{number:f}"),
)
_TYPED = st.one_of(
    _NUMBERS.map(lambda text: b"N" + text.encode()),
    _NUMBERS.map(lambda text: b"D" + text.encode()),
    st.binary(max_size=8).map(lambda text: b"T" + url_encode(text)),
)


@given(st.dictionaries(_NAME, _TYPED, max_size=5))
def test_properties_come_out_as_they_went_in(said: dict[str, bytes]) -> None:
    """R40: through the bus, with their types and order."""
    wire = b";".join(name.encode() + b":" + value for name, value in said.items())
    properties = properties_to_bus(wire)
    assert property_fault(properties) == ""
    assert properties_to_wire(properties) == wire


@given(st.dictionaries(st.text(max_size=4), st.binary(max_size=8), max_size=5))
def test_any_properties_can_be_said(properties: dict[str, bytes]) -> None:
    wire = properties_to_wire({name: value for name, value in properties.items() if name})
    said = properties_to_bus(wire)
    assert set(said.values()) <= set(properties.values())


# ---- filters ----

_PROPERTIES = properties_to_bus(
    b"n:N5;neg:N-3;long:N9223372036854775807;frac:N2.50;at:D1413198000.5;"
    b"name:TJonas;city:TVisby%20hamn;empty:T;fee:T5;plain:jonas"
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("n=N5", True),
        ("n=N5.0", True),
        ("n=N05", True),
        ("n=N6", False),
        ("n!=N6", True),
        ("n!=N5", False),
        ("n<N6", True),
        ("n<N5", False),
        ("n<N-6", False),
        ("n<=N5", True),
        ("n<=N4.9", False),
        ("n>N4", True),
        ("n>N5", False),
        ("neg<N0", True),
        ("long=N9223372036854775807", True),
        ("long=N9223372036854775806", False),
        ("long>N9223372036854775806", True),
        ("long>N9223372036854775806.5", True),
        ("frac=N2.5", True),
        ("at>D1413198000", True),
        ("at<=D1413198000.5", True),
        ("at<D1413198000.5", False),
        ("at=D1413198000.50", True),
        ("name=TJonas", True),
        ("name=Tjonas", False),
        ("name!=Tjonas", True),
        ("name!=TJonas", False),
        ("name<TJo", True),
        ("name<Tjo", False),
        ("name<T", True),
        ("name>Tas", True),
        ("name>TAS", False),
        ("name&Tona", True),
        ("name&TONA", False),
        ("name~TONA", True),
        ("name~Tona", False),
        ("city=TVisby%20hamn", True),
        ("city=TVisby hamn", True),
        ("city&T%20", True),
        ("empty=T", True),
        ("empty=", True),
        ("name=", False),
        ("name=Jonas", True),
        ("plain=Tjonas", True),
        ("plain=jonas", True),
        ("plain>Nas", False),
        # As what the value is: the property is text, or was published as something else.
        ("fee=N5", True),
        ("fee<N9", True),
        ("n=T5", True),
        ("name=N5", False),
        ("name!=N5", False),
        ("n=D5", True),
        # Without such a property nothing holds.
        ("none=T", False),
        ("none!=T5", False),
        ("none~Tx", False),
        ("none!=N5", False),
    ],
)
def test_operators(text: str, wanted: bool) -> None:
    """R37, R38, R39, R40: on numbers, dates and text."""
    conditions = compile_filters([text.encode()])
    assert conditions is not None
    assert conditions(b"any/topic", _PROPERTIES, b"body") is wanted


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "a property"),
        (b"=N5", "a property"),
        (b"n", "a property"),
        (b"n N5", "a property"),
        (b"n!N5", "a property"),
        (b"\xc3\xbc=N5", "a property"),
        (b"n>=N5", "operator that there is not"),
        (b"n==N5", "operator that there is not"),
        (b"n<>N5", "operator that there is not"),
        (b"n!=~a", "operator that there is not"),
        (b"n<=T5", "<= of the filter b'n<=T5' is not for text"),
        (b"n<=five", "is not for text"),
        (b"n~N5", "~ of the filter b'n~N5' is not for numbers"),
        (b"n&D5", "is not for numbers and dates"),
    ],
)
def test_no_filters(text: bytes, complaint: str) -> None:
    """R39."""
    with pytest.raises(GrammarError, match=complaint) as caught:
        compile_filters([text])
    assert caught.value.rule == "R39"


def test_all_filters_hold() -> None:
    """R37, A23: several are ANDed; none is no filter at all."""
    both = compile_filters([b"n>N1", b"n<N9"])
    assert both is not None
    assert [both(b"", {"n": b"%d" % n}, b"") for n in (1, 2, 8, 9)] == [False, True, True, False]
    assert compile_filters([]) is None
    assert both == compile_filters([b"n>N1", b"n<N9"])


def test_filters_are_limited() -> None:
    """R37: in number and in bytes."""
    assert compile_filters([b"n>N1"] * MAX_FILTERS)
    long = b"n=T" + b"x" * (MAX_FILTER_BYTES - 3)
    assert compile_filters([long])
    for texts in ([b"n>N1"] * (MAX_FILTERS + 1), [long + b"x"], [long, b"n>N1"]):
        with pytest.raises(GrammarError, match="at most 16 filters, of 4096 bytes"):
            compile_filters(texts)


def _naive(found: bytes, operator: str, value: bytes, kind: str) -> bool:
    if kind == "T":
        return {
            "=": found == value,
            "!=": found != value,
            "<": found[: len(value)] == value,
            ">": found[len(found) - len(value) :] == value and len(value) <= len(found),
            "&": found.find(value) >= 0,
            "~": found.find(value) < 0,
        }[operator]
    left, right = Decimal(found.decode()), Decimal(value.decode())
    return {
        "=": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
    }[operator]


@given(st.data())
def test_against_a_naive_reading(data: st.DataObject) -> None:
    """R37, R38, R39, R40: any property, any filters, through SUBSCRIBE's two encodings."""
    properties: dict[str, bytes] = {}
    texts = []
    wanted = True
    for name in data.draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3)):
        kind = data.draw(st.sampled_from("NDT"))
        if kind == "T":
            values: Any = st.text("aA%=&~ ü", max_size=3).map(str.encode)
            operator = data.draw(st.sampled_from(["=", "!=", "<", ">", "&", "~"]))
        else:
            values = st.sampled_from([b"1", b"-1", b"1.0", b"2.5", b"9223372036854775807"])
            operator = data.draw(st.sampled_from(["=", "!=", "<", "<=", ">"]))
        value = data.draw(values)
        if name not in properties:
            properties[name] = data.draw(values)
        encoded = url_encode(value) if kind == "T" else value
        texts.append(f"{name}{operator}{kind}".encode() + encoded)
        try:
            wanted = wanted and _naive(properties[name], operator, value, kind)
        except ArithmeticError:
            wanted = False  # text, where a number is asked for
    codec = Codec("server")
    codec.receive_data(spell_handshake(Handshake(1, 0, "")) * 2)
    arguments = [("destination", b"topic/x"), *(("filter", text) for text in texts)]
    (command,) = codec.receive_data(spell_command_frame("subscribe", arguments))
    assert isinstance(command, CommandFrame)
    subscription = read_subscribe(command)
    assert isinstance(subscription, Subscription)
    assert subscription.filter is not None
    assert subscription.filter(b"x", properties, b"") is wanted


@given(st.lists(st.binary(max_size=12), max_size=3), st.binary(max_size=20))
def test_garbage_is_refused_in_words(texts: list[bytes], destination: bytes) -> None:
    """And what is accepted never raises."""
    arguments = (("destination", destination), *(("filter", text) for text in texts))
    found = read_subscribe(CommandFrame("subscribe", arguments))
    if isinstance(found, Refusal):
        assert found.rule in ("R13", "R17", "R39")
    elif found.filter is not None:
        for value in (b"", b"5", b"x", b"\xff"):
            found.filter(b"x", dict.fromkeys("abn5", value), b"")


# ---- types of .NET ----


def test_a_type_holds_until_the_next() -> None:
    """R33, R34."""
    types = TypeOfMessages()
    assert types.properties() == {}
    assert types.said(b"A, B") is None
    assert types.properties() == types.properties() == {"dotnet.type": b"A, B"}
    assert types.said(b"C, D") is None
    assert types.properties() == {"dotnet.type": b"C, D"}
    assert types.said(b"t" * MAX_TYPE) is None
    assert _rule(types.said(b"t" * (MAX_TYPE + 1))) == "R33"
    assert len(types.properties()["dotnet.type"]) == MAX_TYPE
