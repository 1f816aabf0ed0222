"""What a request of a browser or a program says about where it is from: whether it is let in.

Of HTTP and of what begins as HTTP, WebSocket: pure, so that all who are asked judge alike.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request is from, and where it thinks it is.

    ``origins`` and ``sites`` are its headers ``Origin`` and ``Sec-Fetch-Site``, ``host`` its
    ``Host``. ``encrypted``: it comes by TLS. ``here``: from this machine. ``unix``: by a unix
    socket.
    """

    origins: tuple[str, ...]
    sites: tuple[str, ...]
    host: str
    encrypted: bool
    here: bool
    unix: bool


def is_foreign(origin: Origin) -> bool:
    """Whether a browser says that a page which is not ours is behind a request.

    Another port of the same host is another site's, too (``same-site``).
    """
    own = f"{'https' if origin.encrypted else 'http'}://{origin.host}"
    return any(each != own for each in origin.origins) or not set(origin.sites) <= {
        "same-origin",
        "none",
    }


def is_misled(origin: Origin, hosts: str) -> bool:
    """Whether somebody on this machine asks under a name that need not be ours.

    A page can have its own name point here, and is of the same site then. By TLS the certificate
    tells the browser. ``hosts``: names that are ours, with commas between them.
    """
    by_tcp = origin.here and not origin.unix and not origin.encrypted
    return by_tcp and not _is_ours(_name(origin.host), hosts)


def is_token(given: str, expected: str) -> bool:
    """Whether a token is the one whose SHA-256 is ``expected`` (``http.token``)."""
    digest = hashlib.sha256(given.strip().encode("utf-8", "surrogateescape")).hexdigest()
    return hmac.compare_digest(digest, expected.removeprefix("sha256:").lower())


def bearer(headers: Iterable[str]) -> str:
    """Return the token of a header ``Authorization``, "" if there is none."""
    for text in headers:
        scheme, _, given = text.partition(" ")
        if scheme.lower() == "bearer":
            return given.strip()
    return ""


def _name(host: str) -> str:
    """Return a Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_ours(host: str, hosts: str) -> bool:
    """Whether a name is always this machine's, or one that its owner says is."""
    if host == "localhost" or host.lower() in (each.strip().lower() for each in hosts.split(",")):
        return bool(host)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
