"""Who there is and how they prove it: the users file as data.

::

    [users.alice]
    password = "$argon2id$…"

    [users.kitchen]
    token = "sha256:…"

    [users.grafana]
    uid = 998

    [users.bridge]
    certificate = true

A user can have several of them. A token is a long random secret, of which a plain hash is kept: no
word list finds it, and it costs nothing to check. What a person remembers is a password.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest

MAX_NAME = 128  # bytes of UTF-8; a LightMQ ClientID is it, a colon and the secret, 255 at most
_TOKEN = re.compile("sha256:([0-9a-f]{64})")
_NOBODYS_TOKEN = f"sha256:{'-' * 64}"  # which is no token's hash
_ARGON2 = "$argon2id$"
_KEYS = ("password", "token", "uid", "certificate")


class UsersError(ValueError):
    """What is written is no list of users; the text says what is wrong where, and no secret."""


def name_fault(name: str) -> str:
    """Return what keeps a text from being a user's name, "" if nothing does."""
    if not 0 < len(name.encode(errors="replace")) <= MAX_NAME:
        return f"a name has 1 to {MAX_NAME} bytes"
    if not name.isprintable() or name != name.strip():
        return "a name is printable, without spaces at its ends"
    if ">" in name or "/" in name or name in ("*", "anonymous", "broker") or name[:4] == "uid:":
        return "a name has no > or /, and is not *, anonymous, broker or uid:…"
    return ""


def token_hash(token: str) -> str:
    """Return what is kept of a token; of what is no text, too: an HTTP header has any bytes."""
    return f"sha256:{sha256(token.encode(errors='surrogateescape')).hexdigest()}"


@dataclass(frozen=True, slots=True)
class User:
    """One user; ``password`` and ``token`` are hashes, "" = none."""

    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    uid: int | None = None
    certificate: bool = False

    @property
    def proofs(self) -> tuple[str, ...]:
        """How it can prove who it is."""
        has = {
            "password": self.password,
            "token": self.token,
            f"uid {self.uid}": self.uid is not None,
            "certificate": self.certificate,
        }
        return tuple(name for name, there in has.items() if there)


class Users:
    """All users of a broker."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = dict(users)
        self._by_uid = {user.uid: name for name, user in users.items() if user.uid is not None}
        self._by_token = {user.token: name for name, user in users.items() if user.token}

    @classmethod
    def read(cls, document: Mapping[str, object]) -> "Users":
        """Read a parsed TOML document. Raises ``UsersError``."""
        if set(document) - {"users"}:
            other = next(iter(set(document) - {"users"}))
            raise UsersError(f"unknown key {other!r}; there is [users.NAME]")
        table = document.get("users", {})
        if not isinstance(table, dict):
            raise UsersError("'users' must be a table: [users.NAME]")
        users = {name: _user(name, entry) for name, entry in table.items()}
        for what in ("uid", "token"):
            seen: dict[object, str] = {}
            for name, user in users.items():
                value = getattr(user, what)
                if value in (None, ""):
                    continue
                if value in seen:
                    raise UsersError(f"[users.{name}] and [users.{seen[value]}] have one {what}")
                seen[value] = name
        return cls(users)

    def __contains__(self, name: str) -> bool:
        return name in self._users

    def __len__(self) -> int:
        return len(self._users)

    def __iter__(self) -> Iterator[str]:
        return iter(self._users)

    def get(self, name: str) -> User | None:
        """Return a user, None if there is none of that name."""
        return self._users.get(name)

    def of_uid(self, uid: int) -> str | None:
        """Return the name of the user who is this one of the operating system."""
        return self._by_uid.get(uid)

    def of_token(self, token: str) -> str | None:
        """Return the name of the user with this token."""
        # It is searched for by its hash, of which nobody can choose the beginning.
        hashed = token_hash(token)
        name = self._by_token.get(hashed)
        kept = self._users[name].token if name is not None else _NOBODYS_TOKEN
        return name if compare_digest(kept, hashed) else None

    def has_token(self, name: str, token: str) -> bool:
        """Whether this is the token of that user."""
        user = self._users.get(name)
        kept = user.token if user is not None and user.token else _NOBODYS_TOKEN
        return compare_digest(kept, token_hash(token))

    def password_of(self, name: str) -> str:
        """Return the hash of a user's password, "" if there is none."""
        user = self._users.get(name)
        return user.password if user is not None else ""


def _user(name: str, entry: object) -> User:
    where = f"[users.{name}]"
    if fault := name_fault(name):
        raise UsersError(f"{where}: {fault}")
    if not isinstance(entry, dict):
        raise UsersError(f"{where} must be a table")
    for key in entry:
        if key not in _KEYS:
            raise UsersError(f"{where}: unknown key {key!r}; there are {', '.join(_KEYS)}")
    password, token = entry.get("password", ""), entry.get("token", "")
    uid, certificate = entry.get("uid"), entry.get("certificate", False)
    if not isinstance(password, str) or (password and not password.startswith(_ARGON2)):
        raise UsersError(f"{where}: password is no argon2id hash; 'motemq users passwd' makes one")
    if not isinstance(token, str) or (token and not _TOKEN.fullmatch(token)):
        raise UsersError(f"{where}: token must be sha256: and 64 hexadecimal digits, its hash")
    if uid is not None and (type(uid) is not int or not 0 <= uid < 1 << 32):
        raise UsersError(f"{where}: uid must be a whole number, that of an account of the system")
    if type(certificate) is not bool:
        raise UsersError(f"{where}: certificate must be true or false")
    return User(password, token, uid, certificate)
