"""The host's codec: the golden vectors, any cuts, any bytes; and LINK.md's own encoder."""

import json
import random
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boards.bridge.reliable_frame import (
    INTERRUPTED_S,
    PAYLOAD_LIMIT,
    WHOLE_S,
    Cutter,
    Frame,
    Kind,
    OtherVersion,
    Stray,
    decode,
    disguise,
    encode,
)

_ROOT = Path(__file__).parents[4]
_VECTORS = json.loads((_ROOT / "tests/vectors/link.json").read_text())


def _frame(vector: dict[str, Any]) -> Frame:
    payload = bytes.fromhex(vector["payload_hex"])
    numbers = (vector[name] for name in ("session", "seq", "next", "room", "mask"))
    by_host, on_console = vector["by"] == "host", vector.get("console", False)
    return Frame(Kind[vector["kind"]], *numbers, payload, by_host, on_console)


_FRAMES = {vector["name"]: _frame(vector) for vector in _VECTORS["frames"]}


def _frames_in(cutter: Cutter, *reads: bytes) -> list[Frame]:
    found = [each for data in reads for each in cutter.receive(data)]
    return [each for each in found if isinstance(each, Frame)]


@pytest.mark.parametrize("vector", _VECTORS["frames"], ids=lambda vector: vector["name"])
def test_frames_are_as_the_vectors_say(vector: dict[str, Any]) -> None:
    wire, frame = bytes.fromhex(vector["hex"]), _FRAMES[vector["name"]]
    assert encode(frame) == wire
    assert _frames_in(Cutter(), wire) == [frame]


@pytest.mark.parametrize("vector", _VECTORS["disguises"], ids=lambda vector: vector["name"])
def test_disguises_are_as_the_vectors_say(vector: dict[str, Any]) -> None:
    assert disguise(bytes.fromhex(vector["hex"])).hex() == vector["to_console_hex"]


@pytest.mark.parametrize("vector", _VECTORS["streams"], ids=lambda vector: vector["name"])
def test_streams_give_what_the_vectors_say(vector: dict[str, Any]) -> None:
    wire = bytes.fromhex(vector["hex"])
    wanted = [_FRAMES[name] for name in vector["frames"]]
    for step in (len(wire), 1, 7, 256):
        cuts = [wire[at : at + step] for at in range(0, len(wire), step)]
        assert _frames_in(Cutter(), *cuts) == wanted, step


def test_the_specification_encodes_as_the_vectors_say() -> None:
    text = (_ROOT / "boards/bridge/LINK.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {"zlib": zlib}
    exec(code[1], names)
    for vector in _VECTORS["frames"]:
        kind = Kind[vector["kind"]] + 8 * (vector["by"] == "host")
        kind += 128 * vector.get("console", False)
        header = bytes((kind,)) + vector["session"].to_bytes(2, "little")
        header += bytes(vector[name] for name in ("seq", "next", "room", "mask"))
        body = header + bytes.fromhex(vector["payload_hex"])
        assert names["encode"](body) == bytes.fromhex(vector["hex"]), vector["name"]


_any_frame = st.builds(
    Frame,
    st.sampled_from([Kind.DATA, Kind.ACK]),
    st.integers(0, 65535),
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(0, 8),
    st.integers(0, 127),
    st.one_of(
        st.binary(min_size=1, max_size=PAYLOAD_LIMIT),
        st.lists(st.sampled_from([0, 1, 255]), min_size=1, max_size=PAYLOAD_LIMIT).map(bytes),
    ),
    st.booleans(),
    st.booleans(),
)


@given(_any_frame)
def test_a_frame_comes_back(frame: Frame) -> None:
    wire = encode(frame)
    assert wire.count(0) == 2
    assert len(wire) == len(frame.payload) + 14
    assert decode(wire[1:-1]) == frame


@given(st.lists(st.one_of(st.binary(max_size=300), _any_frame.map(encode))), st.data())
def test_garbage_never_raises_and_cuts_do_not_matter(
    parts: list[bytes], data: st.DataObject
) -> None:
    wire = b"".join(parts)
    whole = _frames_in(Cutter(), wire)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    reads = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert _frames_in(Cutter(), *reads) == whole


def test_strays_are_what_was_no_frame() -> None:
    wire = b"boot\r\n" + encode(_FRAMES["ack"]) + b">>> "
    assert Cutter().receive(wire) == [Stray(b"boot\r\n"), _FRAMES["ack"], Stray(b">>> ")]
    noise = random.Random(1).randbytes(100_000).replace(b"\0", b"")
    cutter = Cutter()
    strays = [s for at in range(0, len(noise), 100) for s in cutter.receive(noise[at : at + 100])]
    assert all(isinstance(stray, Stray) and len(stray.data) < 400 for stray in strays)
    assert noise.startswith(b"".join(s.data for s in strays if isinstance(s, Stray)))
    assert sum(len(s.data) for s in strays if isinstance(s, Stray)) > len(noise) - 300


@given(st.lists(st.one_of(st.binary(max_size=300), _any_frame.map(encode))), st.data())
def test_what_is_no_frame_is_told_byte_for_byte(parts: list[bytes], data: st.DataObject) -> None:
    """A console is behind it: nothing may be missing, added or moved. Reads end anywhere."""
    wire = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    cutter, told = Cutter(), b""
    for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        for found in cutter.receive(wire[a:b], 0.0):
            told += found.data if isinstance(found, Stray) else _marked(found)
    for found in cutter.tick(WHOLE_S):
        assert isinstance(found, Stray)
        told += found.data
    assert _without_frames(told) == _without_frames(wire)


def test_a_frame_that_comes_with_a_pause_is_no_text() -> None:
    """A machine was busy for most of a second; a 4 in it would end what the REPL says."""
    wire = encode(_FRAMES["ack"])
    for cut in range(1, len(wire)):
        cutter = Cutter()
        assert cutter.receive(wire[:cut], 0.0) == []
        assert cutter.tick(0.9) == []
        assert cutter.receive(wire[cut:], 1.0) == [_FRAMES["ack"]]


def test_what_an_interrupted_program_leaves_of_a_frame_holds_up_no_prompt() -> None:
    head = encode(_FRAMES["ack"])[:9]
    cutter = Cutter()
    cutter.receive(head, 0.0)
    cutter.interrupted(1.0)
    assert cutter.receive(b">>> ", 1.01) == []
    assert cutter.next_deadline() == 1.0 + INTERRUPTED_S
    assert cutter.tick(1.0 + INTERRUPTED_S) == [Stray(head + b">>> ")]
    # As if the zero came just after it; and long after it, it is as ever.
    cutter.receive(b"\0rest", 2.0)
    assert cutter.next_deadline() == 2.0 + INTERRUPTED_S
    cutter.tick(2.2)
    cutter.receive(b"\0rest", 4.0)
    assert cutter.next_deadline() == 4.0 + WHOLE_S


def _marked(found: Frame | OtherVersion) -> bytes:
    return encode(found) if isinstance(found, Frame) else b""


def _without_frames(wire: bytes) -> list[bytes]:
    """The pieces between zeros that are no frames. Zeros that frames share are not counted."""
    return [piece for piece in wire.split(b"\0") if piece and decode(piece) is None]


def test_text_after_a_lone_zero_waits_for_a_frame_that_may_have_begun() -> None:
    cutter = Cutter()
    assert cutter.receive(b"\0>>> ", 5.0) == []
    assert cutter.next_deadline() == pytest.approx(8.0)
    assert cutter.tick(7.95) == []
    assert cutter.tick(8.0) == [Stray(b"\0>>> ")]
    assert cutter.next_deadline() is None
    assert cutter.receive(b"more", 8.2) == [Stray(b"more")]
    frame = encode(_FRAMES["ack"])  # a slow one still comes through
    assert cutter.receive(frame[:5], 9.0) == []
    assert cutter.tick(12.2) == [Stray(frame[:5])]
    assert cutter.receive(frame[5:], 12.3)[-1] == _FRAMES["ack"]


@given(st.binary(max_size=300))
def test_a_disguise_hides_what_a_repl_acts_upon_and_comes_off(data: bytes) -> None:
    hidden = disguise(data)
    assert not set(hidden) & {1, 2, 3, 4, 5, 13, *b"([{\\"}
    plain, flip = bytearray(), 0
    for byte in hidden:
        if byte == 16:
            flip = 64
        else:
            plain.append(byte ^ flip)
            flip = 0
    assert bytes(plain) == data


def test_an_open_of_another_version_is_told() -> None:
    body = bytes((0x21, 0x34, 0x12, 9, 9, 9, 255)) + b"whatever it says"
    check = zlib.crc32(b"\0\0" + body).to_bytes(4, "little")
    coded = b"".join(bytes((len(run) + 1,)) + run for run in (body + check).split(b"\0"))
    assert decode(coded) == OtherVersion(0x1234)


def test_a_payload_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="the limit is 243"):
        encode(Frame(Kind.DATA, 1, 0, 0, 8, 0, bytes(PAYLOAD_LIMIT + 1)))


@pytest.mark.parametrize("name", sorted(_FRAMES))
def test_every_single_damage_is_found(name: str) -> None:
    """Each bit flipped, each byte lost, each doubled: nothing else comes out."""
    wire = encode(_FRAMES[name])
    damaged = [
        wire[:at] + bytes((wire[at] ^ 1 << bit,)) + wire[at + 1 :]
        for at in range(1, len(wire) - 1)
        for bit in range(8)
    ]
    damaged += [wire[:at] + wire[at + 1 :] for at in range(1, len(wire) - 1)]
    damaged += [wire[:at] + wire[at - 1 :] for at in range(2, len(wire) - 1)]
    for each in damaged:
        assert _frames_in(Cutter(), each) == []
