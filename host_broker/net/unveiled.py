"""What is inside of TLS on an ``auto`` listener, until its protocol is known."""

import asyncio
from typing import cast

from host_broker.net.lobby import Lobby, peer_of
from host_broker.protocols.recognition import MORE, NOBODY, recognise
from host_broker.protocols.refusals import refusal


class Unveiled(asyncio.Protocol):
    """The asyncio protocol of a TLS connection that hands over to a ``Connection``."""

    def __init__(self, lobby: Lobby) -> None:
        self._lobby = lobby
        self._first = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._lobby.enter(self)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._first += data
        verdict = recognise(self._first)
        if verdict == MORE:
            return
        self._lobby.leave(self)
        if verdict not in self._lobby.house.speaks:
            # TLS within TLS is nobody's mistake that a certificate would mend.
            self._refuse(NOBODY if verdict == "tls" else verdict)
            return
        connection = self._lobby.house.connection(verdict)
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        first, self._first = self._first, b""
        connection.data_received(first)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lobby.leave(self)

    def peer(self) -> str:
        """Return its host."""
        return peer_of(self._transport.get_extra_info("socket"))

    def turn_out(self) -> None:
        """End at once."""
        self._transport.abort()

    def _refuse(self, protocol: str) -> None:
        self._lobby.refused(self, protocol, self._first[:16])
        self._transport.write(refusal(protocol, self._first))
        self._transport.close()
