"""Reading a segment from its beginning: where its blocks are, and where it ends.

That is done at a start for segments whose index is missing: the last ones of a broker that was
killed.
"""

import contextlib
import mmap
import uuid
from dataclasses import dataclass
from pathlib import Path

from host_broker.net.journal.format import (
    BLOCK_HEADER_LENGTH,
    BLOCK_MAGIC,
    HEADER_LENGTH,
    LOST,
    SELECTED,
    Block,
    HeaderFault,
    is_whole,
    segment_mark,
    take_block,
    take_column,
    unpack_header,
)
from host_broker.net.journal.index import SegmentIndex, load
from host_broker.net.journal.mark import PROTOCOL, is_mark


class JournalError(Exception):
    """The journal cannot be read or written; the text names the file and says what to do."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """A segment that was read: its index, the bytes behind its last whole block, what is wrong.

    ``fault`` is "" where nothing is, or where what is behind the last whole block may be torn: no
    whole block follows it. ``resumes_at``: the offset of the whole block that follows a fault.
    """

    index: SegmentIndex
    torn: int = 0
    fault: str = ""
    resumes_at: int = 0


def version_1(journal: Path) -> JournalError:
    """Return the error for a journal of the older format."""
    return JournalError(
        f"the journal in {journal} has format version 1, this program reads and writes version 2; "
        f"convert it once: motemq journal convert {journal} {journal}-2, then put {journal}-2 in "
        "its place"
    )


def corrupt(path: Path, offset: int, what: str) -> JournalError:
    """Return the error for a bad byte, in words a stranger can act on."""
    return JournalError(
        f"the journal is corrupt: {path}, offset {offset}: {what}; 'motemq journal check "
        f"{path.parent.parent}' says what is lost, 'motemq journal repair {path.parent.parent}' "
        "goes on without it"
    )


def scan(path: Path, partition: int, journal: uuid.UUID | None = None) -> Scanned | HeaderFault:
    """Read a whole segment. A fault of its header is returned if no whole block follows it.

    ``journal``: the UUID that it must have, None: any. Raises ``OSError``; ``JournalError`` for a
    journal of version 1, or a fault of the header of a segment that has blocks.
    """
    first = int(path.stem)
    with path.open("rb") as file:
        header = unpack_header(file.read(HEADER_LENGTH), partition, first)
        size = file.seek(0, 2)
        if isinstance(header, HeaderFault):
            if header.version == 1:
                raise version_1(path.parent.parent)
            if size > HEADER_LENGTH:
                with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
                    if header.version or next_whole(mapped, HEADER_LENGTH, None):
                        raise corrupt(path, 0, header.text)
            return header
        if journal is not None and header.journal != journal:
            raise JournalError(
                f"{path} is of another journal: its id is {header.journal}, that of "
                f"{path.parent.parent} is {journal}; take it away"
            )
        index = SegmentIndex(path, header.journal, partition, first, header.run)
        if size == HEADER_LENGTH:
            return Scanned(index)
        # CRC over a view of the mapped file: no copy of up to 64 MiB.
        with (
            mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            what = read_blocks(data, index)
            if not what:
                return Scanned(index)
            resumes_at = next_whole(mapped, index.end, index)
            return Scanned(index, size - index.end, what if resumes_at else "", resumes_at)


def read_blocks(data: memoryview, index: SegmentIndex) -> str:
    """Add to ``index`` the whole blocks from its end on; returns what is wrong with the next one.

    That is "" at the end of the data.
    """
    mark = segment_mark(bytes(data[:HEADER_LENGTH]))
    size = len(data)
    position = index.end
    while position < size:
        if size - position < BLOCK_HEADER_LENGTH:
            return "a block is cut short"
        block = take_block(data, position)
        if block is None:
            return "no block begins here"
        if block.segment != mark or block.flags & SELECTED:
            return "a block is of another segment"
        if position + block.length > size:
            return "a block is cut short"
        if not is_whole(data, position, block):
            return "the CRC of a block is wrong"
        if block.first != index.next:
            return f"a block begins with message {block.first}, expected {index.next}"
        name = newest_mark(data, position, block) if block.clients_length else ""
        index.add(block.length, block.messages, block.latest_ns, name)
        position += block.length
    return ""


def next_whole(data: mmap.mmap | bytes, position: int, index: SegmentIndex | None) -> int:
    """Return the offset of the next whole block from ``position`` on; 0 if there is none.

    ``index`` is of the segment, if that is known: the block is one of it.
    """
    mark = segment_mark(data[:HEADER_LENGTH]) if index is not None else 0
    with memoryview(data) as view:
        while (position := data.find(BLOCK_MAGIC, position)) >= 0:
            if len(data) - position < BLOCK_HEADER_LENGTH:
                break
            block = take_block(view, position)
            if (
                block is not None
                and (index is None or block.segment == mark)
                and is_whole(view, position, block)
            ):
                return position
            position += 1
    return 0


def newest_mark(data: memoryview, position: int, block: Block) -> str:
    """Return the newest name in a whole block that is a number's (``mark``); else ""."""
    if block.flags & LOST:
        return ""
    records = block.records
    lengths = take_column("H", data, position + BLOCK_HEADER_LENGTH + 16 * records, records)
    protocols_at = position + BLOCK_HEADER_LENGTH + 18 * records
    end = position + block.bodies
    for number in range(records - 1, -1, -1):
        if lengths[number] and data[protocols_at + number] == PROTOCOL:
            name = bytes(data[end - lengths[number] : end]).decode("utf-8", "replace")
            if is_mark(name):
                return name
        end -= lengths[number]
    return ""


def indexed(path: Path, partition: int, *, save: bool = True) -> SegmentIndex | None:
    """Return the index of a segment, made anew and saved where it is missing.

    None if the segment has not even a header. Raises ``JournalError`` for a header that is
    corrupt; ``OSError``.
    """
    size = path.stat().st_size
    index = load(path, size)
    if index is not None:
        return index
    found = scan(path, partition)
    if isinstance(found, HeaderFault):
        return None
    if save:
        with contextlib.suppress(OSError):  # it is slower without
            found.index.save(size)
    return found.index


def recover(folder: Path, partition: int, journal: uuid.UUID) -> tuple[int, str]:
    """Find where a partition goes on: the number of its next message, and what was torn ("").

    Indexes its last segment if that has no index. A torn tail, or a segment that is nothing but
    one, does not count. Raises ``JournalError``, naming file and offset; ``OSError``.
    """
    segments = sorted(folder.glob("[0-9]*.mjl"))
    if not segments:
        return 0, ""
    last = segments[-1]
    if not last.stem.isdecimal():
        raise JournalError(f"{last} has no message number for a name; take it away")
    size = last.stat().st_size
    index = load(last, size)
    if index is not None and index.journal == journal:
        return index.next, ""
    found = scan(last, partition, journal)
    if isinstance(found, HeaderFault):
        next_ = int(last.stem)
        lost = _lost(last, journal, next_)
        return next_, f"{last}: {found.text}; {lost or 'it has no message'}"
    if found.fault:
        raise corrupt(last, found.index.end, found.fault)
    wrong = torn_text(found)
    if lost := _lost(last, journal, found.index.next):
        wrong = f"{last}, offset {found.index.end}: {lost}"
    found.index.save(size)
    return found.index.next, wrong


def _lost(last: Path, journal: uuid.UUID, following: int) -> str:
    """Say which messages the last segment had when it was closed, and has no more; "" if none."""
    index = load(last, None)
    if index is None or index.journal != journal or index.next <= following:
        return ""
    lost = f"messages {following} to {index.next - 1}, which were in it, are lost"
    return f"{lost}; their numbers are given again"


def torn_text(found: Scanned) -> str:
    """Say what is behind the last whole block of a segment; "" if there is nothing."""
    if not found.torn:
        return ""
    index = found.index
    text = f"{index.path}, offset {index.end}: the last {found.torn} bytes were never whole"
    with index.path.open("rb") as file:
        file.seek(index.end)
        head = file.read(BLOCK_HEADER_LENGTH)
    block = take_block(head, 0) if len(head) == BLOCK_HEADER_LENGTH else None
    if block is not None and block.first == index.next:
        text += f" (messages {block.first} to {block.next - 1})"
    return f"{text}; message {index.next} is the next one"
