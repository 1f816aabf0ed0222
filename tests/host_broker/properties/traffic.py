"""Random traffic for properties: mostly right, some of it wrong, cut anywhere."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import strategies as st

from host_broker.bus.publication import pack
from host_broker.protocols.lightmq.codec import Codec

MAX_BODY = 40  # so small that random traffic exceeds it
HARD_LIMIT = 2**31

_LEVELS = [b"a", b"b", b"*", b"$", b"", b"a*", "ü".encode()]
_TOPIC = st.lists(st.sampled_from(_LEVELS), min_size=1, max_size=3).map(b"/".join)
_BAD_TOPIC = st.sampled_from([b"", b"/", b"//", b"\0", b"a\0", b"\xff", b"\xed\xa0\x80"])
_BODY = st.one_of(st.binary(min_size=1, max_size=6), st.just(b""), st.just(b"x" * (MAX_BODY + 1)))


def _repeated(packet: bytes, times: int) -> bytes:
    return packet * times


# Most traffic is plain and repeats itself, which is what the fast path is for.
_PLAIN = st.builds(
    _repeated,
    st.builds(
        pack, st.just(0), st.sampled_from([b"a", b"b", b"a/b"]), st.binary(min_size=1, max_size=9)
    ),
    st.integers(1, 5),
)
# Packets of one length, topic and body, are read in groups; now and then one of them is not plain.
_TURNS = st.lists(
    st.builds(
        pack,
        st.sampled_from([0] * 9 + [4, 8, 0x20]),
        st.sampled_from([b"a", b"b", b"a", b"b", b"c", b"*", b"$", b"/"]),
        st.sampled_from([b"1", b"2"]),
    ),
    max_size=60,
).map(b"".join)
_ANY = st.builds(pack, st.integers(0, 255), _TOPIC, _BODY)
_BAD = st.builds(pack, st.integers(0, 255), _BAD_TOPIC, _BODY)
_SUBSCRIBE = st.builds(pack, st.sampled_from([0x80, 0xC0, 0xA0, 0x90]), _TOPIC, st.just(b""))

FMQP = st.lists(st.one_of(_PLAIN, _PLAIN, _TURNS, _ANY, _SUBSCRIBE, _BAD), max_size=12).map(
    b"".join
)

_CLIENT = Codec("client")
_ID = st.integers(0, 0xFFFF)
_LIGHTMQ_FRAME = st.one_of(
    st.builds(_CLIENT.ping, _ID),
    st.builds(_CLIENT.pong, _ID),
    st.builds(_CLIENT.send, _ID, st.binary(max_size=9)),
    st.builds(_CLIENT.sendresp, _ID, st.binary(max_size=9)),
    st.binary(max_size=4),
)
LIGHTMQ = st.builds(
    lambda name, frames: _CLIENT.connect(name) + b"".join(frames),
    st.sampled_from(["a", "b", "*", "a/b", "a>board", "a>b"]),
    st.lists(_LIGHTMQ_FRAME, max_size=10),
)


def carried(stream: bytes, places: list[int], others: Sequence[bytes] = ()) -> bytes:
    """CONNECT, SENDs that hold the pieces of a stream, and other frames between them."""
    frames = [_CLIENT.send(id, piece) for id, piece in enumerate(cut(stream, places))]
    for place, other in enumerate(others):
        frames.insert(place * 2 % (len(frames) + 1), other)
    return _CLIENT.connect("carried") + b"".join(frames)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut data at the places (taken modulo its length) into reads."""
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


CUTS = st.lists(st.integers(0, 10_000), max_size=30)
# FMQP in LightMQ, and frames of LightMQ between, some of them wrong.
CARRIED = st.builds(carried, FMQP, CUTS, st.lists(_LIGHTMQ_FRAME, max_size=3))


@st.composite
def mutated(draw: st.DrawFn, traffic: st.SearchStrategy[bytes]) -> bytes:
    """Valid traffic with a few bytes changed, lost or doubled."""
    data = bytearray(draw(traffic))
    for _ in range(draw(st.integers(1, 4))):
        if not data:
            break
        place = draw(st.integers(0, len(data) - 1))
        kind = draw(st.sampled_from(["change", "lose", "double"]))
        if kind == "change":
            data[place] = draw(st.integers(0, 255))
        elif kind == "lose":
            del data[place]
        else:
            data[place:place] = data[place : place + 1]
    return bytes(data)
