"""The public LightMQ client and a broker that refuses it."""

import socket

import pytest

from host_broker.client import ClientError, ConnectionLost, Refused, connect
from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.dialects import DIALECTS, DialectName
from tests.host_broker.net.test_client_peers import peer, until_closed


@pytest.mark.parametrize("dialect", ["spec", "gbaranski"])
@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 128, 254])
def test_any_other_code_than_accepted_is_a_refusal(dialect: DialectName, code: int) -> None:
    """R20, R11: those of the document by their meaning, any other as a broken protocol."""
    accepted = DIALECTS[dialect].accepted

    def refuse(sock: socket.socket) -> None:
        sock.recv(1)
        sock.sendall(Codec("server", dialect).connack(accepted + code))
        until_closed(sock)

    with (
        peer("lightmq", refuse) as url,
        pytest.raises(ClientError) as caught,
        connect(f"{url}/board", dialect=dialect),
    ):
        pass
    if code <= 4:
        assert isinstance(caught.value, Refused)
        assert caught.value.code == code
        assert "refused client id 'board'" in str(caught.value)
    else:
        assert isinstance(caught.value, ConnectionLost)
        assert f"CONNACK code {accepted + code}" in str(caught.value)


def test_accepted_is_accepted() -> None:
    """R9, R10."""

    def accept(sock: socket.socket) -> None:
        assert sock.recv(100) == Codec("client").connect("board")
        sock.sendall(b"\x02\0\x01\0")
        until_closed(sock)

    with peer("lightmq", accept) as url, connect(f"{url}/board") as client:
        assert client.name == "board"
