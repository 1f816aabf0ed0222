"""Who may connect: everybody, or the clients of a list, each by its name or with a token."""

from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest


class Admission:
    """Judges ClientIDs. CONNECT has no password, so a token is the end of the ClientID.

    ``clients``: name to ``""``, who connects as ``NAME``, or to ``sha256:`` and 64 hexadecimal
    digits of its token, who connects as ``NAME:TOKEN``. Without any client everybody may connect.
    """

    def __init__(self, clients: Mapping[str, str]) -> None:
        self.change(clients)

    def change(self, clients: Mapping[str, str]) -> None:
        """Have another list from now on; whoever is connected stays."""
        self._tokens = {
            name: bytes.fromhex(token.removeprefix("sha256:")) for name, token in clients.items()
        }

    def name(self, client_id: str) -> str | None:
        """Return what the client is called from now on, without its token; None: refuse it."""
        if not self._tokens:
            return client_id
        if self._tokens.get(client_id) == b"":
            return client_id
        name, _, token = client_id.rpartition(":")
        expected = self._tokens.get(name, b"")  # which is no hash
        return name if compare_digest(expected, sha256(token.encode()).digest()) else None
