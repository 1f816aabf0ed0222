"""Users, rights and failed logins of one broker, together: what it asks at its doors."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from host_broker.access.backoff import LoginBackoff
from host_broker.access.principal import ANONYMOUS, Kind, Principal
from host_broker.access.rights import ClientPaths, Decision, Rights
from host_broker.access.rules import Action, Rules
from host_broker.access.sessions import LoginSessions
from host_broker.access.users import Users

# An unknown name must take as long as a known one: a hash that no password has, of the usual cost.
NOBODYS_HASH = (
    "$argon2id$v=19$m=65536,t=3,p=4$AAAAAAAAAAAAAAAAAAAAAA$"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)


@dataclass(frozen=True, slots=True)
class Peer:
    """What the edge knows of the other end of a connection.

    ``certificate``: the name in the client's certificate, which a CA of ours has signed. ``uid``:
    the account at the other end of a unix socket. ``listener``: the name that its listener gives
    (``?principal=NAME``). ``address`` is its host, or "uid N". "" and None: there is none.
    ``encrypted``: it is there by TLS. ``port`` is the one at the other end, 0: there is none.
    """

    address: str = ""
    loopback: bool = True
    certificate: str = ""
    uid: int | None = None
    listener: str = ""
    encrypted: bool = False
    port: int = 0


@dataclass(frozen=True, slots=True)
class Accepted:
    """The login is right."""

    principal: Principal


@dataclass(frozen=True, slots=True)
class Refused:
    """It is not; ``reason`` is for the log, and names no secret. ``wait_s``: try again then."""

    reason: str
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Undecided:
    """The edge must say whether ``secret`` has the hash ``encoded``, and call ``settle``."""

    name: str
    encoded: str = field(repr=False)
    secret: str = field(repr=False)


class Access:
    """``users`` None: nobody needs to say who it is, and ``rights`` has no rules."""

    def __init__(
        self,
        users: Users | None = None,
        rules: Rules | None = None,
        paths: Iterable[ClientPaths] = (),
        own_uid: int | None = None,
        backoff: LoginBackoff | None = None,
        sessions: LoginSessions | None = None,
    ) -> None:
        """``own_uid``: the broker's account, which administrates where there are no users.
        ``sessions``: of those who have logged in with a browser, whom cookies tell."""
        self._paths = tuple(paths)
        self._administrators = () if own_uid is None else (f"uid:{own_uid}",)
        self.backoff = backoff if backoff is not None else LoginBackoff()
        self.sessions = sessions if sessions is not None else LoginSessions()
        self.users: Users | None
        self.rights: Rights
        self.change(users, rules)

    @property
    def is_open(self) -> bool:
        """Whether nobody needs to say who it is."""
        return self.users is None

    def change(self, users: Users | None, rules: Rules | None) -> None:
        """Have other users and rules from now on."""
        self.users = users
        if users is not None and rules is None:
            rules = Rules()
        self.rights = Rights(
            rules if users is not None else None, self._paths, self._administrators
        )
        if users is not None:  # who has another password has to log in again
            self.sessions.keep(lambda each: each.proof == self.proof_of(each.principal))

    def proof_of(self, principal: Principal) -> object:
        """Return what a session of a user is judged by: all that is known of the user."""
        return self.users.get(principal.name) if self.users is not None else None

    def allows(
        self, principal: Principal, action: Action, path: bytes | str, *, prefix: bool = False
    ) -> Decision:
        """``Rights.allows``, and no for a user who has been removed."""
        if self._is_gone(principal):
            return Decision(False, f"the user {principal.name!r} is no more")
        return self.rights.allows(principal, action, path, prefix=prefix)

    def own(
        self, principal: Principal, action: Action, path: bytes, paths: ClientPaths
    ) -> Decision:
        """``Rights.own``, and no for a user who has been removed."""
        if self._is_gone(principal):
            return Decision(False, f"the user {principal.name!r} is no more")
        return self.rights.own(principal, action, path, paths)

    def identify(self, peer: Peer) -> Principal:
        """Say who a connection is before it says anything."""
        users = self.users
        if peer.certificate and (users is None or self._by_certificate(peer.certificate)):
            return Principal(peer.certificate, "certificate", address=peer.address)
        if peer.listener:
            return Principal(peer.listener, "listener", address=peer.address)
        if peer.uid is not None:
            name = users.of_uid(peer.uid) if users is not None else None
            return Principal(name or f"uid:{peer.uid}", "unix", address=peer.address)
        return Principal(ANONYMOUS.name, "anonymous", address=peer.address)

    def log_in(
        self, name: str, secret: str, address: str, now: float
    ) -> Accepted | Refused | Undecided:
        """Judge a name and a secret; the password of a user takes long, so the edge hashes it."""
        users = self.users
        if users is None:
            return Refused("there are no users (access.users)")
        wait_s = self.backoff.wait_s(address, name, now)
        if wait_s:
            reason = f"{name!r} at {address} has to wait {wait_s:.1f} s after failed logins"
            return Refused(reason, wait_s)
        if users.has_token(name, secret):
            return self._accepted(name, "token", address)
        if not users.password_of(name) and name in users:
            return self.settle(Undecided(name, "", ""), False, address, now)
        return Undecided(name, users.password_of(name) or NOBODYS_HASH, secret)

    def log_in_by_token(self, token: str, address: str, now: float) -> Accepted | Refused:
        """Judge a token that comes without a name."""
        users = self.users
        if users is None:
            return Refused("there are no users (access.users)")
        wait_s = self.backoff.wait_s(address, "", now)
        if wait_s:
            return Refused(f"{address} has to wait {wait_s:.1f} s after failed logins", wait_s)
        name = users.of_token(token)
        if name is None:
            self.backoff.failed(address, "", now)
            return Refused(f"nobody has the token that came from {address}")
        return self._accepted(name, "token", address)

    def settle(
        self, undecided: Undecided, right: bool, address: str, now: float
    ) -> Accepted | Refused:
        """Say what follows from what the edge has found out."""
        name = undecided.name
        # The user may have been removed, or have got another password, while it was hashed.
        if right and self.users is not None and self.users.password_of(name) == undecided.encoded:
            return self._accepted(name, "password", address)
        self.backoff.failed(address, name, now)
        return Refused(f"a wrong secret for {name!r} from {address}, or there is no such user")

    def _accepted(self, name: str, kind: Kind, address: str) -> Accepted:
        return Accepted(Principal(name, kind, address=address))

    def _by_certificate(self, name: str) -> bool:
        user = self.users.get(name) if self.users is not None else None
        return user is not None and user.certificate

    def _is_gone(self, principal: Principal) -> bool:
        proved = principal.kind in ("password", "token", "certificate")
        return proved and self.users is not None and principal.name not in self.users
