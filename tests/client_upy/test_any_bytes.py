"""Whatever a peer sends, in whatever pieces: a LinkError or messages, and the same ones."""

from hypothesis import given, settings
from hypothesis import strategies as st

from umotemq.fmqp import FmqpClient
from umotemq.lightmq import LightmqClient
from umotemq.link import Link, LinkError

_FMQP_FRAMES = st.builds(
    lambda flags, topic, body: (
        bytes([flags, len(topic)]) + len(body).to_bytes(4, "big") + topic + body
    ),
    st.sampled_from([0, 0, 0, 4, 8, 0x20, 0x80]),
    st.sampled_from([b"a", b"a/b", b"/a/", b"*", b"", b"/", b"a\0", b"\xff", b"x/y/z"]),
    st.binary(max_size=400),
)
_LIGHTMQ_FRAMES = st.builds(
    lambda opcode, payload: bytes([opcode]) + len(payload).to_bytes(2, "big") + payload,
    st.sampled_from([3, 4, 5, 5, 5, 6]),
    st.binary(min_size=2, max_size=400),
)
_CUTS = st.lists(st.integers(1, 300), min_size=1, max_size=20)


class _Cut:
    """A transport whose stream gives its bytes in pieces of the given sizes, in turn."""

    pollable = None
    where = "cut"

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self.data = data
        self._sizes = sizes
        self._turn = 0

    def open(self) -> "_Cut":
        return self

    def readinto(self, buffer: bytearray | memoryview) -> int | None:
        if not self.data:
            return None
        size = min(self._sizes[self._turn % len(self._sizes)], len(buffer), len(self.data))
        self._turn += 1
        buffer[:size] = self.data[:size]
        self.data = self.data[size:]
        return size

    def write(self, data: bytes) -> int:
        return len(data)

    def close(self) -> None:
        self.data = b""


def _drain(client: Link, stream: _Cut) -> str:
    try:
        while stream.data:
            client.poll(0)
        client.poll(0)
    except LinkError as error:
        return str(error)
    return f"{client.discarded} discarded"


def _fmqp(data: bytes, sizes: list[int]) -> tuple[list[tuple[bytes, bytes]], str]:
    stream = _Cut(data, sizes)
    client = FmqpClient(stream, name=b"", rx_size=300, retry_ms=0)
    got: list[tuple[bytes, bytes]] = []
    for topic in (b"a", b"*/*", b"*"):
        client.subscribe(topic, lambda topic, payload: got.append((topic, payload)))
    return got, _drain(client, stream)


def _lightmq(data: bytes, sizes: list[int]) -> tuple[list[bytes], str]:
    stream = _Cut(b"\x02\0\x01\0" + data, sizes)
    got: list[bytes] = []
    client = LightmqClient(stream, b"me", handler=got.append, rx_size=300, retry_ms=0)
    return got, _drain(client, stream)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(max_size=700), st.lists(_FMQP_FRAMES).map(b"".join)), _CUTS)
def test_fmqp(data: bytes, sizes: list[int]) -> None:
    assert _fmqp(data, sizes) == _fmqp(data, [len(data) + 1])


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(max_size=700), st.lists(_LIGHTMQ_FRAMES).map(b"".join)), _CUTS)
def test_lightmq(data: bytes, sizes: list[int]) -> None:
    assert _lightmq(data, sizes) == _lightmq(data, [len(data) + 4 + 1])
