"""Who asks by HTTP, and whether that may be done."""

import base64
import binascii
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from host_broker.access.access import Accepted, Access, Peer, Undecided
from host_broker.access.principal import Principal
from host_broker.access.rules import Action
from host_broker.net.access.passwords import PasswordChecks
from host_broker.net.access.peers import peer_of
from host_broker.net.http.mistake import mistake
from host_broker.outputs import Denial
from host_broker.stats import Stats

PRINCIPAL = web.RequestKey("principal", Principal)  # under which a request has it
_CHALLENGE = 'Bearer realm="motemq", Basic realm="motemq", charset="UTF-8"'
_SAY_WHO = "say who you are: Authorization: Bearer TOKEN, or Basic with name and password"


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
    ) -> None:
        """``denied`` is told what somebody may not do."""
        self._access = access
        self._passwords = passwords
        self._stats = stats
        self._denied = denied
        self._clock = clock

    @property
    def is_open(self) -> bool:
        """Whether nobody needs to say who it is."""
        return self._access.is_open

    async def principal(self, request: web.Request) -> Principal | web.Response:
        """Return who asks; an answer with why nobody may ask so."""
        peer = _peer(request)
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        who = self._access.identify(peer)
        if self._access.is_open:
            if scheme.lower() == "bearer":
                return Principal("http.token", "token", address=peer.address)
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
            return _challenge(_SAY_WHO)
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
        now = self._clock()
        if scheme == "bearer":
            verdict = self._access.log_in_by_token(given, peer.address, now)
        elif scheme == "basic":
            try:
                text = base64.b64decode(given, validate=True).decode()
            except (binascii.Error, ValueError):
                text = "this is no Basic authorization: base64 of NAME:PASSWORD in UTF-8"
                return _NotLoggedIn(text, _challenge(text))
            name, _, secret = text.partition(":")
            asked = self._access.log_in(name, secret, peer.address, now)
            if isinstance(asked, Undecided):
                right = await self._passwords.check(asked.encoded, asked.secret)
                if right is None:
                    text = "too many logins wait (access.max_pending_logins)"
                    return _NotLoggedIn(text, _busy(text, 1.0))
                asked = self._access.settle(asked, right, peer.address, self._clock())
            verdict = asked
        else:
            return _NotLoggedIn("it says neither Bearer nor Basic", _challenge(_SAY_WHO))
        if isinstance(verdict, Accepted):
            return verdict.principal
        if verdict.wait_s:
            answer = _busy("wait after failed logins", verdict.wait_s)
        else:
            answer = _challenge("this is nobody's token, or not the user's password")
        return _NotLoggedIn(verdict.reason, answer)


def _peer(request: web.Request) -> Peer:
    transport = request.transport
    if transport is None or transport.get_extra_info("socket") is None:
        return Peer(loopback=False)
    return peer_of(transport)


def _challenge(text: str) -> web.Response:
    answer = mistake(401, text)
    answer.headers["WWW-Authenticate"] = _CHALLENGE
    return answer


def _busy(text: str, wait_s: float) -> web.Response:
    answer = mistake(429, text)
    answer.headers["Retry-After"] = str(math.ceil(wait_s))
    return answer
