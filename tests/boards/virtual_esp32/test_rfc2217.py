"""Telnet with port control, byte by byte: however it is cut, and whatever is sent."""

import random

import pytest

from boards.virtual.rfc2217 import LinesSet, Rfc2217Port, escape

_IAC = 255
_WILL_COM_PORT = bytes((_IAC, 251, 44))
_DO_COM_PORT = bytes((_IAC, 253, 44))
_MODEM_STATE = bytes((_IAC, 250, 44, 107, 0xB0, _IAC, 240))


def _set(code: int, *value: int) -> bytes:
    return bytes((_IAC, 250, 44, code, *value, _IAC, 240))


_CONVERSATION = (
    _WILL_COM_PORT
    + b"ab"
    + _set(1, 0, 0, 0xE1, 0)
    + _set(5, 8)
    + b"\xff\xffc"
    + _set(5, 11)
    + _set(5, 9)
    + b"d"
)


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 1000])
def test_however_the_bytes_are_cut(cut: int) -> None:
    port = Rfc2217Port()
    data, reply, lines = b"", b"", []
    for start in range(0, len(_CONVERSATION), cut):
        heard = port.receive(_CONVERSATION[start : start + cut])
        data += heard.data
        reply += heard.reply
        lines += heard.lines
    assert data == b"ab\xffcd"
    assert lines == [LinesSet(dtr=True), LinesSet(rts=True), LinesSet(dtr=False)]
    assert reply == (
        _DO_COM_PORT
        + _MODEM_STATE
        + _set(101, 0, 0, 0xE1, 0)
        + _set(105, 8)
        + _set(105, 11)
        + _set(105, 9)
    )


def test_options_are_answered_once_and_unknown_ones_refused() -> None:
    port = Rfc2217Port()
    assert port.receive(bytes((_IAC, 253, 0))).reply == bytes((_IAC, 251, 0))
    assert port.receive(bytes((_IAC, 253, 0))).reply == b""
    assert port.receive(bytes((_IAC, 254, 0))).reply == b""
    assert port.receive(bytes((_IAC, 253, 1))).reply == bytes((_IAC, 252, 1))
    assert port.receive(bytes((_IAC, 251, 24))).reply == bytes((_IAC, 254, 24))


def test_queries_tell_what_was_set() -> None:
    port = Rfc2217Port()
    assert port.receive(_set(5, 7)).reply == _set(105, 9)
    port.receive(_set(5, 8))
    assert port.receive(_set(5, 7)).reply == _set(105, 8)
    assert port.receive(_set(5, 10)).reply == _set(105, 12)
    assert port.receive(_set(1, 0, 0, 0, 0)).reply == _set(101, 0, 1, 0xC2, 0)
    assert port.receive(_set(2, 0)).reply == _set(102, 8)
    assert b"virtual" in port.receive(_set(0)).reply


def test_a_value_of_255_is_escaped_both_ways() -> None:
    port = Rfc2217Port()
    assert port.receive(_set(11, _IAC, _IAC)).reply == _set(111, _IAC, _IAC)
    assert escape(b"a\xffb") == b"a\xff\xffb"


def test_garbage_neither_raises_nor_grows() -> None:
    rng = random.Random(2217)
    port = Rfc2217Port()
    for _ in range(300):
        noise = bytes(rng.choice((_IAC, 250, 240, 44, 5, rng.randrange(256))) for _ in range(100))
        port.receive(noise)
    port = Rfc2217Port()
    port.receive(bytes((_IAC, 250)) + b"x" * 1_000_000)
    assert len(port._sub or b"") == 256
    port.receive(bytes((_IAC, 240)))
    assert port.receive(b"data").data == b"data"
