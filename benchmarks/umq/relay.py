"""A broadcast over WebSocket with aiohttp: what one says, all hear who said ``hear``.

``python -m benchmarks.umq.relay PORT``. It knows no topics, keeps nothing, answers nothing, and
waits for its slowest listener. aiohttp's frames are compiled code.
"""

import sys

from aiohttp import WSMsgType, web

_LISTENERS = web.AppKey("listeners", set[web.WebSocketResponse])


async def _joined(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(compress=False)
    await socket.prepare(request)
    listeners = request.app[_LISTENERS]
    try:
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                continue
            if message.data == "hear":
                listeners.add(socket)
                await socket.send_str("heard")
                continue
            for listener in list(listeners):
                await listener.send_str(message.data)
    finally:
        listeners.discard(socket)
    return socket


def main(port: int) -> None:
    """Serve on a loopback port until killed."""
    app = web.Application()
    app[_LISTENERS] = set()
    app.router.add_get("/", _joined)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    main(int(sys.argv[1]))
