"""Records become blocks: the compiled way and its Python twin, and what a reader finds in them."""

import functools
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.bus.publication import pack, pack_with_properties
from host_broker.net.journal import assembly
from host_broker.net.journal.assembly import LONG_BODY, PythonAssembler, assemble
from host_broker.net.journal.format import is_whole, take_block
from host_broker.net.journal.segment import Partition
from host_broker.net.journal.stage import records_of
from host_broker.outputs import Record
from host_broker.settings import JournalSettings
from tests.host_broker.net.journal_decoder import read_journal
from tests.journal_segment import JOURNAL

python_assemble = functools.partial(assemble, kind=PythonAssembler)

_TOPIC = st.sampled_from([b"a", b"a/b", b"home/kitchen", "maison/é".encode(), b"\xc3\xa9" * 127])
_PUBLICATION = st.tuples(
    st.sampled_from([0, 4, 8]), _TOPIC, st.binary(max_size=40), st.booleans() | st.none()
)
_CLIENT = st.sampled_from(["", "", "kitchen", "καρδιά", "query:1 7.0", "a b 1.1"])


@st.composite
def _records(draw: st.DrawFn) -> tuple[Record, list[tuple[int, bytes, bytes, dict[str, bytes]]]]:
    encoding = draw(st.sampled_from([1, 1, 2]))
    publications = draw(st.lists(_PUBLICATION, min_size=1, max_size=6))
    body, messages = b"", []
    for flags, topic, payload, properties in publications:
        packet = pack(flags, topic, payload)
        given = {"name": payload, "è": b""} if encoding == 2 and properties else {}
        body += pack_with_properties(packet, given) if encoding == 2 else packet
        messages.append((flags, topic, payload, given))
    kind = draw(st.sampled_from([bytes, bytearray, memoryview]))
    record = Record(
        draw(st.integers(0, 2**32 - 1)),
        draw(st.sampled_from([0, 1, 2])),
        draw(_CLIENT),
        len(messages),
        kind(body),
        encoding,
    )
    return record, messages


_GROUP = st.lists(st.tuples(st.integers(0, 2**63), st.lists(_records(), max_size=5)), max_size=6)


def test_the_compiled_one_is_tested() -> None:
    """Where it is compiled it is of today's source; the tests below would else compare the twin
    with itself. MOTEMQ_PURE_PYTHON=1 leaves it out."""
    if not assembly.COMPILED:
        pytest.fail("the compiled assembly is missing: run make setup on a machine with a compiler")
    from host_broker.net.journal import _assembly

    source = Path(assembly.__file__).with_name("_assembly.pyx").read_bytes()
    assert hashlib.sha256(source).hexdigest() == _assembly.SOURCE


def _spelled(blocks: list[Any]) -> list[Any]:
    return [
        (
            block.partition,
            block.records,
            block.messages,
            block.latest_ns,
            block.clients_length,
            block.length,
            [bytes(part) for part in block.parts],
            block.mark,
        )
        for block in blocks
    ]


def _given(group: Any) -> list[tuple[int, list[Record]]]:
    return [(time_ns, [record for record, _ in records]) for time_ns, records in group]


@settings(max_examples=300)
@given(_GROUP, st.integers(1, 4), st.sampled_from([1, 60, 10**6]))
def test_the_twins_agree(group: Any, partitions: int, most_bytes: int) -> None:
    compiled = assemble(_given(group), partitions, most_bytes)
    python = python_assemble(_given(group), partitions, most_bytes)
    assert _spelled(compiled) == _spelled(python)
    assert all(sum(map(len, block.parts)) == block.length for block in python)


_OF_A_READ = st.sampled_from([20, 20, LONG_BODY - 1, LONG_BODY, LONG_BODY + 7])


@pytest.mark.parametrize("kind", [assembly.Assembler, PythonAssembler])
@settings(max_examples=30, deadline=None)  # megabytes
@given(
    sizes=st.lists(_OF_A_READ, min_size=1, max_size=7), buffer=st.sampled_from([bytes, memoryview])
)
def test_a_long_body_is_handed_on_as_it_is(kind: Any, sizes: list[int], buffer: Any) -> None:
    bodies = [buffer(pack(0, b"a", b"x" * (size - 7))) for size in sizes]
    records = [Record(1, 1, "", 1, body) for body in bodies]
    (block,) = assemble([(1, records)], 1, 10**7, kind)
    long = [body for body in bodies if len(body) >= LONG_BODY]
    handed_on = [part for part in block.parts if any(part is body for body in long)]
    assert len(handed_on) == len(long)
    ours = len(block.parts) - len(handed_on)
    assert ours <= len(handed_on) + 1  # all between them is one part
    whole = b"".join(block.parts)
    assert whole.endswith(b"".join(bodies))
    assert len(whole) == block.length
    assert _spelled([block]) == _spelled(python_assemble([(1, records)], 1, 10**7))


@settings(max_examples=100)
@given(_GROUP, st.integers(1, 4), st.sampled_from([1, 60, 10**6]), st.sampled_from([1, 80, 10**6]))
def test_blocks_that_are_taken_in_portions_are_those_of_all_at_once(
    group: Any, partitions: int, most_bytes: int, portion_bytes: int
) -> None:
    whole = _spelled(assemble(_given(group), partitions, most_bytes))
    for kind in (assembly.Assembler, PythonAssembler):
        assembler = kind(partitions, most_bytes)
        for time_ns, records in _given(group):
            assembler.add(time_ns, records)
        assert assembler.messages == sum(block[2] for block in whole)
        portions = list(iter(lambda taking=assembler: taking.take(portion_bytes), []))
        assert assembler.messages == 0
        assert [each for portion in portions for each in _spelled(portion)] == whole


def _read_back(blocks: bytes, mark: int, numbers: list[int]) -> list[tuple[int, Any]]:
    """Return what whole blocks say: partition, and time and record; numbers are moved on."""
    data, at, found = memoryview(blocks), 0, []
    while at < len(data):
        block = take_block(data, at)
        assert block is not None
        assert is_whole(data, at, block)
        partition = (block.segment - mark) % 2**32
        assert block.first == numbers[partition]
        records = records_of(data, at, block)
        assert block.latest_ns == max(time_ns for time_ns, _ in records)
        found += [(partition, each) for each in records]
        numbers[partition] = block.next
        at += block.length
    return found


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(_GROUP, st.booleans()), max_size=4),
    st.lists(st.integers(0, 2**63), min_size=1, max_size=4),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 60, 10**6]),
    st.none() | st.integers(LONG_BODY - 50, LONG_BODY + 50),
)
def test_what_is_not_staged_is_what_came_since(
    groups: Any, numbers: list[int], mark: int, most_bytes: int, long: int | None
) -> None:
    """Of each partition in order; the twins spell it alike, and all is taken as if nothing was."""
    assemblers = [kind(len(numbers), most_bytes) for kind in (assembly.Assembler, PythonAssembler)]
    waiting: list[tuple[int, Any]] = []
    all_records = []
    for group, is_staged in groups:
        records = _given(group)
        if long is not None:  # a body that is not copied
            records.append((17, [Record(3, 1, "kitchen", 1, pack(0, b"a", b"x" * long))]))
        all_records += records
        waiting += [
            (record.connection % len(numbers), (time_ns, replace(record, body=bytes(record.body))))
            for time_ns, some in records
            for record in some
        ]
        moved = [numbers.copy() for _ in assemblers]
        spelled = []
        for assembler, after in zip(assemblers, moved, strict=True):
            for time_ns, some in records:
                assembler.add(time_ns, some)
            spelled.append(b"".join(assembler.unstaged(after, mark)))
        assert spelled[0] == spelled[1]
        read = numbers.copy()
        found = _read_back(spelled[0], mark, read)
        assert moved == [read, read]
        for partition in range(len(numbers)):
            of_it = [each for where, each in found if where == partition]
            assert of_it == [each for where, each in waiting if where == partition]
        if is_staged:
            for assembler in assemblers:
                assembler.staged()
            numbers, waiting = moved[0], []
    whole = _spelled(assemble(all_records, len(numbers), most_bytes))
    for assembler in assemblers:
        assert _spelled(assembler.take(10**9)) == whole
        assert assembler.unstaged(numbers, mark) == []


@pytest.mark.parametrize("made", [assemble, python_assemble])
@pytest.mark.parametrize(
    ("body", "count", "encoding"),
    [
        (pack(0, b"a", b"b") * 2, 3, 1),
        (pack(0, b"a", b"b") * 3, 2, 1),
        (pack(0, b"a", b"b") * 2 + b"x", 2, 1),
        (pack(0, b"a", b"b") * 2, 2, 2),
        (b"", 2, 1),
        (b"\0\0\0\1", 2, 2),
        (b"\xff" * 40, 2, 1),
    ],
)
def test_a_record_that_is_not_what_it_says_is_refused(
    made: Any, body: bytes, count: int, encoding: int
) -> None:
    with pytest.raises(ValueError, match="not as many whole publications as it says"):
        made([(1, [Record(1, 1, "", count, body, encoding)])], 1, 100)


@pytest.mark.parametrize("made", [assemble, python_assemble])
def test_a_name_that_is_too_long_is_refused(made: Any) -> None:
    with pytest.raises(ValueError, match="at most 65535"):
        made([(1, [Record(1, 1, "x" * 65536, 1, b"")])], 1, 100)


@settings(max_examples=100, deadline=None)  # files
@given(
    st.lists(_GROUP, max_size=4),
    st.sampled_from([300, 1000, 10**6]),
    st.sampled_from([1, 200, 10**6]),
)
def test_any_publications_in_any_flushes_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, groups: Any, segment_bytes: int, most_bytes: int
) -> None:
    journal = tmp_path_factory.mktemp("journal")
    settings = JournalSettings(segment_bytes=segment_bytes)
    partition = Partition(journal, 0, JOURNAL, 7, settings)
    expected = []
    for group in groups:
        blocks = assemble(_given(group), 1, most_bytes)
        partition.write(blocks)
        assert blocks == []
        expected += [
            (time_ns, record.connection, record.protocol, record.client, *message)
            for time_ns, records in group
            for record, messages in records
            for message in messages
        ]
    partition.close()
    found = [
        (
            stored.time_ns,
            stored.connection,
            stored.protocol,
            stored.client,
            stored.flags,
            stored.topic.encode(),
            stored.body,
            stored.properties,
        )
        for stored in read_journal(journal)[0]
    ]
    assert found == expected
    assert partition.next == len(expected)
