"""The journal by HTTP (docs/journal.md, Reading from elsewhere)."""

import asyncio
import contextlib
import json
import os
from dataclasses import dataclass, replace

from aiohttp import web

from host_broker.net.http.mistake import mistake
from host_broker.net.http.principals import HttpAccess
from host_broker.net.journal.groups import GroupError
from host_broker.net.journal.reader import Beyond, Selected, Slice, Trimmed
from host_broker.net.journal.scan import JournalError
from host_broker.net.journal.selection import Selection
from host_broker.net.journal.writer import Journal
from host_broker.net.storage.message_store import MessageStoreError

_USUAL_BYTES = 4 * 1024 * 1024
_MOST_BYTES = 16 * 1024 * 1024  # of an answer, unless a single block is longer
_LOOKED_AT_BYTES = 16 * 1024 * 1024  # for one answer with few topics
_CHUNK_BYTES = 256 * 1024  # of an answer that are in memory
_LOOKING_AT_ONCE = 2  # answers with few topics: they cost more than a copy
_MOST_PATTERNS = 100
_LONGEST_WAIT_S = 30.0
_SETTLE_S = 1.0  # a disk that takes longer is waited for no more


@dataclass(frozen=True, slots=True)
class _Question:
    """What a reader asks for: messages ``first`` to ``until`` - 1 of a partition."""

    partition: int
    first: int
    until: int | None
    most: int
    wait_s: float
    topics: tuple[str, ...]

    @classmethod
    def read(cls, request: web.Request) -> "_Question":
        """Read a request; ValueError says what is wrong with it."""
        first, until = _number(request, "from"), _number(request, "to", -1)
        if 0 <= until <= first:
            raise ValueError("'to' must be above 'from'")
        topics = tuple(request.query.getall("topics", ()))
        if len(topics) > _MOST_PATTERNS or not all(topics):
            raise ValueError(f"'topics' is a pattern, given at most {_MOST_PATTERNS} times")
        return cls(
            int(request.match_info["partition"]),
            first,
            until if until >= 0 else None,
            min(_number(request, "max_bytes", _USUAL_BYTES), _MOST_BYTES),
            min(_number(request, "wait_ms", 0) / 1000, _LONGEST_WAIT_S),
            topics,
        )


def routes(journal: Journal, access: HttpAccess) -> web.RouteTableDef:
    """Return the pages about a journal, each for whom ``access`` lets."""
    table = web.RouteTableDef()
    reader, groups = journal.reader, journal.groups
    looking = asyncio.Semaphore(_LOOKING_AT_ONCE)

    async def settle() -> None:
        """Whoever was told that something is kept finds it here."""
        with contextlib.suppress(TimeoutError, JournalError, MessageStoreError):
            await journal.settle(_SETTLE_S)

    def other_journal(request: web.Request) -> web.Response | None:
        wanted = request.query.get("id", "")
        if wanted in ("", str(reader.identity)):
            return None
        return mistake(409, f"this is journal {reader.identity}, not {wanted}")

    @table.get("/journal")
    async def overview(request: web.Request) -> web.StreamResponse:
        refusal = access.refusal(request, "journal", "groups")
        if refusal is not None:
            return refusal
        try:
            at_ns = _number(request, "at_ns", -1)
        except ValueError as error:
            return mistake(400, str(error))
        await settle()
        try:
            states = await asyncio.to_thread(reader.partitions)
            partitions = []
            for state in states:
                facts = {
                    "partition": state.partition,
                    "first": state.first,
                    "next": state.next,
                    "bytes": state.size,
                }
                if at_ns >= 0:
                    facts["at"] = await asyncio.to_thread(reader.since, state.partition, at_ns)
                partitions.append(facts)
        except JournalError as error:
            return mistake(500, str(error))
        kept = {
            name: {
                "positions": {str(number): at for number, at in group.positions.items()},
                "said_ns": group.said_ns,
            }
            for name, group in groups.all().items()
        }
        document = {"id": str(reader.identity), "partitions": partitions, "groups": kept}
        return web.json_response(document)

    async def look(question: _Question) -> Slice | Selected | None:
        """Return what there is of what was asked for; None if all of it is yet to come."""
        most = _LOOKED_AT_BYTES if question.topics else question.most
        found = await asyncio.to_thread(
            reader.slice, question.partition, question.first, most, question.until
        )
        if found is None or not question.topics:
            return found
        async with looking:
            selection = Selection(question.topics)
            return await asyncio.to_thread(reader.select, found, selection, question.most)

    async def wait(question: _Question) -> tuple[Slice | Selected | None, int]:
        """Wait for what was asked for; also returns up to which number there is nothing of it."""
        loop = asyncio.get_running_loop()
        end = loop.time() + question.wait_s
        while True:
            grown = journal.grown()  # before looking
            found = await look(question)
            none_yet = isinstance(found, Selected) and not found.blocks and question.wait_s
            if none_yet and found and found.next < (question.until or found.next + 1):
                question = replace(question, first=found.next)
                if loop.time() < end:
                    continue
                return None, question.first
            left_s = end - loop.time()
            if found is not None or left_s <= 0:
                return found, question.first
            await asyncio.wait([grown], timeout=left_s)

    @table.get(r"/journal/{partition:\d{1,9}}", allow_head=False)  # it would have a body
    async def blocks(request: web.Request) -> web.StreamResponse:
        refusal = other_journal(request)
        if refusal is not None:
            return refusal
        try:
            question = _Question.read(request)
        except ValueError as error:
            return mistake(400, str(error))
        for topics in question.topics or ("**",):
            refusal = access.refusal(request, "journal", topics)
            if refusal is not None:
                return refusal
        partition, number = question.partition, question.first
        await settle()
        try:
            found, number = await wait(question)
            if isinstance(found, Slice):
                file = await asyncio.to_thread(reader.open, found)
        except LookupError:
            return mistake(404, f"there is no partition {partition}")
        except Trimmed as trimmed:
            return mistake(
                410,
                f"messages {number} to {trimmed.first - 1} of partition {partition} are no "
                "longer kept (journal.max_age_s, journal.max_bytes, journal.trim_read)",
                first=trimmed.first,
            )
        except Beyond as beyond:
            return mistake(
                416,
                f"partition {partition} has no message {number}: the next will be {beyond.next}. A "
                "reader that has come further has read another journal, or this one before it was "
                "restored from a backup",
                next=beyond.next,
            )
        except JournalError as error:
            return mistake(500, str(error))
        headers = {"Journal-Id": str(reader.identity), "Content-Type": "application/octet-stream"}
        if found is None:
            del headers["Content-Type"]
            return web.Response(status=204, headers={**headers, "Journal-Next": str(number)})
        headers["Journal-Run"] = str(found.run)
        headers["Journal-First"] = str(found.first)
        headers["Journal-Next"] = str(found.next)
        if isinstance(found, Selected):
            return web.Response(body=found.blocks, headers=headers)
        try:
            return await _sent(request, file, found, headers)
        finally:
            os.close(file)

    @table.put("/journal/groups/{name}")
    async def put(request: web.Request) -> web.StreamResponse:
        group = f"groups/{request.match_info['name']}"
        refusal = access.refusal(request, "journal", group) or other_journal(request)
        if refusal is not None:
            return refusal
        try:
            document = json.loads(await request.read())
            positions = {int(number): at for number, at in document["positions"].items()}
            if not all(type(at) is int and at >= 0 for at in positions.values()):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return mistake(400, 'the body must be JSON like {"positions": {"0": 1234, "1": 99}}')
        await settle()  # a partition is there from its first message on
        known = {state.partition for state in await asyncio.to_thread(reader.partitions)}
        if not set(positions) <= known:
            return mistake(404, f"there are only partitions {sorted(known)}")
        try:
            await asyncio.to_thread(groups.put, request.match_info["name"], positions)
        except GroupError as error:
            return mistake(400, str(error))
        except OSError as error:
            return _not_noted(error)
        return web.Response(status=204)

    @table.delete("/journal/groups/{name}")
    async def delete(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        refusal = access.refusal(request, "journal", f"groups/{name}")
        if refusal is not None:
            return refusal
        try:
            if not await asyncio.to_thread(groups.delete, name):
                return mistake(404, f"there is no group {name}")
        except OSError as error:
            return _not_noted(error)
        return web.Response(status=204)

    return table


def _not_noted(error: OSError) -> web.Response:
    return mistake(503, f"it cannot be noted: {error.strerror or error}; try again")


async def _sent(
    request: web.Request, file: int, found: Slice, headers: dict[str, str]
) -> web.StreamResponse:
    """Send a slice as fast as the reader takes it, with little of it in memory."""
    response = web.StreamResponse(headers=headers)
    response.content_length = found.end - found.start
    with contextlib.suppress(ConnectionError):  # a reader that has gone
        await response.prepare(request)
        for at in range(found.start, found.end, _CHUNK_BYTES):
            size = min(_CHUNK_BYTES, found.end - at)
            await response.write(await asyncio.to_thread(os.pread, file, size, at))
        await response.write_eof()
    return response


def _number(request: web.Request, name: str, usual: int | None = None) -> int:
    text = request.query.get(name)
    if text is None and usual is not None:
        return usual
    if text is None or not text.isdecimal() or len(text) > 19:
        raise ValueError(f"'{name}' must be a whole number")
    return int(text)
