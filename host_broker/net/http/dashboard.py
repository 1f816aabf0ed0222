"""The dashboard: its page, its files, and logging in and out.

The page is the same for everybody and says nothing of the broker; what it shows it asks for, at
``/umq`` and here, with the session's cookie.
"""

import functools
import gzip
import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

import host_broker.dashboard
from host_broker.access.sessions import cookie_name
from host_broker.net.http.mistake import mistake
from host_broker.net.http.principals import HttpAccess

SESSION = "/dashboard/session"
_ASSETS = "/dashboard/assets"
_CLIENT = "umq.js"  # the JavaScript client; a package has it among the dashboard's files
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
# Scripts and styles are files of ours, and no text becomes a part of the page but as text.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_FOR_EVER = "public, max-age=31536000, immutable"
_LONGEST_LOGIN_BYTES = 4096
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class _Asset:
    """A file of the page, as it is sent."""

    content_type: str
    plain: bytes
    zipped: bytes

    def response(self, request: web.Request, headers: Mapping[str, str]) -> web.Response:
        """Return the answer with it, smaller for who can read that."""
        gzips = "gzip" in request.headers.get("Accept-Encoding", "")
        more = {"Content-Type": self.content_type, "Vary": "Accept-Encoding"}
        if gzips:
            more["Content-Encoding"] = "gzip"
        body = self.zipped if gzips else self.plain
        return web.Response(body=body, headers={**_HEADERS, **headers, **more})


@functools.cache
def _assets() -> tuple[str, Mapping[str, _Asset]]:
    """Return all files by name, and a digest of them, which is a part of their addresses."""
    folder = Path(host_broker.dashboard.__file__).parent
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in _TYPES
    }
    if _CLIENT not in files:  # a checkout has it once, in the folder of its own
        files[_CLIENT] = (folder.parents[1] / "client_js" / _CLIENT).read_bytes()
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{name} {len(data)} ".encode() + data)
    version = digest.hexdigest()[:16]
    page = files["index.html"].replace(b"ASSETS", f"{_ASSETS}/{version}".encode())
    return version, {
        name: _Asset(_TYPES[Path(name).suffix], data, gzip.compress(data, mtime=0))
        for name, data in {**files, "index.html": page}.items()
    }


def is_public(request: web.Request) -> bool:
    """Whether everybody may see a page who may ask at all: that to log in, and its files."""
    path = request.path
    return path in ("/", SESSION) or path.startswith(f"{_ASSETS}/")


def routes(access: HttpAccess) -> web.RouteTableDef:
    """Return the dashboard's page, its files, and the page of its session."""
    table = web.RouteTableDef()

    @table.get("/")
    async def page(request: web.Request) -> web.StreamResponse:
        version, assets = _assets()
        tag = f'"{version}"'
        headers = {"Cache-Control": "no-cache", "ETag": tag}
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={**_HEADERS, **headers})
        return assets["index.html"].response(request, headers)

    @table.get(_ASSETS + "/{version}/{name:.+}")
    async def asset(request: web.Request) -> web.StreamResponse:
        version, assets = _assets()
        found = assets.get(request.match_info["name"])
        if found is None or request.match_info["version"] != version:
            return mistake(404, "there is no such file; load the page again")
        return found.response(request, {"Cache-Control": _FOR_EVER})

    @table.get(SESSION)
    async def session(request: web.Request) -> web.StreamResponse:
        return _said(await access.known(request))

    @table.post(SESSION)
    async def log_in(request: web.Request) -> web.StreamResponse:
        # A form of another site can send no JSON; its Origin has been looked at already.
        if request.content_type != "application/json":
            return mistake(415, 'log in with application/json: {"user": "…", "secret": "…"}')
        if (request.content_length or _LONGEST_LOGIN_BYTES + 1) > _LONGEST_LOGIN_BYTES:
            return mistake(413, f"a login has at most {_LONGEST_LOGIN_BYTES} bytes, and a length")
        try:
            asked = json.loads(await request.read())
            user, secret = asked.get("user", ""), asked["secret"]
            if not isinstance(user, str) or not isinstance(secret, str):
                raise TypeError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return mistake(400, 'log in with {"user": "…", "secret": "…"}')
        token, csrf = (secrets.token_urlsafe(_SECRET_BYTES) for _ in range(2))
        refusal = await access.begin_session(request, user, secret, token, csrf)
        if refusal is not None:
            return refusal
        answer = _said({"csrf": csrf})
        tls = request.scheme == "https"
        answer.set_cookie(
            cookie_name(request.host, tls=tls),
            token,
            path="/",
            secure=tls,
            httponly=True,
            samesite="Strict",
        )
        return answer

    @table.delete(SESSION)
    async def log_out(request: web.Request) -> web.StreamResponse:
        access.end_session(request)
        answer = _said({})
        tls = request.scheme == "https"
        answer.del_cookie(
            cookie_name(request.host, tls=tls),
            path="/",
            secure=tls,
            httponly=True,
            samesite="Strict",
        )
        return answer

    return table


def _said(document: Mapping[str, object]) -> web.Response:
    return web.json_response(document, headers={"Cache-Control": "no-store"})
