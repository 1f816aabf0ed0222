"""MicroMsg2's codec: any cuts, bounded memory, garbage, and everything that can be spelled."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.protocols.micromsg2.codec import (
    MAX_FRAGMENT,
    Codec,
    fragments,
    spell_command_frame,
    spell_error,
    spell_extension,
    spell_handshake,
    spell_message,
)
from host_broker.protocols.micromsg2.events import (
    CommandFrame,
    ErrorFrame,
    Event,
    Extension,
    ExtensionFrame,
    Handshake,
    MessageFrame,
)
from host_broker.protocols.micromsg2.grammar import (
    GrammarError,
    field_fault,
    read_command,
    read_extensions,
    read_properties,
    spell_properties,
    url_decode,
    url_encode,
)
from host_broker.wire.budget import Budget
from host_broker.wire.violation import Violation

_MAX = 300  # bytes of a payload, so that random traffic exceeds it
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_NAME = st.text("abzAZ09-_", min_size=1, max_size=5)
_EXTENSIONS = st.lists(
    st.builds(Extension, _NAME, st.lists(st.tuples(_NAME, _TEXT), max_size=3).map(tuple)),
    max_size=4,
).map(tuple)
_HANDSHAKES = st.builds(
    Handshake,
    st.sampled_from([1, 1, 1, 2, 3, 5, 255]),
    st.integers(0, 255),
    st.text("ab /", max_size=5),
    _EXTENSIONS,
    _EXTENSIONS,
    st.integers(0, 255),
)
_PAYLOADS = st.one_of(st.binary(max_size=6), st.binary(min_size=250, max_size=_MAX))
_MESSAGES = st.builds(
    MessageFrame,
    st.integers(0, 65535),
    st.binary(max_size=6),
    st.binary(max_size=6),
    _PAYLOADS,
    st.booleans(),
)
_COMMANDS = st.builds(
    CommandFrame,
    st.text("abz09-", min_size=1, max_size=5),
    st.lists(st.tuples(_NAME, st.binary(max_size=9)), max_size=4).map(tuple),
)
_EXTENSION_FRAMES = st.builds(ExtensionFrame, st.integers(1, 255), _PAYLOADS)
_FRAMES = st.one_of(_MESSAGES, _MESSAGES, _COMMANDS, _EXTENSION_FRAMES)


def _spell(event: Any) -> bytes:
    match event:
        case Handshake():
            return spell_handshake(event)
        case MessageFrame(sequence, destination, properties, payload, continued):
            return spell_message(sequence, destination, properties, payload, continued)
        case CommandFrame(name, arguments):
            return spell_command_frame(name, arguments)
        case ExtensionFrame(index, payload):
            return spell_extension(index, payload)
        case _:
            return spell_error(event.reason)


def _cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


_CUTS = st.lists(st.integers(0, 10_000), max_size=30)


@st.composite
def _traffic(draw: st.DrawFn) -> bytes:
    """Two handshake messages and frames, mostly right: a few bytes changed, lost or doubled."""
    events = [draw(_HANDSHAKES), draw(_HANDSHAKES), *draw(st.lists(_FRAMES, max_size=6))]
    data = bytearray(b"".join(map(_spell, events)))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(data) - 1))
        kind = draw(st.sampled_from(["change", "lose", "double"]))
        if kind == "change":
            data[place] = draw(st.integers(0, 255))
        elif kind == "lose" and len(data) > 1:
            del data[place]
        else:
            data[place:place] = data[place : place + 1]
    return bytes(data)


def _ready(role: Any = "server", *more: Any, **options: Any) -> Codec:
    """A codec behind the handshake."""
    codec = Codec(role, *more, **options)
    for _ in range(2 if role == "server" else 1):
        codec.receive_data(spell_handshake(Handshake(1, 0, "")))
    return codec


def _violation(events: list[Event]) -> Violation:
    (event,) = events
    assert isinstance(event, Violation)
    assert event.fatal
    return event


@given(st.lists(_HANDSHAKES, min_size=2, max_size=2), st.lists(_FRAMES, max_size=6), _CUTS)
def test_what_is_spelled_is_read(
    handshakes: list[Handshake], frames: list[Event], places: list[int]
) -> None:
    """R12, R13, R19, R24, A11, A21: by a server, and by a client, which reads one handshake."""
    for codec, said in (
        (Codec("server"), [*handshakes, *frames]),
        (Codec("client"), [handshakes[0], *frames]),
    ):
        found: list[Event] = []
        for read in _cut(b"".join(map(_spell, said)), places):
            found += codec.receive_data(read)
        assert found == said


@settings(max_examples=300)
@given(st.one_of(_traffic(), st.binary(max_size=60)), _CUTS, st.sampled_from(["server", "client"]))
def test_any_cuts_give_the_same_events(data: bytes, places: list[int], role: Any) -> None:
    """Nor does anything come after a violation or an ERROR."""

    def events(reads: list[bytes]) -> list[Event]:
        codec = Codec(role, _MAX)
        return [event for read in reads for event in codec.receive_data(read)]

    whole = events([data])
    assert events(_cut(data, places)) == whole
    assert events([bytes([byte]) for byte in data]) == whole
    assert not any(isinstance(event, Violation | ErrorFrame) for event in whole[:-1])


@settings(max_examples=300)
@given(
    st.lists(st.one_of(_traffic(), st.binary(max_size=2000)), max_size=3),
    _CUTS,
    st.integers(0, 3000),
)
def test_memory_is_taken_and_given_back(
    streams: list[bytes], places: list[int], limit: int
) -> None:
    budget = Budget(limit + 4096)
    codecs = [Codec("server", 10_000, budget) for _ in streams]
    for codec, stream in zip(codecs, streams, strict=True):
        for read in _cut(stream * 9, places):
            codec.receive_data(read)
            assert 0 <= budget.left <= limit + 4096
    for codec in codecs:
        codec.close()
        assert codec.receive_data(b"\x01") == []
    assert budget.left == limit + 4096


def test_unfinished_frames_share_the_brokers_memory() -> None:
    budget = Budget(10_000)
    long = spell_message(1, b"q", b"", bytes(8000))
    one, other = _ready("server", 10_000, budget), _ready("server", 10_000, budget)
    assert one.receive_data(long[:6000]) == []
    assert _violation(other.receive_data(long[:6000])).rule == "bus.max_held_bytes"
    assert other.receive_data(long) == []
    (message,) = one.receive_data(long[6000:])
    assert isinstance(message, MessageFrame)
    assert budget.left == 10_000


def test_a_payload_may_be_as_long_as_the_limit() -> None:
    """R18, A18, A19: of any frame; one that says more is not waited for."""
    for spell in (
        lambda size: spell_message(1, b"q", b"", bytes(size)),
        lambda size: spell_extension(1, bytes(size)),
        lambda size: spell_command_frame("x", [("a", b"b" * (size - 4))]),
    ):
        assert len(_ready("server", _MAX).receive_data(spell(_MAX))) == 1
        frame = spell(_MAX + 1)
        violation = _violation(_ready("server", _MAX).receive_data(frame[:-_MAX]))
        assert violation.rule == "bus.max_body"
        assert f"{_MAX + 1} bytes" in violation.reason


def test_offsets_are_those_of_frames() -> None:
    codec = Codec("server")
    handshake = spell_handshake(Handshake(1, 0, "me"))
    frame = spell_message(1, b"q", b"", b"x")
    codec.receive_data(handshake + handshake + frame[:5])
    events = codec.receive_data(frame[5:] + frame + b"\x03")
    assert isinstance(events[-1], Violation)
    assert events[-1].offset == 2 * len(handshake) + 2 * len(frame)


def test_flags_that_name_no_frame() -> None:
    """R16, A26: every byte is a frame's beginning, or it ends the connection at once."""
    beginnings = {flags for flags in range(256) if not _ready().receive_data(bytes([flags]))}
    assert beginnings == {0, 1, 2, 4, 8, 9, 10, 12, 16, 24}


def test_error_is_the_last_word() -> None:
    """A4, A5, A25: in the handshake and after it, short and long; ours fit one byte of length."""
    for codec in (Codec("client"), Codec("server"), _ready("client"), _ready("server")):
        error = spell_error("it is late")
        assert codec.receive_data(error + error) == [ErrorFrame("it is late")]
        assert codec.receive_data(error) == []
    assert spell_error("é" * 200) == b"\x04\xfe" + "é".encode() * 127
    assert Codec("client").receive_data(spell_error("a\udcffb")) == [ErrorFrame("a?b")]


def test_flag_4_as_the_document_prints_it() -> None:
    """A1: the setting is for frames; in the handshake 4 still is ERROR."""
    old = bytes([4, 2, 2, 0, 4])
    assert _ready("client", extension_flag_4=True).receive_data(old) == [ExtensionFrame(2, b"\0\4")]
    assert _ready("client").receive_data(old) == [ErrorFrame("\2\0")]
    assert Codec("client", extension_flag_4=True).receive_data(old) == [ErrorFrame("\2\0")]


@pytest.mark.parametrize("size", [0, 1, MAX_FRAGMENT, MAX_FRAGMENT + 1, 3 * MAX_FRAGMENT])
def test_long_payloads_are_cut(size: int) -> None:
    """R19, R20, A18: all fragments but the last say that they are continued."""
    payload = bytes(range(256)) * (size // 256 + 1)
    payload = payload[:size]
    cut = list(fragments(payload))
    assert b"".join(part for part, _ in cut) == payload
    assert all(len(part) <= MAX_FRAGMENT for part, _ in cut)
    assert [continued for _, continued in cut] == [True] * (len(cut) - 1) + [False]


def test_what_is_too_long_is_never_spelled() -> None:
    with pytest.raises(ValueError, match="at most 255"):
        spell_handshake(Handshake(1, 0, "i" * 256))
    with pytest.raises(ValueError, match="ascii"):
        spell_handshake(Handshake(1, 0, "é"))
    with pytest.raises(ValueError, match="at most 65535"):
        spell_handshake(Handshake(1, 0, "", (Extension("x" * 65536),)))
    for destination, properties in ((b"d" * 256, b""), (b"", b"p" * 65536)):
        with pytest.raises(ValueError, match="at most 255 and 65535"):
            spell_message(1, destination, properties, b"")
    longest = spell_message(1, b"d" * 255, b"p" * 65535, b"")
    assert _ready().receive_data(longest) == [MessageFrame(1, b"d" * 255, b"p" * 65535, b"")]


@given(st.binary(max_size=40))
def test_url_encoding(value: bytes) -> None:
    """R13, A22: what is encoded has no separators of any of the three languages."""
    encoded = url_encode(value)
    assert url_decode(encoded) == value
    assert not set(encoded) & set(b":;,=+ <>&!~") - set(b"~")


def test_url_decoding_takes_escapes_only() -> None:
    """A22."""
    assert url_decode(b"1+1%2b1!%20\xc3\xbc") == "1+1+1! ü".encode()
    for bad in (b"%", b"a%2", b"%g0", b"%%20"):
        with pytest.raises(GrammarError, match="two hexadecimal digits"):
            url_decode(bad)


@given(st.dictionaries(_NAME, st.binary(max_size=9).map(url_encode), max_size=4))
def test_properties_of_messages(properties: dict[str, bytes]) -> None:
    """A9, A21: with or without a semicolon at the end."""
    text = spell_properties(properties.items())
    assert read_properties(text) == properties
    if properties:
        assert read_properties(text + b";") == properties


def test_separators() -> None:
    """A9, A10, A21: only a property of an extension may have a colon for ``=``."""
    two = Extension("a", (("k", "v"), ("l", "w:x=y")))
    assert read_extensions(b"a:k:v,l=w:x=y;B_1;") == (two, Extension("B_1"))
    assert read_command(b"Do;Key=a=b:c") == CommandFrame("do", (("Key", b"a=b:c"),))
    assert read_properties(b"at:12:30;b:x=y,z") == {"at": b"12:30", "b": b"x=y,z"}
    for read, text in (
        (read_extensions, b";"),
        (read_extensions, b"a;;b"),
        (read_extensions, b"a b"),
        (read_extensions, b"a:k"),
        (read_extensions, b"a:k=v,"),
        (read_command, b";k=v"),
        (read_command, b"do;k:v"),
        (read_command, b"do;k=v;l=w,"),
        (read_properties, b"k"),
        (read_properties, b"k:v;;"),
        (read_properties, b"\xff:v"),
    ):
        with pytest.raises(GrammarError):
            read(text)
    assert field_fault("max-count") == ""
    for name in ("", "Max", "a_b", "é", "a b"):
        assert "small letters" in field_fault(name)
