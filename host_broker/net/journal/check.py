"""Reads all of a journal and says what is wrong with it; changes nothing."""

import contextlib
import mmap
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from struct import Struct

from host_broker.net.journal.format import (
    BLOCK_HEADER_LENGTH,
    HEADER_LENGTH,
    LENGTH_BYTES,
    LOST,
    PACKETS,
    SEGMENT_SUFFIX,
    SELECTED,
    WITH_PROPERTIES,
    Block,
    HeaderFault,
    SegmentHeader,
    is_whole,
    segment_mark,
    take_block,
    take_column,
    unpack_header,
)
from host_broker.net.journal.groups import GROUPS_FILE, read_groups
from host_broker.net.journal.identity import IDENTITY_FILE, read_identity, stored_identity
from host_broker.net.journal.index import index_path, load
from host_broker.net.journal.scan import JournalError, next_whole, version_1
from host_broker.net.journal.stage import missing

_PACKET = Struct(">BBI")
_PROPERTIES = Struct(">I")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong: where and what.

    Messages ``first`` to ``end`` - 1 are lost, if there are any. ``torn``: it was never whole, so
    nothing was lost that had been there.
    """

    path: Path
    offset: int
    text: str
    first: int = 0
    end: int = 0
    torn: bool = False

    @property
    def lost(self) -> int:
        """How many messages are lost."""
        return self.end - self.first

    def __str__(self) -> str:
        """Return it as one line."""
        line = f"{self.path}, offset {self.offset}: {self.text}"
        if self.lost:
            line += f"; messages {self.first} to {self.end - 1} are lost"
        return line


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes ``start`` to ``end`` of a segment, whole blocks; or ``lost`` messages."""

    start: int
    end: int
    lost: int = 0


@dataclass(slots=True)
class Examined:
    """A segment that was read: what is right in it, in order, and what is wrong.

    ``header``: None if it has no right one.
    """

    path: Path
    partition: int
    first: int
    header: SegmentHeader | None = None
    extents: list[Extent] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    next: int = 0
    known_lost: int = 0  # messages of which a block says so


@dataclass(slots=True)
class Report:
    """What was found in a journal, and how much was read.

    ``staged``: messages that the next start of the broker writes into segments.
    """

    findings: list[Finding] = field(default_factory=list)
    partitions: set[int] = field(default_factory=set)
    segments: int = 0
    messages: int = 0
    staged: int = 0

    @property
    def corrupt(self) -> bool:
        """Whether something is wrong that was whole once."""
        return not all(finding.torn for finding in self.findings)

    @property
    def lost(self) -> int:
        """How many messages are lost."""
        return sum(finding.lost for finding in self.findings)


def check(journal: Path) -> Report:
    """Read a whole journal. Raises ``JournalError`` if it is none of version 2, ``OSError``."""
    report = Report()
    nexts: dict[int, int] = {}
    for segment in examine(journal):
        nexts[segment.partition] = segment.next
        report.partitions.add(segment.partition)
        report.segments += 1
        lost = segment.known_lost + sum(extent.lost for extent in segment.extents)
        report.messages += segment.next - segment.first - lost
        report.findings += segment.findings
    report.findings += other_findings(journal)
    identity = read_identity(journal)
    if identity is None and not report.segments:
        raise JournalError(f"{journal} has no journal; give the broker's DATA/journal")
    if identity is not None:
        report.staged = missing(journal, identity, nexts)
    return report


def examine(journal: Path) -> Iterator[Examined]:
    """Read the segments of a journal, partition by partition. Raises as ``check``."""
    if not journal.is_dir():
        raise JournalError(f"there is no journal folder {journal}; give the broker's DATA/journal")
    identity = read_identity(journal)
    for folder in sorted(journal.glob("p[0-9]*")):
        if not folder.name[1:].isdecimal():
            continue
        paths = sorted(folder.glob("[0-9]*" + SEGMENT_SUFFIX))
        firsts: list[int | None] = [int(path.stem) for path in paths]
        for path, (first, limit) in zip(paths, pairwise([*firsts, None]), strict=True):
            yield _examine(path, int(folder.name[1:]), first or 0, limit, identity)


def other_findings(journal: Path) -> Iterator[Finding]:
    """Say what is wrong with files that are no segments."""
    groups = journal / GROUPS_FILE
    try:
        read_groups(groups)
    except ValueError as error:
        yield Finding(groups, 0, f"what consumer groups have read cannot be read: {error}")
    path = journal / IDENTITY_FILE
    known = read_identity(journal)
    if known is not None and stored_identity(path) != known:
        yield Finding(path, 0, "the journal's id is not here; its segments have it", torn=True)


def _examine(
    path: Path, partition: int, first: int, limit: int | None, identity: uuid.UUID | None
) -> Examined:
    found = Examined(path, partition, first, next=first)
    with path.open("rb") as file, contextlib.ExitStack() as stack:
        size = os.fstat(file.fileno()).st_size
        data: mmap.mmap | bytes = b""
        if size:
            data = stack.enter_context(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
        view = stack.enter_context(memoryview(data))
        header = unpack_header(bytes(data[:HEADER_LENGTH]), partition, first)
        if isinstance(header, HeaderFault):
            if header.version == 1:
                raise version_1(path.parent.parent)
            at = next_whole(data, min(size, HEADER_LENGTH), None)
            if not at:
                end = _known_end(found, identity) if limit is None else limit
                lost = end > first
                text = f"{header.text}, and it has no whole block"
                found.findings.append(
                    Finding(path, 0, text, first, end if lost else first, torn=not lost)
                )
                if lost:
                    found.extents.append(Extent(0, 0, end - first))
                    found.next = end
                return found
            found.findings.append(Finding(path, 0, header.text))
            block = take_block(view, at)
            mark = block.segment if block is not None else 0
        else:
            found.header = header
            mark = segment_mark(bytes(data[:HEADER_LENGTH]))
            if identity is not None and header.journal != identity:
                text = f"it is of journal {header.journal}, this is journal {identity}"
                found.findings.append(Finding(path, 32, text))
        _examine_blocks(found, data, view, mark, limit)
        _examine_index(found, size)
    return found


def _examine_blocks(
    found: Examined, data: mmap.mmap | bytes, view: memoryview, mark: int, limit: int | None
) -> None:
    position, size = HEADER_LENGTH, len(view)
    while True:
        start = position
        what = ""
        while position < size and not what and found.next != limit:
            block = take_block(view, position) if size - position >= BLOCK_HEADER_LENGTH else None
            what = _fault(view, position, block, mark, found.next, limit)
            if block is not None and not what:
                position, found.next = position + block.length, block.next
                found.known_lost += block.messages if block.flags & LOST else 0
        if position > start:
            found.extents.append(Extent(start, position))
        if position >= size or found.next == limit:
            break
        at, block = _resume(data, view, position, mark, found.next, limit)
        if block is None:
            whole = next_whole(data, position, None)  # but not right
            end = limit
            if end is None:
                end = _known_end(found, found.header.journal if found.header else None)
            torn = limit is None and not whole and end <= found.next
            known = take_block(view, position) if size - position >= BLOCK_HEADER_LENGTH else None
            end = max(end, found.next)
            if limit is None and whole and known is not None and known.first >= found.next:
                end = known.next
            text = f"the last {size - position} bytes are no whole block: {what}"
            if torn and known is not None and known.first == found.next:
                text += f" (messages {known.first} to {known.next - 1}, which were never whole)"
            found.findings.append(Finding(found.path, position, text, found.next, end, torn))
            found.extents += [Extent(0, 0, end - found.next)] if end > found.next else []
            found.next = end
            break
        text = f"{what}; {at - position} bytes are skipped"
        found.findings.append(Finding(found.path, position, text, found.next, block.first))
        if block.first > found.next:
            found.extents.append(Extent(0, 0, block.first - found.next))
        position, found.next = at, block.first
    end, so = limit, f"the next segment begins with {limit}"
    if end is None:
        end = _known_end(found, found.header.journal if found.header else None)
        so = f"its index knows messages up to {end - 1}"
    if found.next < end:
        text = f"it ends before message {found.next}, but {so}"
        found.findings.append(Finding(found.path, size, text, found.next, end))
        found.extents.append(Extent(0, 0, end - found.next))
        found.next = end


def _known_end(found: Examined, journal: uuid.UUID | None) -> int:
    """Return the number after the last message that a last segment had when it was closed.

    Its index says so, also if less of it is left now; without one nothing is known.
    """
    index = load(found.path, None)
    if index is None or journal not in (index.journal, None):
        return found.next
    return max(found.next, index.next)


def _fault(
    view: memoryview, position: int, block: Block | None, mark: int, number: int, limit: int | None
) -> str:
    """Return why no right block begins at ``position``, "" if one does."""
    if block is None:
        short = len(view) - position < BLOCK_HEADER_LENGTH
        return "a block is cut short" if short else "no block begins here"
    if position + block.length > len(view):
        return "a block is cut short"
    if not is_whole(view, position, block):
        return "the CRC of a block is wrong"
    if block.segment != mark or block.flags & SELECTED:
        return "a block is of another segment"
    if block.first != number:
        return f"a block begins with message {block.first}, expected {number}"
    if limit is not None and block.next > limit:
        return f"a block has messages {block.first} to {block.next - 1}, the next segment {limit}"
    return block_fault(view, position, block)


def _resume(
    data: mmap.mmap | bytes,
    view: memoryview,
    position: int,
    mark: int,
    number: int,
    limit: int | None,
) -> tuple[int, Block | None]:
    """Return the next right block behind ``position`` that has later messages, and where it is."""
    while position := next_whole(data, position + 1, None):
        block = take_block(view, position)
        if (
            block is not None
            and block.first >= number
            and not _fault(view, position, block, mark, block.first, limit)
        ):
            return position, block
    return 0, None


def block_fault(view: memoryview, position: int, block: Block) -> str:
    """Return what is wrong within a whole block, "" if nothing is."""
    if block.flags & LOST:
        return ""
    records, messages = block.records, block.messages
    columns = position + BLOCK_HEADER_LENGTH
    times = take_column("Q", view, columns, records)
    counts = take_column("I", view, columns + 12 * records, records)
    client_lengths = take_column("H", view, columns + 16 * records, records)
    encodings = take_column("B", view, columns + 19 * records, records)
    lengths = take_column("I", view, columns + 20 * records, messages)
    body = columns + 20 * records + LENGTH_BYTES * messages + block.clients_length
    if sum(counts) != messages or not all(counts):
        return "the messages of a block's records do not add up"
    if sum(client_lengths) != block.clients_length or max(times) != block.latest_ns:
        return "the client names or the times of a block do not add up"
    if sum(lengths) != position + block.length - body:
        return "the lengths of a block's messages do not add up"
    number = 0
    for count, encoding in zip(counts, encodings, strict=True):
        if encoding not in (PACKETS, WITH_PROPERTIES):
            return f"encoding {encoding} is not known"
        for length in lengths[number : number + count]:
            end = body + length
            if encoding == WITH_PROPERTIES and length >= _PROPERTIES.size:
                body += _PROPERTIES.size + int(_PROPERTIES.unpack_from(view, body)[0])
            if end - body < _PACKET.size:
                return "a message is cut short"
            _, topic_length, body_length = _PACKET.unpack_from(view, body)
            if body + _PACKET.size + topic_length + body_length != end:
                return "a message is not one publication"
            body = end
        number += count
    return ""


def _examine_index(found: Examined, size: int) -> None:
    path = index_path(found.path)
    if not path.exists() or found.findings or found.header is None:
        return
    index = load(found.path, size)
    if index is None or (index.next, index.journal) != (found.next, found.header.journal):
        text = "the index is not that of its segment; it is made anew when it is needed"
        found.findings.append(Finding(path, 0, text, torn=True))
