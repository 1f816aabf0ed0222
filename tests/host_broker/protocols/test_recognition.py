"""First bytes: every vector is recognised as what it is, however it is cut."""

import random
import ssl
from typing import Any

import pytest

from host_broker.recognition import MORE, NOBODY, Recognition
from host_broker.registry import protocols
from tests.host_broker.golden import spelled, vectors

_RECOGNITION = Recognition(protocols().values())
LONGEST, recognise, refusal = (
    _RECOGNITION.longest,
    _RECOGNITION.recognise,
    _RECOGNITION.refusal,
)
_CONNECT = bytes.fromhex("01000908636c69656e742d31")
# What its first bytes cannot tell from a handshake of MicroMsg2, malformed as it is.
_CONNECT_WITHOUT_PAYLOAD = {"bad_connect_no_payload", "bad_connect_no_payload_go"}
# Handshakes of MicroMsg2 that need a listener of their own (docs/one-port.md).
_NEED_THEIR_OWN = {"hs_flags_reserved": "lightmq", "hs_major_255": "fmqp"}
# One byte, which decides nothing here, and what no client begins with.
_NO_BEGINNING = {"hs_major_0", "hs_error_large"}


def _streams() -> list[Any]:
    """How clients of each protocol begin, and what they are to be taken for."""
    found = [(v["name"], spelled(v), v["verdict"]) for v in vectors("first_bytes")]
    found += [
        (f"fmqp-{vector['name']}", spelled(vector), "fmqp")
        for vector in vectors("fmqp")
        if vector["direction"] != "B>C"
    ]
    for vector in vectors("lightmq"):
        if vector["direction"] == "S>C":
            continue
        data = spelled(vector)
        if data[0] != 0x01:
            data = _CONNECT + data  # a CONNECT comes first
        expected = "micromsg2" if vector["name"] in _CONNECT_WITHOUT_PAYLOAD else "lightmq"
        found.append((f"lightmq-{vector['name']}", data, expected))
    for vector in vectors("micromsg2"):
        name = vector["name"]
        if name.startswith("hs_") and vector["direction"] != "S>C" and name not in _NO_BEGINNING:
            begins = _NEED_THEIR_OWN.get(name, "micromsg2")
            found.append((f"micromsg2-{name}", spelled(vector), begins))
    return [pytest.param(data, verdict, id=name) for name, data, verdict in found]


def _client_hello(version: ssl.TLSVersion, name: str) -> bytes:
    context = ssl.create_default_context()
    context.minimum_version = context.maximum_version = version
    said = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), said, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return said.read()


@pytest.mark.parametrize(("stream", "expected"), _streams())
def test_a_stream_is_recognised_at_one_byte_and_ever_after(stream: bytes, expected: str) -> None:
    verdicts = [recognise(stream[:length]) for length in range(len(stream[:64]) + 1)]
    decided = verdicts.index(expected)
    assert decided <= LONGEST
    assert verdicts == [MORE] * decided + [expected] * (len(verdicts) - decided)
    assert recognise(stream) == expected


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_what_openssl_says_first_is_tls(version: ssl.TLSVersion) -> None:
    hello = _client_hello(version, "broker.example")
    assert [recognise(hello[:length]) for length in range(4)] == [MORE, MORE, MORE, "tls"]
    assert recognise(hello) == "tls"


def test_any_bytes_give_one_verdict_which_more_bytes_never_change() -> None:
    """Random bytes, and those that differ little from a vector."""
    chance = random.Random(8765)
    known = [spelled(v)[:12] for name in ("first_bytes", "fmqp", "lightmq") for v in vectors(name)]
    for _ in range(20_000):
        stream = bytearray(chance.choice(known) + chance.randbytes(LONGEST))
        for _ in range(chance.randrange(4)):
            stream[chance.randrange(LONGEST)] = chance.choice(
                (0, 1, 3, 4, 255, chance.randrange(256))
            )
        verdict = recognise(bytes(stream))
        assert verdict != MORE
        length = chance.randrange(LONGEST + 1)
        assert recognise(bytes(stream[:length])) in (MORE, verdict)
        assert recognise(bytes(stream[:LONGEST])) == verdict


def test_nothing_that_an_fmqp_client_may_begin_with_is_taken_for_another() -> None:
    """Every flags byte without a reserved bit, in both bit orders, bodies up to 8 MiB."""
    lengths = [0, 1, 255, 256, 65_535, 65_536, 1 << 20, 8 << 20]
    for flags in {*range(0, 256, 4), *range(64)}:
        for topic_length in (1, 2, 3, 0x45, 0x50, 0x7F, 0x80, 0xFF):
            for body_length in lengths:
                if (flags, topic_length) == (1, 1) and body_length >= 65_536:
                    continue  # an LSB subscription with such a body: MicroMsg2 1.1
                head = bytes([flags, topic_length]) + body_length.to_bytes(4, "big")
                verdict = recognise(head + b"a" * 16)
                assert verdict == "fmqp", head.hex()


def test_every_client_id_of_lightmq_is_recognised() -> None:
    for length in range(256):
        connect = b"\x01" + (length + 1).to_bytes(2, "big") + bytes([length]) + b"x" * length
        assert recognise(connect) == "lightmq"


def test_letters_are_nobodys() -> None:
    chance = random.Random(8765)
    letters = bytes(range(0x20, 0x7F))
    for _ in range(2000):
        text = bytes(chance.choice(letters) for _ in range(LONGEST))
        assert recognise(text) in (NOBODY, "http")


def test_refusals_are_in_the_protocols_own_form() -> None:
    head, _, body = refusal("http", b"GET ").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 501 ")
    assert b"Content-Length: %d\r\n" % len(body) in head
    assert body.endswith(b"\n")
    assert body.count(b"\n") == 1
    assert refusal("tls", b"")[:3] == b"\x15\x03\x01"
    assert refusal("mqtt", b"") == b"\x20\x02\x00\x01"
    assert refusal(NOBODY, b"SSH-") == b""
