"""Sessions of people who have logged in with a browser: pure, bounded, and by secrets' digests.

The edge draws the secrets: ``token`` is what the cookie carries, ``csrf`` what a page that may read
our answers says with whatever changes something.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf, nextafter

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


@dataclass(slots=True, eq=False)
class LoginSession:
    """Somebody who has logged in. ``proof``: what it was judged by; a session ends with it.
    ``connections``: those that last no longer than it does, by what they are to the broker."""

    principal: Principal
    csrf: str = field(repr=False)
    proof: object = field(repr=False)
    began: float
    used: float
    digest: bytes = field(repr=False)  # of the secret
    connections: set[int] = field(default_factory=set)
    is_over: bool = False


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
        # Is told of each that has ended.
        self.on_end: Callable[[LoginSession], None] = lambda session: None
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
            self._end(key, "http.max_sessions_of_one")
        while len(self._sessions) >= self._most:
            self._end(next(iter(self._sessions)), "http.max_sessions")
        digest = _digest(token)
        session = self._sessions[digest] = LoginSession(principal, csrf, proof, now, now, digest)
        return session

    def find(self, token: str, now: float) -> LoginSession | None:
        """Return the session of that secret, which has been used now; None if there is none."""
        if not token:
            return None
        # It is searched for by its digest, of which nobody can choose the beginning.
        session = self._sessions.get(_digest(token))
        return session if session is not None and self.use(session, now) else None

    def of_cookies(self, cookies: Iterable[str], now: float) -> LoginSession | None:
        """Return the session that one of the ``Cookie`` headers tells; None if they tell none."""
        found = (self.find(token, now) for token in cookie_tokens(cookies))
        return next((session for session in found if session is not None), None)

    def use(self, session: LoginSession, now: float) -> bool:
        """Note that a session is being used; False: it is over."""
        if not self.lasts(session, now):
            return False
        session.used = now
        self._sessions.move_to_end(session.digest)
        return True

    def lasts(self, session: LoginSession, now: float) -> bool:
        """Whether a session is not over yet; to ask is no use of it."""
        if not session.is_over and (limit := self._over(session, now)):
            self._end(session.digest, limit)
        return not session.is_over

    def ends_at(self, session: LoginSession) -> float:
        """Return the first moment at which a session is over that is not used any more."""
        return nextafter(min(session.used + self._idle_s, session.began + self._longest_s), inf)

    def end(self, token: str) -> None:
        """Log somebody out."""
        self._end(_digest(token))

    def keep(self, still: Callable[[LoginSession], bool]) -> None:
        """End those sessions of which ``still`` is not true."""
        for key in [key for key, each in self._sessions.items() if not still(each)]:
            self._end(key)

    def _end(self, key: bytes, limit: str = "") -> None:
        session = self._sessions.pop(key, None)
        if session is None:
            return
        session.is_over = True
        if limit:
            self.ended[limit] += 1
        self.on_end(session)

    def _forget_old(self, now: float) -> None:
        for session in list(self._sessions.values()):
            self.lasts(session, now)

    def _over(self, session: LoginSession, now: float) -> str:
        """Return the limit that ends a session, "" if it goes on."""
        if now < self.ends_at(session):
            return ""
        idle = now > session.used + self._idle_s
        return "http.session_s" if idle else "http.session_longest_s"


def _digest(token: str) -> bytes:
    return sha256(token.encode(errors="surrogateescape")).digest()
