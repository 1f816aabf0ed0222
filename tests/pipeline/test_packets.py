"""Packets found all at once are the packets that are read one by one."""

import struct

from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_motemq.packets import Finder
from tests.pipeline.desk import packet

_ZEROS = st.integers(0, 40).map(bytes)
_STRUCTS = st.tuples(st.integers(0, 2**32 - 1), st.floats()).map(lambda v: struct.pack("<Id", *v))
_PAYLOADS = st.one_of(_ZEROS, _STRUCTS, st.binary(max_size=60), st.just(b"x" * 70_000))
_PACKETS = st.builds(
    packet, st.sampled_from(["a", "home/kitchen/temperature", "\0\0\0"]), _PAYLOADS, st.just(0)
)
_RUNS = st.lists(_PACKETS, min_size=1, max_size=30).flatmap(
    lambda few: st.integers(1, 8).map(lambda times: few * times)
)


def _naive(data: bytes, start: int, end: int) -> list[int] | None:
    found = []
    while start < end:
        if start + 6 > end:
            return None
        found.append(start)
        topic, body = data[start + 1], int.from_bytes(data[start + 2 : start + 6], "big")
        start += 6 + topic + body
    return found if start == end else None


@given(st.lists(_RUNS, min_size=1, max_size=3), st.binary(max_size=50))
@example([[packet("a", b"")] * 64], b"")
@example([[packet("a", bytes(9))] * 64, [packet("a", b"1")], [packet("b", b"x" * 65536)] * 40], b"")
def test_all_places_are_found_in_order(runs: list[list[bytes]], between: bytes) -> None:
    data = between
    stretches = []
    for run in runs:
        start = len(data)
        data += b"".join(run)
        stretches.append((start, len(data), len(run)))
        data += between
    finder = Finder(data)
    assert all(finder.take(*stretch) for stretch in stretches)
    expected = [at for start, end, _ in stretches for at in _naive(data, start, end) or []]
    assert finder.places().tolist() == expected


@given(_RUNS, st.data())
def test_damage_is_seen_exactly_where_reading_one_by_one_sees_it(
    run: list[bytes], draw: st.DataObject
) -> None:
    data = bytearray(b"".join(run))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    expected = _naive(bytes(data), 0, len(data))
    whole = expected is not None and len(expected) == len(run)
    finder = Finder(bytes(data))
    assert finder.take(0, len(data), len(run)) == whole
    if whole:
        assert finder.places().tolist() == expected
