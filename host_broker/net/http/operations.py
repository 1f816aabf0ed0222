"""Whether the broker is well, and its counts: for whoever runs it, and their tools."""

import asyncio
from collections.abc import Callable, Sequence

from aiohttp import web

from host_broker.net.http.principals import HttpAccess
from host_broker.net.metrics import Figures, spelled


def routes(
    figures: Figures, troubles: Callable[[], Sequence[str]], access: HttpAccess
) -> web.RouteTableDef:
    """Return the pages for operation; ``troubles``: what keeps the broker from doing its part.

    Whoever may connect by HTTP may see the first one; the second is for those ``access`` lets.
    """
    table = web.RouteTableDef()

    @table.get("/healthz")
    async def healthz(request: web.Request) -> web.StreamResponse:
        found = list(troubles())
        document = {
            "status": "troubled" if found else "ok",
            "troubles": found,
            "up_s": round(figures.up_s, 3),
        }
        headers = {"Cache-Control": "no-store"}
        return web.json_response(document, status=503 if found else 200, headers=headers)

    @table.get("/metrics")
    async def metrics(request: web.Request) -> web.StreamResponse:
        refusal = access.refusal(request, "subscribe", "$/info/metrics")
        if refusal is not None:
            return refusal
        # Taken here, spelled elsewhere: ten thousand queues are a long page.
        taken = figures.take()
        accept = request.headers.get("Accept", "")
        body, content_type = await asyncio.to_thread(spelled, taken, accept)
        return web.Response(body=body, headers={"Content-Type": content_type})

    return table
