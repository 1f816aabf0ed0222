"""Random numbers cost one call of the system for many."""

import os
from array import array

import pytest

from host_broker.net.random_numbers import DRAWN_AT_ONCE, unguessable_u16


def test_many_come_from_one_call_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[bytes] = []
    of_the_system = os.urandom

    def urandom(size: int) -> bytes:
        drawn.append(of_the_system(size))
        return drawn[-1]

    monkeypatch.setattr(os, "urandom", urandom)
    draw = unguessable_u16()
    assert not drawn  # nothing is drawn in advance of the first
    numbers = [draw() for _ in range(2 * DRAWN_AT_ONCE + 1)]
    assert len(drawn) == 3
    assert numbers == list(array("H", b"".join(drawn)))[: len(numbers)]


def test_two_sources_differ_and_all_numbers_occur() -> None:
    draw, other = unguessable_u16(), unguessable_u16()
    numbers = [draw() for _ in range(100_000)]
    assert numbers != [other() for _ in range(100_000)]
    assert 0 <= min(numbers) < 100 and 65_435 < max(numbers) <= 65_535
