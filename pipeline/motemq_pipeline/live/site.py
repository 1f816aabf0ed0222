"""The page by HTTP, on loopback unless told otherwise."""

import asyncio
import ipaddress
import json
import math
import signal
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any, TypeVar

from aiohttp import web
from plotly.offline import get_plotlyjs

from motemq_pipeline.errors import PipelineError
from motemq_pipeline.live.figure import figure
from motemq_pipeline.live.series import boards, ends, excerpt
from motemq_pipeline.storage import Storage

_Answer = TypeVar("_Answer")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_LONGEST = timedelta(days=366 * 50)
_HEADERS = {
    # Plotly writes styles into the page; nothing comes from elsewhere.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:",
    "X-Content-Type-Options": "nosniff",
}


def application(place: Storage, loopback: bool) -> web.Application:
    """Return the pages about the tables of a place.

    ``loopback``: only those are answered who call this machine by a name that is always its own,
    so a page from elsewhere whose name leads here gets nothing.
    """
    site = _Site(place)

    @web.middleware
    async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
        if loopback and not is_loopback(request.url.host or ""):
            raise web.HTTPForbidden(text="ask for 127.0.0.1 or localhost\n")
        try:
            answer = await handler(request)
        except PipelineError as error:
            answer = web.json_response({"error": str(error)}, status=503)
        except (ValueError, OverflowError) as error:
            answer = web.json_response({"error": str(error)}, status=400)
        answer.headers.update(_HEADERS)
        return answer

    app = web.Application(middlewares=[guard])
    app.add_routes(
        [
            web.get("/", _file("page.html", "text/html")),
            web.get("/page.js", _file("page.js", "text/javascript")),
            web.get(
                "/printable.js", _file("printable.js", "text/javascript", "host_broker.dashboard")
            ),
            web.get("/plotly.js", _text(get_plotlyjs(), "text/javascript")),
            web.get("/boards", site.boards),
            web.get("/figure", site.figure),
        ]
    )
    app.on_cleanup.append(site.close)
    return app


async def serve(place: Storage, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; ``announce`` gets the address. Raises ``PipelineError``."""
    runner = web.AppRunner(application(place, is_loopback(host)), access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise PipelineError(
                f"cannot listen at {host}:{port}: {error.strerror or error}"
            ) from error
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        name = f"[{host}]" if ":" in host else host
        announce(f"http://{name}:{runner.addresses[0][1]}/")
        await ended.wait()
    finally:
        await runner.cleanup()


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine and nothing else."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Site:
    """What the page asks for. The tables are read in one thread, one question after the other."""

    def __init__(self, place: Storage) -> None:
        self._place = place
        self._thread = ThreadPoolExecutor(1, "tables")

    async def boards(self, _: web.Request) -> web.Response:
        """All boards, with the time that there is of them."""
        found = await self._read(lambda: boards(self._place))
        return web.json_response(
            [[one.name, one.first_at.isoformat(), one.last_at.isoformat()] for one in found]
        )

    async def figure(self, request: web.Request) -> web.Response:
        """A board from a time to a time."""
        query = request.query
        if not (board := query.get("board")):
            raise ValueError("board=NAME is missing")
        asked = query.get("since", ""), query.get("until", ""), query.get("span", "")
        span = None if asked == ("", "", "all") else _span(*asked)
        dark = "dark" in query

        def drawn() -> dict[str, Any]:
            since, until = span or ends(self._place, board) or _span("", "", "1")
            shown = excerpt(self._place, board, since, until)
            return {
                "figure": json.loads(figure(shown, dark).to_json()),
                "table": shown.table,
                "sensors": len(shown.series),
                "points": sum(len(one.at) for one in shown.series),
                "alerts": len(shown.alerts),
                "whole": shown.whole,
            }

        return web.json_response(await self._read(drawn))

    async def close(self, _: web.Application) -> None:
        """Wait for the question that is asked."""
        self._thread.shutdown()

    async def _read(self, question: Callable[[], _Answer]) -> _Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, question)


def _span(since: str, until: str, span: str) -> tuple[datetime, datetime]:
    """Return from when to when; without ``until`` it is until now. Raises ``ValueError``."""
    end = _time("until", until) if until else datetime.now(UTC)
    if bool(since) == bool(span):
        raise ValueError("give since=TIME, or span=SECONDS, or span=all")
    if since:
        begin = _time("since", since)
    else:
        try:
            seconds = float(span)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds <= _LONGEST.total_seconds():
            raise ValueError(
                f"span must be a number of seconds up to {_LONGEST.total_seconds():.0f}, or all"
            )
        begin = end - timedelta(seconds=seconds)
    if not timedelta() < end - begin <= _LONGEST:
        raise ValueError("since must be before until, by 50 years at most")
    return begin, end


def _time(name: str, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name} must be a time such as 2026-01-31T12:00:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _file(name: str, kind: str, package: str = __package__) -> _Handler:
    return _text(files(package).joinpath(name).read_text(encoding="utf-8"), kind)


def _text(text: str, kind: str) -> _Handler:
    data = text.encode()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=data, content_type=kind, charset="utf-8")

    return answer
