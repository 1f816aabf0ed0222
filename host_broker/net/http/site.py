"""The broker's HTTP: who may ask, and how mistakes are answered."""

import asyncio
import hashlib
import hmac
import ipaddress
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiohttp import web

from host_broker.net.http import journal as journal_pages
from host_broker.net.http.mistake import mistake
from host_broker.settings import HttpSettings

if TYPE_CHECKING:
    from host_broker.net.journal.writer import Journal

_log = logging.getLogger(__name__)
_STOP_S = 2.0  # for answers under way
_LARGEST_REQUEST_BYTES = 64 * 1024
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """The pages of a broker; every client gets a ``protocol`` of its own."""

    def __init__(self, runner: web.AppRunner, server: web.Server) -> None:
        self._runner = runner
        self._server = server

    @classmethod
    async def start(cls, settings: HttpSettings, journal: "Journal | None") -> "Site":
        """Prepare the pages about what there is."""
        routes = web.RouteTableDef()
        if journal is not None:
            routes = journal_pages.routes(journal.library, journal.groups)
        app = application(settings, routes)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_S)
        await runner.setup()
        assert runner.server is not None  # noqa: S101 - for mypy; setup has made it
        return cls(runner, runner.server)

    def protocol(self) -> asyncio.Protocol:
        """Return the asyncio protocol of a new client."""
        return self._server()

    async def close(self) -> None:
        """End all connections; answers under way have two seconds."""
        await self._runner.cleanup()


def application(settings: HttpSettings, routes: web.RouteTableDef) -> web.Application:
    """Return the pages ``routes`` for whoever may see them.

    With ``http.token`` that is who has the token (``Authorization: Bearer``). Without, it is who
    asks from this machine for a loopback address by number or as localhost: a page in a browser
    that had its own name point here is not let in.
    """

    @web.middleware
    async def guarded(request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            refusal = _refusal(request, settings.token)
            if refusal is not None:
                return refusal
            return await handler(request)
        except web.HTTPException as error:
            return mistake(error.status, error.reason)
        except Exception:
            _log.exception("HTTP: %s %s failed", request.method, request.path)
            return mistake(500, "the broker failed to answer; its log says why")

    app = web.Application(middlewares=[guarded], client_max_size=_LARGEST_REQUEST_BYTES)
    app.add_routes(routes)
    return app


def _refusal(request: web.Request, token: str) -> web.Response | None:
    if token:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        digest = hashlib.sha256(given.strip().encode()).hexdigest()
        expected = token.removeprefix("sha256:").lower()
        if scheme.lower() == "bearer" and hmac.compare_digest(digest, expected):
            return None
        answer = mistake(401, "send the token that belongs to http.token: Authorization: Bearer …")
        answer.headers["WWW-Authenticate"] = 'Bearer realm="motemq"'
        return answer
    if _is_loopback(request.remote or "") and _is_loopback(_host(request)):
        return None
    return mistake(
        403, "only from this machine, as 127.0.0.1 or localhost, unless http.token is set"
    )


def _host(request: web.Request) -> str:
    """Return the Host header without its port."""
    host = request.host
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
