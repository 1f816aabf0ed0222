"""Who is at the other end of a connection or behind a request."""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

# How it is known who it is. "listener": the listener gives everybody its name (?principal=NAME).
# "internal": a part of this process. "claimed": it says so, and nothing was asked of it.
Kind = Literal[
    "anonymous", "claimed", "password", "token", "certificate", "unix", "listener", "internal"
]

# "lightmq/" + level + "/request/" + a tag must fit a topic's 255 bytes.
_MAX_LEVEL = 200
_ESCAPED = str.maketrans({"%": "%25", "/": "%2F", "\0": "%00"})


def own_level(name: str) -> bytes:
    """Return a name as one literal level of a path, different for different names.

    Nearly always the name itself. What a level cannot hold (``/``, NUL, being a wildcard or longer
    than 200 bytes) is escaped with ``%``, so that no name can listen to another's path.
    """
    if name == "*":
        return b"%2A"
    raw = name.translate(_ESCAPED).encode()
    if len(raw) <= _MAX_LEVEL:
        return raw
    # "%~" cannot come from escaping; 160 bits keep different names apart.
    mark = b"%~" + sha256(name.encode()).hexdigest()[:40].encode()
    kept = raw[: _MAX_LEVEL - len(mark)].decode(errors="ignore").encode()
    return kept + mark


@dataclass(frozen=True, slots=True)
class Principal:
    """One user, machine or program, as far as the ACL tells them apart.

    ``name`` is what rules call it: a user's name, ``uid:N`` of a unix socket's other end that is no
    user, ``anonymous``. ``client``: the name under which it is on the bus, if that is another one
    (the ClientID of a LightMQ client that is nobody's user). ``address`` is for logs only.
    """

    name: str
    kind: Kind
    client: str = ""
    address: str = field(default="", compare=False)

    @property
    def own(self) -> bytes:
        """The level that ``%c`` stands for in patterns; b"" if it has no name of its own."""
        if self.client:
            return own_level(self.client)
        return b"" if self.kind in ("anonymous", "internal") else own_level(self.name)

    @property
    def is_known(self) -> bool:
        """Whether it has proved who it is, or a listener answers for it."""
        return self.kind not in ("anonymous", "claimed")

    def __str__(self) -> str:
        where = f" at {self.address}" if self.address else ""
        name = f"{self.client!r} ({self.name})" if self.client else repr(self.name)
        return f"{name}{where}"


ANONYMOUS = Principal("anonymous", "anonymous")
INTERNAL = Principal("broker", "internal")  # the broker's own parts
