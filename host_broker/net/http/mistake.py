"""Answers that say what is wrong."""

from aiohttp import web


def mistake(status: int, text: str, **more: object) -> web.Response:
    """Return an answer that says what is wrong."""
    return web.json_response({"error": text, **more}, status=status)
