"""The broker's HTTP: who may ask, and how mistakes are answered."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from host_broker.access.web import Origin, bearer, is_foreign, is_misled, is_token
from host_broker.net.connection.tuning import is_local
from host_broker.net.http import backup as backup_pages
from host_broker.net.http import dashboard as dashboard_pages
from host_broker.net.http import journal as journal_pages
from host_broker.net.http import operations as operations_pages
from host_broker.net.http import protocol_pages
from host_broker.net.http import publish as publish_pages
from host_broker.net.http import rig as rig_pages
from host_broker.net.http.mistake import mistake
from host_broker.net.http.principals import PRINCIPAL, HttpAccess
from host_broker.net.http.publishing import Publishing
from host_broker.net.http.refused_log import quiet_logger
from host_broker.net.journal.snapshot import SnapshotFile
from host_broker.net.listening.slots import Evicted
from host_broker.net.live_settings import LiveSettings
from host_broker.net.metrics import Figures
from host_broker.net.server import Server
from host_broker.net.storage.deduplicator import Deduplicator
from host_broker.net.storage.protocol_tables import TableWatch
from host_broker.protocol import ProtocolSpec
from host_broker.settings import HttpSettings

if TYPE_CHECKING:
    from host_broker.net.journal.writer import Journal

_log = logging.getLogger(__name__)
_STOP_S = 2.0  # for answers under way
_PARSED_BYTES = 16 * 1024  # at once
_IDLE_S = 75.0  # between two requests of a client, and for the head of one
_LAST_ANSWERS_S = 5.0  # for those of a client that says no more
_LOOK_S = 0.02  # between looks at whether they are there
_LINGERING_S = 1.0  # for the rest of a request that was answered before its end
_LARGEST_REQUEST_BYTES = 8 * 1024 * 1024
# No browser is to show an answer as a page, or to give it to the page of another site.
_FOR_BROWSERS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """The pages of a broker; every client gets a ``protocol`` of its own."""

    def __init__(self, runner: web.AppRunner, server: web.Server, asking: set[object]) -> None:
        """``asking``: aiohttp's protocols of those clients who wait for an answer."""
        self._runner = runner
        self._server = server
        self._asking = asking
        self._evicted: set[object] = set()  # not closed yet

    @classmethod
    async def start(
        cls,
        live: LiveSettings,
        publishing: Publishing,
        deduplicator: Deduplicator,
        journal: "Journal | None",
        access: HttpAccess,
        figures: Figures,
        troubles: Callable[[], Sequence[str]],
        server: Server,
        specs: Iterable[ProtocolSpec],
        kept: TableWatch | None = None,
    ) -> "Site":
        """Prepare the pages about what there is, for whom ``access`` lets in.

        ``specs``: the protocols, some of which bring pages that ``server`` asks them for, and
        ``kept`` are their tables, which a backup has.
        """
        tables = [
            publish_pages.routes(publishing, deduplicator, access),
            operations_pages.routes(figures, troubles, access),
            backup_pages.routes(journal, access, lambda: _more_files(live, kept)),
            protocol_pages.routes(specs, server, publishing, access),
            dashboard_pages.routes(access),
            rig_pages.routes(live, access),
        ]
        if journal is not None:
            tables.append(journal_pages.routes(journal, access))
        asking: set[object] = set()
        app = application(live, tables, asking, access, figures)
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=_STOP_S,
            keepalive_timeout=_IDLE_S,
            lingering_time=_LINGERING_S,
            auto_decompress=False,  # a body is published as it came
            logger=quiet_logger(),
        )
        await runner.setup()
        assert runner.server is not None  # noqa: S101 - for mypy; setup has made it
        return cls(runner, runner.server, asking)

    def protocol(self) -> asyncio.Protocol:
        """Return the asyncio protocol of a new client."""
        return _Client(self._server())

    def evict_idle(self) -> Evicted:
        """End the client that is there for longest of those who ask nothing."""
        clients = self._server.connections
        self._evicted.intersection_update(clients)
        for client in clients:
            if client not in self._asking and client not in self._evicted:
                self._evicted.add(client)
                client.force_close()
                return "done"
        return "not yet" if self._evicted else "nobody"

    async def close(self) -> None:
        """End all connections; answers under way have two seconds."""
        await self._runner.cleanup()


class _Client(asyncio.Protocol):
    """Hands what a transport tells to aiohttp, up to the first bytes that are no request.

    aiohttp's error then repeats what the client has sent, in words that are many times as long, and
    keeps with its traceback all that a read brought: in a circle of references that only a full
    collection of garbage finds, which is rare here. So it is given little at once, its errors
    forget where they were, and what comes after the first one is dropped: it answers that one, and
    hangs up.
    """

    def __init__(self, handler: asyncio.Protocol) -> None:
        self._handler = handler
        self._refused = False
        self._transport: asyncio.BaseTransport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._handler.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._handler.connection_lost(exc)

    def eof_received(self) -> bool | None:
        """Answer what was asked for as a whole; aiohttp would hang up, as at any other end."""
        self._handler.eof_received()
        transport = self._transport
        if transport is None or transport.get_extra_info("sslcontext") is not None:
            return None  # asyncio ends TLS in any case
        loop = asyncio.get_running_loop()
        self._close_when_answered(loop, loop.time() + _LAST_ANSWERS_S)
        return True

    def _close_when_answered(self, loop: asyncio.AbstractEventLoop, latest: float) -> None:
        if self._is_answering() and loop.time() < latest:
            self._timer = loop.call_later(_LOOK_S, self._close_when_answered, loop, latest)
        elif self._transport is not None:
            self._transport.close()

    def _is_answering(self) -> bool:
        """Whether aiohttp is at work on requests, and on none of which the rest will never come."""
        waits = getattr(self._handler, "_waiter", None)  # for the next request
        if waits is not None and not waits.done():
            return False
        bodies = [body for _, body in getattr(self._handler, "_messages", ())]
        current = getattr(self._handler, "_current_request", None)
        if current is not None:
            bodies.append(current.content)
        return all(body.is_eof() for body in bodies)

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Have it parsed."""
        for start in range(0, len(data), _PARSED_BYTES):
            if self._refused:
                break
            self._handler.data_received(data[start : start + _PARSED_BYTES])
            # aiohttp has no other way to them. Were it called otherwise one day, memory would be as
            # it was; the test of hostile clients tells.
            for message, _ in getattr(self._handler, "_messages", ()):
                error = getattr(message, "exc", None)
                if isinstance(error, Exception):
                    error.__traceback__ = None
                    self._refused = True


def application(
    live: LiveSettings,
    tables: Iterable[web.RouteTableDef],
    asking: set[object],
    access: HttpAccess,
    figures: Figures | None = None,
) -> web.Application:
    """Return the pages of ``tables`` for whoever may see them.

    ``asking`` has aiohttp's protocol of every client that waits for an answer.

    With users (``access``) that is who may ``connect`` to ``http``; each page asks for more. With
    ``http.token`` that is who has the token (``Authorization: Bearer``). A session's cookie is as
    good, with its CSRF token where something is changed; the page on which somebody gets one is for
    all. Without either, it is who asks from this machine. Who does must ask for a loopback address
    by number, localhost, or a name of ``http.hosts``: a page in a browser that had its own name
    point here is not let in. No page of another site is, whatever it asks and whatever it knows: a
    browser may add what it has been told for us by itself.

    ``figures`` count what is answered and who is refused.
    """

    @web.middleware
    async def guarded(request: web.Request, handler: _Handler) -> web.StreamResponse:
        asking.add(request.protocol)
        try:
            session = access.session(request)
            is_public = dashboard_pages.is_public(request)
            refusal = _refusal(request, live.http, access, session is not None or is_public)
            if refusal is None:
                answer = access.forged(request, session)
                refusal = None if answer is None else _Refusal("no CSRF token", answer)
            if refusal is not None:
                if figures is not None:
                    figures.refuse(refusal.reason)
                return refusal.answer
            if is_public:  # it asks who it is itself
                return await handler(request)
            who = await access.principal(request, session)
            if isinstance(who, web.Response):
                if figures is not None:
                    figures.refuse("access.connect")
                return who
            request[PRINCIPAL] = who
            return await handler(request)
        except web.HTTPException as error:
            return mistake(error.status, error.reason)
        except ConnectionError:  # who asked has hung up, and hears nothing of this
            return mistake(400, "the connection ended before the request")
        except Exception:
            _log.exception("HTTP: %s %s failed", request.method, request.path)
            return mistake(500, "the broker failed to answer; its log says why")
        finally:
            asking.discard(request.protocol)

    async def prepared(request: web.Request, response: web.StreamResponse) -> None:
        for name, value in _FOR_BROWSERS.items():
            response.headers.setdefault(name, value)
        if figures is not None:
            figures.answered(request.method, response.status)

    app = web.Application(middlewares=[guarded], client_max_size=_LARGEST_REQUEST_BYTES)
    app.on_response_prepare.append(prepared)
    for routes in tables:
        app.add_routes(routes)
    return app


def _more_files(live: LiveSettings, tables: TableWatch | None) -> Iterator[SnapshotFile]:
    """Give what a backup has beside the journal's."""
    yield from _access_files(live)
    for path, content in tables.copies() if tables is not None else ():
        yield SnapshotFile(path.name, len(content), path.stat().st_mtime_ns, path, content)


def _access_files(live: LiveSettings) -> Iterator[SnapshotFile]:
    """Give the files of users and rules, by the names that they have in a backup."""
    for name, text in (("users.toml", live.access.users), ("acl.toml", live.access.rules)):
        if text:
            path = Path(text)
            content = path.read_bytes()
            yield SnapshotFile(name, len(content), path.stat().st_mtime_ns, path, content)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a request is not let in, as it is counted, and what is answered."""

    reason: str
    answer: web.Response


def _refusal(
    request: web.Request, settings: HttpSettings, access: HttpAccess, token_asked: bool
) -> _Refusal | None:
    """Return why a request is not let in; users, if there are some, are asked later.

    ``token_asked``: it needs no token, since it has shown one, or is about to.
    """
    origin = _origin(request)
    if is_foreign(origin) and not _is_link_to_the_page(request):
        text = "this is a request of a page of another site; the broker answers programs only"
        return _Refusal("foreign page", mistake(403, text))
    # Every browser says whom it asks. Who does not, as probes by HTTP/1.0 may, is none.
    if "Host" in request.headers and is_misled(origin, settings.hosts):
        text = "ask for 127.0.0.1 or localhost; what other names lead here says http.hosts"
        return _Refusal("foreign host", mistake(403, text))
    if not access.is_open:
        return None
    token = settings.token
    if token:
        given = bearer([request.headers.get("Authorization", "")])
        if token_asked or is_token(given, token):
            return None
        answer = mistake(401, "send the token that belongs to http.token: Authorization: Bearer …")
        answer.headers["WWW-Authenticate"] = 'Bearer realm="motemq"'
        return _Refusal("no token", answer)
    if origin.here:
        return None
    text = "without http.token, only programs on this machine may ask"
    return _Refusal("other machine", mistake(403, text))


def _is_link_to_the_page(request: web.Request) -> bool:
    """Whether somebody has followed a link to the dashboard. Nobody else sees the page then: no
    frame has it, no script can read it; and it is the same for everybody."""
    return (
        request.method == "GET"
        and request.path == "/"
        and "Origin" not in request.headers
        and request.headers.getall("Sec-Fetch-Mode", ()) == ["navigate"]
        and request.headers.getall("Sec-Fetch-Dest", ()) == ["document"]
    )


def _origin(request: web.Request) -> Origin:
    transport = request.transport
    sock = transport.get_extra_info("socket") if transport is not None else None
    return Origin(
        tuple(request.headers.getall("Origin", ())),
        tuple(request.headers.getall("Sec-Fetch-Site", ())),
        request.host,
        encrypted=request.scheme == "https",
        here=sock is not None and is_local(sock),
        unix=sock is not None and sock.family == socket.AF_UNIX,
    )
