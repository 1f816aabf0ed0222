"""Who asks by HTTP, and whether that may be done."""

import base64
import binascii
import hmac
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from aiohttp import web

from host_broker.access.access import Accepted, Access, Peer, Refused, Undecided
from host_broker.access.principal import Principal
from host_broker.access.rules import Action
from host_broker.access.sessions import LoginSession, cookie_token
from host_broker.access.web import is_token
from host_broker.net.access.passwords import PasswordChecks
from host_broker.net.access.peers import peer_of
from host_broker.net.http.mistake import mistake
from host_broker.outputs import Denial
from host_broker.stats import Stats

PRINCIPAL = web.RequestKey("principal", Principal)  # under which a request has it
_CHALLENGE = 'Bearer realm="motemq", Basic realm="motemq", charset="UTF-8"'
_SAY_WHO = "say who you are: Authorization: Bearer TOKEN, or Basic with name and password"
_FOR_PAGES = 'Bearer realm="motemq"'  # a challenge of which a browser asks its user nothing
_TOKEN = Principal("http.token", "token")
_CSRF = "X-CSRF-Token"
_CHANGES_NOTHING = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class _NotLoggedIn:
    """Why a login is refused, as the log says it, and what is answered."""

    reason: str
    answer: web.Response


class HttpAccess:
    """Asks the broker's users and rights on behalf of requests."""

    def __init__(
        self,
        access: Access,
        passwords: PasswordChecks,
        stats: Stats,
        denied: Callable[[Denial], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        token: Callable[[], str] = str,
    ) -> None:
        """``denied`` is told what somebody may not do; ``token`` returns ``http.token``."""
        self._access = access
        self._token = token
        self._passwords = passwords
        self._stats = stats
        self._denied = denied
        self._clock = clock

    @property
    def is_open(self) -> bool:
        """Whether nobody needs to say who it is."""
        return self._access.is_open

    @property
    def asks_for_token(self) -> bool:
        """Whether ``http.token`` is what says who may ask."""
        return self._access.is_open and bool(self._token())

    def session(self, request: web.Request) -> LoginSession | None:
        """Return the session of the request's cookie; ``Authorization`` counts more than that."""
        if "Authorization" in request.headers:
            return None
        return self._access.sessions.find(_cookie(request), self._clock())

    def forged(self, request: web.Request, session: LoginSession | None) -> web.Response | None:
        """Return the answer to who changes something with a cookie that a browser has added, and
        does not say what only our page can know."""
        if session is None or request.method in _CHANGES_NOTHING:
            return None
        said = request.headers.get(_CSRF, "").encode(errors="surrogateescape")
        if hmac.compare_digest(said, session.csrf.encode()):
            return None
        return mistake(403, f"with a session's cookie, send the header {_CSRF} too")

    async def known(self, request: web.Request) -> dict[str, object]:
        """Say who asks, and what there is to log in with, if that is not enough to be let in."""
        session = self.session(request)
        who = session.principal if session is not None else self._access.identify(_peer(request))
        let_in = session is not None or not self._token()
        if not self._access.is_open:
            let_in = bool(self._access.allows(who, "connect", "http"))
        login = "token" if self.asks_for_token else "" if self._access.is_open else "password"
        return {
            "let_in": let_in,
            "login": login,
            "principal": who.name if who.is_known else "",
            "csrf": session.csrf if session is not None else "",
        }

    async def begin_session(
        self, request: web.Request, user: str, secret: str, token: str, csrf: str
    ) -> web.Response | None:
        """Log somebody in, who is known by ``token`` from then on; the answer if that is wrong."""
        peer = _peer(request)
        found = await self._proved(user, secret, peer)
        if isinstance(found, _NotLoggedIn):
            self._refuse(self._access.identify(peer), "connect", f"by HTTP: {found.reason}")
            found.answer.headers.popall("WWW-Authenticate", None)
            return found.answer
        decision = self._access.allows(found, "connect", "http")
        if not decision:
            why = decision.rule or decision.reason
            self._refuse(found, "connect", f"by HTTP: {why}")
            return mistake(403, f"{found.name!r} may not connect by HTTP: {why}")
        self.end_session(request)
        proof = self._token() if self._access.is_open else self._access.proof_of(found)
        self._access.sessions.begin(token, csrf, found, proof, self._clock())
        return None

    def end_session(self, request: web.Request) -> None:
        """Log out whoever the request's cookie is of."""
        self._access.sessions.end(_cookie(request))

    async def principal(
        self, request: web.Request, session: LoginSession | None
    ) -> Principal | web.Response:
        """Return who asks; an answer with why nobody may ask so."""
        peer = _peer(request)
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        who = session.principal if session is not None else self._access.identify(peer)
        if self._access.is_open:
            if scheme.lower() == "bearer":
                return replace(_TOKEN, address=peer.address)
            return who
        if scheme:
            found = await self._logged_in(scheme.lower(), given.strip(), peer)
            if isinstance(found, _NotLoggedIn):
                self._refuse(who, "connect", f"by HTTP: {found.reason}")
                return found.answer
            who = found
        decision = self._access.allows(who, "connect", "http")
        if decision:
            return who
        self._refuse(who, "connect", f"by HTTP: {decision.rule or decision.reason}")
        if not who.is_known:
            # Asked by our page, a browser would ask its user in a window of its own.
            return _challenge(_SAY_WHO, _FOR_PAGES if "Sec-Fetch-Site" in request.headers else "")
        return mistake(
            403, f"{who.name!r} may not connect by HTTP: {decision.rule or decision.reason}"
        )

    def refusal(
        self, request: web.Request, action: Action, path: bytes | str
    ) -> web.Response | None:
        """Return the answer to who may not do that; None: it may."""
        who = request[PRINCIPAL]
        decision = self._access.allows(who, action, path)
        if decision:
            return None
        if isinstance(path, bytes):
            path = path.decode(errors="replace")
        why = decision.rule or decision.reason
        self._refuse(who, action, f"{path!r}: {why}")
        return mistake(403, f"{who.name!r} may not {action} {path!r}: {why}")

    def _refuse(self, who: Principal, action: Action, where: str) -> None:
        self._stats.discard("http", f"access.{action}")
        self._denied(Denial(str(who), action, where))

    async def _logged_in(self, scheme: str, given: str, peer: Peer) -> Principal | _NotLoggedIn:
        if scheme == "bearer":
            return _judged(self._access.log_in_by_token(given, peer.address, self._clock()))
        if scheme != "basic":
            return _NotLoggedIn("it says neither Bearer nor Basic", _challenge(_SAY_WHO))
        try:
            text = base64.b64decode(given, validate=True).decode()
        except (binascii.Error, ValueError):
            text = "this is no Basic authorization: base64 of NAME:PASSWORD in UTF-8"
            return _NotLoggedIn(text, _challenge(text))
        name, _, secret = text.partition(":")
        return await self._by_name(name, secret, peer)

    async def _proved(self, user: str, secret: str, peer: Peer) -> Principal | _NotLoggedIn:
        """Judge what somebody has typed: a user's name and secret, or a token alone."""
        now, address = self._clock(), peer.address
        if self.asks_for_token:
            backoff = self._access.backoff
            wait_s = backoff.wait_s(address, _TOKEN.name, now)
            if wait_s:
                reason = f"{address} has to wait {wait_s:.1f} s after failed logins"
                return _judged(Refused(reason, wait_s))
            if is_token(secret, self._token()):
                return replace(_TOKEN, address=address)
            backoff.failed(address, _TOKEN.name, now)
            return _judged(Refused(f"a wrong http.token from {address}"))
        if not user and not self._access.is_open:
            return _judged(self._access.log_in_by_token(secret, address, now))
        return await self._by_name(user, secret, peer)

    async def _by_name(self, name: str, secret: str, peer: Peer) -> Principal | _NotLoggedIn:
        asked = self._access.log_in(name, secret, peer.address, self._clock())
        if isinstance(asked, Undecided):
            right = await self._passwords.check(asked.encoded, asked.secret)
            if right is None:
                text = "too many logins wait (access.max_pending_logins)"
                return _NotLoggedIn(text, _busy(text, 1.0))
            asked = self._access.settle(asked, right, peer.address, self._clock())
        return _judged(asked)


def _judged(verdict: Accepted | Refused) -> Principal | _NotLoggedIn:
    if isinstance(verdict, Accepted):
        return verdict.principal
    if verdict.wait_s:
        answer = _busy("wait after failed logins", verdict.wait_s)
    else:
        answer = _challenge("this is nobody's token, or not the user's password")
    return _NotLoggedIn(verdict.reason, answer)


def _cookie(request: web.Request) -> str:
    """Return the secret in the request's cookie, "" if it has none."""
    tls = request.scheme == "https"
    return cookie_token(request.headers.get("Cookie", ""), request.host, tls=tls)


def _peer(request: web.Request) -> Peer:
    transport = request.transport
    if transport is None or transport.get_extra_info("socket") is None:
        return Peer(loopback=False)
    return peer_of(transport)


def _challenge(text: str, challenge: str = "") -> web.Response:
    answer = mistake(401, text)
    answer.headers["WWW-Authenticate"] = challenge or _CHALLENGE
    return answer


def _busy(text: str, wait_s: float) -> web.Response:
    answer = mistake(429, text)
    answer.headers["Retry-After"] = str(math.ceil(wait_s))
    return answer
