"""Sessions of people who have logged in with a browser: pure, bounded, and by secrets' digests.

The edge draws the secrets: ``token`` is what the cookie carries, ``csrf`` what a page that may read
our answers says with whatever changes something.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256

from host_broker.access.principal import Principal

_COOKIE = "motemq_session"
_OF_THIS_HOST = "__Host-"
MOST_TOKENS = 16  # of a request that are looked at: brokers at ports of one host


def cookie_name(host: str, *, tls: bool) -> str:
    """Return the name of the session's cookie for requests with this ``Host`` header.

    All ports of a host share their cookies, so brokers at two ports need two names. By TLS the name
    has the prefix by which a browser lets nobody set it but this host, by TLS.
    """
    _, _, port = host.rpartition("]")[2].partition(":")
    name = f"{_COOKIE}_{port}" if port.isascii() and port.isdecimal() else _COOKIE
    return _OF_THIS_HOST + name if tls else name


def cookie_token(cookies: str, host: str, *, tls: bool) -> str:
    """Return the session's secret out of a ``Cookie`` header, "" if there is none."""
    wanted = cookie_name(host, tls=tls)
    return next((value for name, value in _cookies(cookies) if name == wanted), "")


def cookie_tokens(headers: Iterable[str]) -> list[str]:
    """Return all secrets of sessions in ``Cookie`` headers, of this broker and of others at the
    same host, at most ``MOST_TOKENS``."""
    found = [
        value
        for header in headers
        for name, value in _cookies(header)
        if name.removeprefix(_OF_THIS_HOST).startswith(_COOKIE)
    ]
    return found[:MOST_TOKENS]


def of_this_host(headers: Iterable[str]) -> list[str]:
    """Return ``Cookie`` headers with those only that a browser lets nobody set but this host, by
    TLS: another host of the domain, or somebody without TLS, may have set the others."""
    return [
        "; ".join(
            f"{name}={value}" for name, value in _cookies(each) if name.startswith(_OF_THIS_HOST)
        )
        for each in headers
    ]


def _cookies(header: str) -> Iterator[tuple[str, str]]:
    for each in header.split(";"):
        name, _, value = each.partition("=")
        yield name.strip(), value.strip()


@dataclass(slots=True)
class LoginSession:
    """Somebody who has logged in. ``proof``: what it was judged by; a session ends with it."""

    principal: Principal
    csrf: str = field(repr=False)
    proof: object = field(repr=False)
    began: float
    used: float


class LoginSessions:
    """All sessions of a broker.

    One ends when it is logged out, is not used for ``idle_s`` or is ``longest_s`` old. One more
    than there may be ends the one that was not used for longest, of its user or of all.
    """

    def __init__(
        self,
        most: int = 1000,
        most_of_one: int = 20,
        idle_s: float = 12 * 3600.0,
        longest_s: float = 7 * 24 * 3600.0,
    ) -> None:
        """``most``: of all users together; ``most_of_one``: of each."""
        self.ended: Counter[str] = Counter()  # by the limit that ended them
        # By the digest of the secret, the one that was used last at the end.
        self._sessions: OrderedDict[bytes, LoginSession] = OrderedDict()
        self.change(most, most_of_one, idle_s, longest_s)

    def __len__(self) -> int:
        return len(self._sessions)

    def change(self, most: int, most_of_one: int, idle_s: float, longest_s: float) -> None:
        """Have other limits from now on."""
        self._most, self._most_of_one = most, most_of_one
        self._idle_s, self._longest_s = idle_s, longest_s

    def begin(
        self, token: str, csrf: str, principal: Principal, proof: object, now: float
    ) -> LoginSession:
        """Take somebody in who has proved to be ``principal``."""
        self._forget_old(now)
        own = [key for key, each in self._sessions.items() if each.principal == principal]
        for key in own[: max(0, len(own) + 1 - self._most_of_one)]:
            del self._sessions[key]
            self.ended["http.max_sessions_of_one"] += 1
        while len(self._sessions) >= self._most:
            self._sessions.popitem(last=False)
            self.ended["http.max_sessions"] += 1
        session = LoginSession(principal, csrf, proof, now, now)
        self._sessions[_digest(token)] = session
        return session

    def find(self, token: str, now: float) -> LoginSession | None:
        """Return the session of that secret, which has been used now; None if there is none."""
        if not token:
            return None
        # It is searched for by its digest, of which nobody can choose the beginning.
        key = _digest(token)
        session = self._sessions.get(key)
        if session is None:
            return None
        if limit := self._over(session, now):
            del self._sessions[key]
            self.ended[limit] += 1
            return None
        session.used = now
        self._sessions.move_to_end(key)
        return session

    def principal(self, cookies: Iterable[str], now: float) -> Principal | None:
        """Return whose session one of the ``Cookie`` headers tells; None if they tell none."""
        for token in cookie_tokens(cookies):
            found = self.find(token, now)
            if found is not None:
                return found.principal
        return None

    def end(self, token: str) -> None:
        """Log somebody out."""
        self._sessions.pop(_digest(token), None)

    def keep(self, still: Callable[[LoginSession], bool]) -> None:
        """End those sessions of which ``still`` is not true."""
        for key in [key for key, each in self._sessions.items() if not still(each)]:
            del self._sessions[key]

    def _forget_old(self, now: float) -> None:
        over = {key: self._over(session, now) for key, session in self._sessions.items()}
        for key, limit in over.items():
            if limit:
                del self._sessions[key]
                self.ended[limit] += 1

    def _over(self, session: LoginSession, now: float) -> str:
        """Return the limit that ends a session, "" if it goes on."""
        if now - session.used > self._idle_s:
            return "http.session_s"
        return "http.session_longest_s" if now - session.began > self._longest_s else ""


def _digest(token: str) -> bytes:
    return sha256(token.encode(errors="surrogateescape")).digest()
