"""The journal by HTTP (docs/journal.md, Reading from elsewhere)."""

import asyncio
import json

from aiohttp import web

from host_broker.net.http.mistake import mistake
from host_broker.net.journal.groups import GroupError, Groups
from host_broker.net.journal.library import Library, Piece, Trimmed
from host_broker.net.journal.scan import JournalError

_USUAL_BYTES = 4 * 1024 * 1024
_MOST_BYTES = 16 * 1024 * 1024  # of an answer, unless a single record is longer
_AT_ONCE = 8  # answers that are in memory
_LONGEST_WAIT_S = 30.0
_LOOK_AGAIN_S = 0.02


def routes(library: Library, groups: Groups) -> web.RouteTableDef:
    """Return the pages about the journal that ``library`` finds messages in."""
    table = web.RouteTableDef()
    turns = asyncio.Semaphore(_AT_ONCE)

    @table.get("/journal")
    async def overview(request: web.Request) -> web.StreamResponse:
        try:
            at_ns = _number(request, "at_ns", -1)
        except ValueError as error:
            return mistake(400, str(error))
        try:
            shelves = await asyncio.to_thread(library.shelves)
            partitions = []
            for shelf in shelves:
                facts = {
                    "partition": shelf.partition,
                    "first": shelf.first,
                    "next": shelf.next,
                    "bytes": shelf.size,
                }
                if at_ns >= 0:
                    facts["at"] = await asyncio.to_thread(library.since, shelf.partition, at_ns)
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
        return web.json_response({"partitions": partitions, "groups": kept})

    @table.get(r"/journal/{partition:\d+}")
    async def records(request: web.Request) -> web.StreamResponse:
        partition = int(request.match_info["partition"])
        try:
            sequence = _number(request, "from")
            most = min(_number(request, "max_bytes", _USUAL_BYTES), _MOST_BYTES)
            wait_s = min(_number(request, "wait_ms", 0) / 1000, _LONGEST_WAIT_S)
        except ValueError as error:
            return mistake(400, str(error))
        try:
            end = asyncio.get_running_loop().time() + wait_s
            while True:
                piece = await asyncio.to_thread(library.piece, partition, sequence, most)
                if piece is not None or asyncio.get_running_loop().time() >= end:
                    break
                await asyncio.sleep(_LOOK_AGAIN_S)
        except LookupError:
            return mistake(404, f"there is no partition {partition}")
        except Trimmed as trimmed:
            return mistake(
                410,
                f"messages {sequence} to {trimmed.first - 1} of partition {partition} are no "
                "longer kept (journal.max_age_s, journal.max_bytes, journal.trim_read)",
                first=trimmed.first,
            )
        except JournalError as error:
            return mistake(500, str(error))
        if piece is None:
            return web.Response(status=204)
        async with turns:
            try:
                body = await asyncio.to_thread(_read, piece)
            except FileNotFoundError:
                return mistake(410, "these messages were deleted just now", first=piece.next)
            headers = {
                "Journal-Run": str(piece.run),
                "Journal-First": str(piece.first),
                "Journal-Next": str(piece.next),
            }
            return web.Response(body=body, headers=headers, content_type="application/octet-stream")

    @table.put("/journal/groups/{name}")
    async def put(request: web.Request) -> web.StreamResponse:
        try:
            document = json.loads(await request.text())
            positions = {int(number): at for number, at in document["positions"].items()}
            if not all(type(at) is int and at >= 0 for at in positions.values()):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError):
            return mistake(400, 'the body must be JSON like {"positions": {"0": 1234, "1": 99}}')
        known = {shelf.partition for shelf in await asyncio.to_thread(library.shelves)}
        if not set(positions) <= known:
            return mistake(404, f"there are only partitions {sorted(known)}")
        try:
            await asyncio.to_thread(groups.put, request.match_info["name"], positions)
        except GroupError as error:
            return mistake(400, str(error))
        return web.Response(status=204)

    @table.delete("/journal/groups/{name}")
    async def delete(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if not await asyncio.to_thread(groups.delete, name):
            return mistake(404, f"there is no group {name}")
        return web.Response(status=204)

    return table


def _read(piece: Piece) -> bytes:
    with piece.path.open("rb") as file:
        file.seek(piece.start)
        return file.read(piece.end - piece.start)


def _number(request: web.Request, name: str, usual: int | None = None) -> int:
    text = request.query.get(name)
    if text is None and usual is not None:
        return usual
    if text is None or not text.isdecimal() or len(text) > 19:
        raise ValueError(f"'{name}' must be a whole number")
    return int(text)
