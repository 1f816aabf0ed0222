"""The switch as data: what goes where, what is lost, when it arrives."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boards.virtual.lan.switch import Link, Switch

_EVERYBODY = b"\xff" * 6


def _address(number: int) -> bytes:
    return bytes((2, 0, 0, 0, 0, number))


def _frame(source: int, target: bytes, body: bytes = b"") -> bytes:
    return target + _address(source) + b"\x88\xb5" + body


def _segment(source: int, target: bytes, flags: int, *, options: int = 0) -> bytes:
    ip = bytes((0x45 + options, 0)) + bytes(7) + b"\x06" + bytes(10 + 4 * options)
    tcp = struct.pack(">HHIIBB", 8765, 4000, 0, 0, 0x50, flags) + bytes(6)
    return target + _address(source) + b"\x08\x00" + ip + tcp


def _switch(*ports: str, **links: Link) -> Switch:
    switch = Switch(random.Random(1))
    for port in ports:
        switch.add(port, links.get(port, Link()))
    return switch


def test_a_frame_for_somebody_unknown_goes_to_all_and_then_only_to_that_one() -> None:
    switch = _switch("a", "b", "c")
    first = _frame(1, _address(2))
    switch.receive("a", first, 0.0)
    assert list(switch.due(0.0)) == [("b", first), ("c", first)]
    answer = _frame(2, _address(1))
    switch.receive("b", answer, 1.0)
    assert list(switch.due(1.0)) == [("a", answer)]
    again = _frame(1, _address(2), b"again")
    switch.receive("a", again, 2.0)
    assert list(switch.due(2.0)) == [("b", again)]
    everybody = _frame(2, _EVERYBODY)
    switch.receive("b", everybody, 3.0)
    assert list(switch.due(3.0)) == [("a", everybody), ("c", everybody)]


def test_delay_counts_for_both_links_and_keeps_the_order() -> None:
    switch = _switch("a", "b", a=Link(delay_s=0.02), b=Link(delay_s=0.03))
    frames = [_frame(1, _address(2), bytes((number,))) for number in range(3)]
    for number, frame in enumerate(frames):
        switch.receive("a", frame, number * 0.001)
    assert list(switch.due(0.0499)) == []
    assert switch.next_deadline() == pytest.approx(0.05)
    assert [frame for _, frame in switch.due(0.06)] == frames
    assert switch.next_deadline() is None


@pytest.mark.parametrize("cut", ["a", "b"])
def test_a_link_that_is_down_carries_nothing_and_what_is_under_way_is_lost(cut: str) -> None:
    switch = _switch("a", "b", a=Link(delay_s=0.1))
    switch.receive("a", _frame(1, _address(2)), 0.0)
    switch.set_link(cut, Link(up=False))
    switch.receive("a", _frame(1, _address(2)), 0.05)
    arrived = list(switch.due(1.0))
    assert len(arrived) == (1 if cut == "a" else 0)  # it had left a's link already
    assert switch.traffic(cut).lost == (1 if cut == "a" else 2)
    switch.set_link(cut, Link())
    switch.receive("a", _frame(1, _address(2)), 2.0)
    assert len(list(switch.due(3.0))) == 1


def test_loss_is_by_chance_and_both_ways() -> None:
    switch = _switch("a", "b", b=Link(loss=0.1))
    for _ in range(2000):
        switch.receive("a", _frame(1, _address(2)), 0.0)
    there = len(list(switch.due(0.0)))
    for _ in range(2000):
        switch.receive("b", _frame(2, _address(1)), 1.0)
    back = len(list(switch.due(1.0)))
    assert 1700 < there < 1900
    assert 1700 < back < 1900
    assert switch.traffic("b").lost == 4000 - there - back


def test_what_a_port_does_not_take_in_time_is_bounded() -> None:
    switch = _switch("a", "b", b=Link(delay_s=60))
    for _ in range(5000):
        switch.receive("a", _frame(1, _address(2)), 0.0)
    assert len(list(switch.due(60.0))) == 4096
    assert switch.traffic("b").lost == 5000 - 4096


@pytest.mark.parametrize(
    ("flags", "options", "kind"),
    [(0x11, 0, "fin"), (0x04, 0, "rst"), (0x14, 2, "rst"), (0x15, 0, "rst")],
)
def test_ends_of_connections_are_noted_as_they_come_from_a_port(
    flags: int, options: int, kind: str
) -> None:
    switch = _switch("a", "b")
    switch.receive("a", _segment(1, _address(2), 0x18), 1.0)
    switch.receive("a", _segment(1, _address(2), flags, options=options), 2.0)
    switch.set_link("a", Link(up=False))
    switch.receive("a", _segment(1, _address(2), flags, options=options), 3.0)
    seen = [(one.at, one.kind, one.source_port, one.passed) for one in switch.traffic("a").endings]
    assert seen == [(2.0, kind, 8765, True), (3.0, kind, 8765, False)]
    assert not switch.traffic("b").endings


@given(st.lists(st.binary(min_size=14, max_size=80), max_size=20))
def test_whatever_a_frame_holds_it_is_carried(frames: list[bytes]) -> None:
    switch = _switch("a", "b")
    for frame in frames:
        switch.receive("a", frame, 0.0)
    assert all(port == "b" for port, _ in switch.due(0.0))
