"""The pages that protocols bring (``ProtocolSpec.pages``), by HTTP."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

from host_broker.access.principal import Principal
from host_broker.net.asked import NotAnswered
from host_broker.net.http.mistake import mistake
from host_broker.net.http.principals import PRINCIPAL, HttpAccess
from host_broker.net.http.publishing import Busy, Publishing
from host_broker.net.server import Server
from host_broker.pages import Page, PageRequest
from host_broker.protocol import ProtocolSpec

_PROVED = ("password", "token", "certificate", "unix", "listener")  # who is known to be who it is


def routes(
    specs: Iterable[ProtocolSpec], server: Server, publishing: Publishing, access: HttpAccess
) -> web.RouteTableDef:
    """Return the pages of protocols; each request is a connection to the broker of its own."""
    table = web.RouteTableDef()
    for spec in specs:
        for page in spec.pages:
            for method in page.methods:
                handler = _handler(spec, page, server, publishing, access)
                table.route(method, page.path)(handler)
    return table


def _handler(
    spec: ProtocolSpec, page: Page, server: Server, publishing: Publishing, access: HttpAccess
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        if page.subscribe:
            refusal = access.refusal(request, "subscribe", page.subscribe)
            if refusal is not None:
                return refusal
        if page.publishes and publishing.is_full:
            return _busy(Busy())
        who = request[PRINCIPAL]
        asked = server.ask(spec, await _request_of(request, who, access), who)
        try:
            while server.is_suspended(asked) and not asked.is_answered:
                await asyncio.sleep(publishing.rest_s)
                server.proceed_internal(asked.connection)
            answer = await asked.answer()
            if page.publishes:
                await publishing.keep()
        except NotAnswered as error:
            return mistake(503, str(error))
        except Busy as busy:
            return _busy(busy)
        finally:
            server.end_asked(asked)
        response = web.Response(body=answer.body, status=answer.status)
        response.headers["Content-Type"] = answer.content_type
        if answer.close:
            response.force_close()
        return response

    return handle


async def _request_of(request: web.Request, who: Principal, access: HttpAccess) -> PageRequest:
    """Return the request as the protocol is told of it; a body without a length is not read."""
    body = await request.read() if "Content-Length" in request.headers else None
    return PageRequest(
        request.method,
        request.path,
        dict(request.query),
        {name.decode("latin-1").lower(): value for name, value in request.raw_headers},
        body,
        who.name if not access.is_open and who.kind in _PROVED else "",
    )


def _busy(busy: Busy) -> web.Response:
    answer = mistake(503, f"{busy}; try again")
    answer.headers["Retry-After"] = "1"
    return answer
