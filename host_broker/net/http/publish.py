"""Publishing by HTTP (docs/http.md)."""

import asyncio
import json
import re
from urllib.parse import unquote_to_bytes

from aiohttp import web

from host_broker.access.principal import Principal
from host_broker.bus.publication import HEADER
from host_broker.net.http.mistake import mistake
from host_broker.net.http.principals import PRINCIPAL, HttpAccess
from host_broker.net.http.publishing import Busy, Publishing
from host_broker.net.journal.numbered import name_of
from host_broker.net.storage.deduplicator import Deduplicator

PACKETS = "application/x-fmqp"  # FMQP publications back to back
_MOST_TOPICS = 10_000  # of one question
_PUBLISHER = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_NUMBER = re.compile(r"(\d{1,18})\.(\d{1,9})")
_RETAINED = 0x04
_COUNTED_AT_ONCE = 2000  # packets; then others have their turn


def routes(
    publishing: Publishing, deduplicator: Deduplicator, access: HttpAccess
) -> web.RouteTableDef:
    """Return the pages by which programs publish, each for whom ``access`` lets."""
    table = web.RouteTableDef()
    one_at_a_time = asyncio.Lock()

    async def published(request: web.Request, packets: bytes) -> web.Response:
        """Publish what the request may; once, if it has a number."""
        who = request[PRINCIPAL]
        publisher = request.headers.get("Publisher", "")
        if not publisher:
            return await _published(publishing, who, packets)
        number = _NUMBER.fullmatch(request.headers.get("Publisher-Number", ""))
        if not _PUBLISHER.fullmatch(publisher) or not number:
            return mistake(
                400,
                "Publisher is 1 to 128 letters, digits or any of ._:- and needs a "
                "Publisher-Number like 12.0",
            )
        at = int(number[1]), int(number[2])
        async with one_at_a_time:
            if deduplicator.known(publisher, at):
                return web.json_response({"published": 0, "known": True})
            # One that was not answered, for want of a disk, is not published again.
            answer = web.json_response({"published": 0, "known": True})
            try:
                if not deduplicator.is_published(publisher, at):
                    await asyncio.to_thread(deduplicator.begin)
                    answer = await _published(publishing, who, packets, name_of(publisher, at))
                    if answer.status != 200:
                        return answer
                    deduplicator.published(publisher, at)
                # In this order: what is remembered is not published again, so it must not be lost.
                await publishing.keep(sync=True)
                await asyncio.to_thread(deduplicator.remember, publisher, at)
            except Busy as busy:
                return _busy(busy)
            except OSError as error:
                return _busy(Busy(f"what is published cannot be noted: {error.strerror or error}"))
            return answer

    @table.post("/publish")
    async def packets(request: web.Request) -> web.StreamResponse:
        if request.content_type != PACKETS:
            return mistake(
                415, f"send FMQP publications as {PACKETS}, or one message to /publish/TOPIC"
            )
        body = await request.read()
        refusal = await _forbidden(access, request, body)
        if refusal is not None:
            return refusal
        return await published(request, body)

    @table.post("/publish/{topic:.+}")
    async def one(request: web.Request) -> web.StreamResponse:
        # Not match_info: that leaves an escape as it is where it stands for no UTF-8.
        topic = unquote_to_bytes(request.rel_url.raw_path.removeprefix("/publish/"))
        if len(topic) > 255:
            return mistake(400, f"the topic has {len(topic)} bytes, at most 255 are allowed")
        strange = [f"{name}={value}" for name, value in request.query.items() if name != "retain"]
        retain = request.query.getall("retain", ["false"])
        if strange or retain not in (["true"], ["false"]):
            said = strange[0] if strange else f"retain={retain[-1]}"
            return mistake(400, f"'{said}' means nothing here; there are retain=true and =false")
        refusal = access.refusal(request, "publish", topic.strip(b"/"))
        if refusal is not None:
            return refusal
        body = await request.read()
        flags = _RETAINED * (retain == ["true"])
        packet = bytes([flags, len(topic)]) + len(body).to_bytes(4, "big") + topic + body
        return await published(request, packet)

    @table.post("/wanted")
    async def wanted(request: web.Request) -> web.StreamResponse:
        try:
            topics = json.loads(await request.read())["topics"]
            if type(topics) is not list:
                raise TypeError
            asked = [topic.encode() for topic in topics]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return mistake(400, 'the body must be JSON like {"topics": ["home/lamp"]}')
        if len(topics) > _MOST_TOPICS:
            return mistake(400, f"{len(topics)} topics at once, at most {_MOST_TOPICS} are allowed")
        for topic in asked:
            refusal = access.refusal(request, "publish", topic.strip(b"/"))
            if refusal is not None:
                return refusal
        return web.json_response({"wanted": await publishing.wanted(asked)})

    @table.get("/stats")
    async def stats(request: web.Request) -> web.StreamResponse:
        refusal = access.refusal(request, "subscribe", "$/info/stats")
        if refusal is not None:
            return refusal
        return web.json_response(publishing.statistics())

    return table


async def _forbidden(
    access: HttpAccess, request: web.Request, packets: bytes
) -> web.Response | None:
    """Return the answer to who may not publish all of these packets; None: it may.

    What is no packet is told later.
    """
    if access.is_open:
        return None  # the broker discards the few that are not allowed
    asked: set[bytes] = set()
    at = count = 0
    while len(packets) - at >= HEADER.size:
        _, topic_length, body_length = HEADER.unpack_from(packets, at)
        topic = packets[at + HEADER.size : at + HEADER.size + topic_length]
        if topic not in asked:
            asked.add(topic)
            refusal = access.refusal(request, "publish", topic.strip(b"/"))
            if refusal is not None:
                return refusal
        at += HEADER.size + topic_length + body_length
        count += 1
        if not count % _COUNTED_AT_ONCE:
            await asyncio.sleep(0)
    return None


async def _published(
    publishing: Publishing, who: Principal, packets: bytes, name: str = ""
) -> web.Response:
    whole = await count_publications(packets)
    if whole is None:
        return mistake(400, "the body is not whole FMQP publications, with no flags but retained")
    try:
        published = await publishing.publish(packets, name, who)
        if not name:
            await publishing.keep()
    except Busy as busy:
        return _busy(busy)
    return web.json_response({"published": published, "discarded": whole - published})


def _busy(busy: Busy) -> web.Response:
    answer = mistake(503, f"{busy}; try again")
    answer.headers["Retry-After"] = "1"
    return answer


async def count_publications(packets: bytes) -> int | None:
    """Return how many publications these are; None if they are anything else.

    Who clears a retained message publishes nothing.
    """
    at = count = clearing = 0
    size = len(packets)
    while at < size:
        if size - at < HEADER.size:
            return None
        flags, topic_length, body_length = HEADER.unpack_from(packets, at)
        if flags not in (0, _RETAINED):
            return None
        at += HEADER.size + topic_length + body_length
        count += 1
        clearing += bool(flags and not body_length)
        if not count % _COUNTED_AT_ONCE:
            await asyncio.sleep(0)
    return count - clearing if at == size else None
