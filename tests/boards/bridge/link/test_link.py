"""The host's side alone: the vectors' talks, and what a board may do to it."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from boards.bridge.reliable_frame import Cutter, Frame, Kind, OtherVersion, Reason, Stray, encode
from boards.bridge.reliable_link import Asked, Ended, Event, HostLink

_VECTORS = json.loads((Path(__file__).parents[4] / "tests/vectors/link.json").read_text())
_TALKS = [talk for talk in _VECTORS["talks"] if talk.get("only") != "board"]
_SESSION = 0x1234


def _open(session: int = _SESSION, patience_ms: int = 5000, size: int = 243) -> bytes:
    payload = bytes((size,)) + patience_ms.to_bytes(2, "little")
    return encode(Frame(Kind.OPEN, session, 0, 0, 8, 0, payload))


def _frame(kind: Kind, seq: int = 0, payload: bytes = b"", session: int = _SESSION) -> bytes:
    return encode(Frame(kind, session, seq, 0, 8, 0, payload))


def _said(link: HostLink, now: float = 0.0) -> bytes:
    """Return all that the link has for the port now."""
    wire = b""
    while frame := link.data_to_send(now):
        wire += frame
    return wire


def _frames(wire: bytes) -> list[Frame | OtherVersion | Stray]:
    return Cutter().receive(wire)


class _Host:
    """Plays a talk: what the board says comes in, what the host says must be as written."""

    def __init__(self) -> None:
        self.link = HostLink()
        self.now = 10.0
        self.events: list[Event] = []
        self.wanted = self.said = b""

    def step(self, name: str, value: Any) -> None:
        if name == "to_board":
            self.wanted += bytes.fromhex(value)
        elif name == "to_host":
            for byte in bytes.fromhex(value):  # whatever the reads
                self.events += self.link.receive_data(bytes((byte,)), self.now)
            if self.events and isinstance(self.events[-1], Asked):
                self.link.accept(self.now)
                self.events.clear()
        elif name == "ms":
            assert self.said == self.wanted
            self.now += value / 1000
            self.events += self.link.tick(self.now)
        elif name == "host_writes":
            data = bytes.fromhex(value)
            assert self.link.send(data, self.now) == len(data)
        elif name == "host_reads":
            data = bytes.fromhex(value)
            rest = b"".join(event.rest for event in self.events if isinstance(event, Ended))
            assert self.link.take(1000, self.now) + rest == data
        elif name == "host_finishes":
            self.link.finish(self.now)
        elif name == "host_ended":
            (ended,) = self.events
            assert isinstance(ended, Ended)
            assert (ended.reason, ended.complete) == (value, True)


@pytest.mark.parametrize("talk", _TALKS, ids=lambda talk: talk["name"])
def test_what_is_said_is_as_the_vectors_say(talk: dict[str, Any]) -> None:
    host = _Host()
    steps = talk["steps"]
    for number, (step, following) in enumerate(zip(steps, [*steps[1:], {}], strict=True)):
        for name, value in step.items():
            host.step(name, value)
        if "to_host" not in step or "to_host" not in following:  # what comes at once is one read
            host.said += _said(host.link, host.now)
        assert host.said.startswith(host.wanted), (number, step)
    assert host.said == host.wanted


def test_the_host_is_silent_while_nobody_asks() -> None:
    link = HostLink()
    text = b">>> print(1)\r\n1\r\n"
    assert link.receive_data(text, 0.0) == [Stray(text)]
    assert link.next_deadline() is None
    assert link.tick(1e6) == []
    assert _said(link) == b""


def test_text_of_the_board_is_shown() -> None:
    link = HostLink()
    assert link.receive_data(b"boot\r\n" + _open(), 0.0) == [Stray(b"boot\r\n"), Asked(_SESSION, 5)]
    assert link.counters.stray_bytes == 6


def test_a_session_that_is_refused() -> None:
    link = HostLink()
    assert link.receive_data(_open(), 0.0) == [Asked(_SESSION, 5.0)]
    assert _said(link) == b""
    link.refuse("broker 127.0.0.1:8765: refused", 0.0)
    payload = b"\x01broker 127.0.0.1:8765: refused"
    assert _said(link) == encode(Frame(Kind.CLOSE, _SESSION, 0, 0, 0, 0, payload, by_host=True))
    assert link.session is None
    # The board asks again when it likes.
    assert link.receive_data(_open(), 1.0) == [Asked(_SESSION, 5.0)]


def test_a_board_that_asks_and_goes_away() -> None:
    link = HostLink()
    link.receive_data(_open(patience_ms=1000), 0.0)
    assert link.tick(1.04) == []
    assert link.tick(1.06) == [Ended("the board was silent for 1 s", False, b"", silent=True)]
    link.accept(1.06)
    assert _said(link) == b""


def test_a_board_that_asks_and_changes_its_mind() -> None:
    link = HostLink()
    link.receive_data(_open(), 0.0)
    (ended,) = link.receive_data(_frame(Kind.CLOSE, payload=b"\0"), 0.1)
    assert isinstance(ended, Ended)


def test_data_of_no_session_is_answered_once_per_frame_and_a_close_never() -> None:
    link = HostLink()
    close = encode(Frame(Kind.CLOSE, _SESSION, 0, 0, 0, 0, b"\x02", by_host=True))
    for kind, payload in ((Kind.DATA, b"x"), (Kind.ACK, b"")):
        assert link.receive_data(_frame(kind, payload=payload), 0.0) == []
        assert _said(link) == close
    link.receive_data(_frame(Kind.CLOSE, payload=b"\0"), 0.0)
    link.receive_data(_frame(Kind.ACCEPT, payload=b"\xf3"), 0.0)
    assert _said(link) == b""
    assert link.counters.other_sessions == 4


def test_a_board_that_never_listens_does_not_fill_the_memory() -> None:
    link = HostLink()
    for session in range(10_000):
        link.receive_data(_frame(Kind.DATA, payload=b"x", session=session), 0.0)
        link.receive_data(_open(session), 0.0)
        link.refuse("no", 0.0)
    assert len(_frames(_said(link))) <= 8


def test_an_open_that_comes_twice_is_answered_twice() -> None:
    link = HostLink()
    link.receive_data(_open(), 0.0)
    link.accept(0.0)
    first = _said(link)
    assert link.receive_data(_open(), 0.1) == []
    assert _said(link, 0.1) == first
    # After anything else of that session it is a new one of the same number.
    link.receive_data(_frame(Kind.DATA, payload=b"x"), 0.2)
    ended, asked = link.receive_data(_open(), 0.3)
    assert ended == Ended("the board opened anew", False, b"x")
    assert asked == Asked(_SESSION, 5.0)


def test_a_board_of_another_version_is_told_so() -> None:
    link = HostLink()
    body = bytes((0x21, 0x34, 0x12)) + b"new things"
    body += zlib.crc32(b"\0\0" + body).to_bytes(4, "little")
    wire = b"\0" + b"".join(bytes((len(run) + 1,)) + run for run in body.split(b"\0")) + b"\0"
    assert link.receive_data(wire, 0.0) == []
    (close,) = _frames(_said(link))
    assert isinstance(close, Frame)
    assert (close.kind, close.session) == (Kind.CLOSE, _SESSION)
    assert close.payload[0] == Reason.VERSION


def test_a_small_board_gets_small_frames() -> None:
    link = HostLink()
    link.receive_data(_open(size=10), 0.0)
    link.accept(0.0)
    _said(link)
    assert link.send(bytes(200), 0.0) == 80
    assert [len(f.payload) for f in _frames(_said(link)) if isinstance(f, Frame)] == [10] * 8


def test_little_messages_share_a_frame_while_the_port_takes_nothing() -> None:
    link = HostLink()
    link.receive_data(_open(), 0.0)
    link.accept(0.0)
    _said(link)
    for _ in range(20):
        assert link.send(b"message", 0.0) == 7
    (frame,) = _frames(_said(link))
    assert isinstance(frame, Frame)
    assert frame.payload == b"message" * 20


def test_no_more_is_sent_than_the_board_has_room_for() -> None:
    link = HostLink()
    link.receive_data(_open(), 0.0)
    link.accept(0.0)
    _said(link)
    link.receive_data(encode(Frame(Kind.ACK, _SESSION, 0, 0, 2, 0)), 0.0)
    link.send(bytes(5 * 243), 0.0)
    assert [f.seq for f in _frames(_said(link)) if isinstance(f, Frame)] == [0, 1]
    link.receive_data(encode(Frame(Kind.ACK, _SESSION, 0, 2, 1, 0)), 0.1)
    assert [f.seq for f in _frames(_said(link, 0.1)) if isinstance(f, Frame)] == [2]
    # No room: after a time one frame goes all the same, so that news of room cannot be missed.
    link.receive_data(encode(Frame(Kind.ACK, _SESSION, 0, 3, 0, 0)), 0.2)
    assert _said(link, 0.2) == b""
    link.tick(0.65)
    assert [f.seq for f in _frames(_said(link, 0.65)) if isinstance(f, Frame)] == [3]


def test_what_was_lost_is_sent_again_at_once_and_nothing_else() -> None:
    link = HostLink()
    link.receive_data(_open(), 0.0)
    link.accept(0.0)
    link.send(bytes(4 * 243), 0.0)
    _said(link)
    # Number 2 has come: 0 and 1 were sent before it and are lost, 3 may be on its way.
    link.receive_data(encode(Frame(Kind.ACK, _SESSION, 0, 0, 8, 0b10)), 0.01)
    assert [f.seq for f in _frames(_said(link, 0.01)) if isinstance(f, Frame)] == [0, 1]
    assert link.counters.resent == 2


def test_nonsense_about_what_was_acknowledged_is_ignored() -> None:
    link = HostLink()
    link.receive_data(_open(), 0.0)
    link.accept(0.0)
    link.send(b"x", 0.0)
    _said(link)
    for number, mask in ((2, 0), (200, 0), (255, 127), (0, 127)):
        link.receive_data(encode(Frame(Kind.ACK, _SESSION, 0, number, 8, mask)), 0.1)
    # The frame is still kept: it is sent again in time.
    link.tick(0.1)
    assert _said(link, 0.1) == b""
    link.tick(0.46)
    (frame,) = _frames(_said(link, 0.46))
    assert isinstance(frame, Frame)
    assert (frame.kind, frame.payload) == (Kind.DATA, b"x")


def test_an_abort_tells_the_board() -> None:
    link = HostLink()
    link.receive_data(_open(), 0.0)
    link.accept(0.0)
    link.receive_data(_frame(Kind.DATA, payload=b"last"), 0.0)
    _said(link)
    assert link.abort("the bridge stops", 0.0) == [Ended("the bridge stops", False, b"last")]
    (close,) = _frames(_said(link))
    assert isinstance(close, Frame)
    assert close.payload == b"\x03the bridge stops"
    assert link.abort("again", 0.0) == []


def test_text_of_a_close_is_shown_whatever_it_is() -> None:
    for payload, said in (
        (b"\x03I stop", "the board gave up: I stop"),
        (b"\x03", "the board gave up: reason 3"),
        (b"\x07\xff\xfe", "the board gave up: \ufffd\ufffd"),
    ):
        link = HostLink()
        link.receive_data(_open(), 0.0)
        link.accept(0.0)
        assert link.receive_data(_frame(Kind.CLOSE, payload=payload), 0.0) == [
            Ended(said, False, b"")
        ]
