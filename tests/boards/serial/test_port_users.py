"""Who has the port of a serial server: what the kernel's tables say of real connections."""

import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from boards import port_users
from boards.port_users import Holders, holders

_US = Holders(("this very program",), False)
_NOBODY = Holders((), False)
_LEAVING = Holders((), True)


@pytest.fixture(params=["127.0.0.1", "::1"])
def server(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family) as listener:
        yield listener


def _url(server: socket.socket) -> str:
    host, port = server.getsockname()[:2]
    return f"rfc2217://[{host}]:{port}" if ":" in host else f"rfc2217://{host}:{port}"


def _words(end: socket.socket) -> str:
    host, port = end.getsockname()[:2]
    return "It said: the port is in use by " + (
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    )


def test_who_has_gone_is_leaving_until_the_server_has_seen_it(server: socket.socket) -> None:
    assert holders(_url(server), "") == _NOBODY
    client = socket.create_connection(server.getsockname()[:2])
    with closing(server.accept()[0]):
        assert holders(_url(server), "") == _US
        client.close()
        assert holders(_url(server), "") == _LEAVING
        with closing(socket.create_connection(server.getsockname()[:2])):
            assert holders(_url(server), "") == _US  # and another has come
        server.accept()[0].close()
    assert holders(_url(server), "") == _NOBODY


def test_who_is_twice_in_the_table_is_one(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As when others connect while it is read: seen under load."""
    with (
        closing(socket.create_connection(server.getsockname()[:2])),
        closing(server.accept()[0]),
    ):
        tables = {}
        for family, path in port_users._TABLES.items():
            head, *lines = path.read_text().splitlines()
            tables[family] = tmp_path / path.name
            tables[family].write_text("\n".join([head, *lines, *lines]))
        monkeypatch.setattr(port_users, "_TABLES", tables)
        assert holders(_url(server), "") == _US


def test_who_was_cut_off_is_leaving_while_the_server_says_it_has_the_port(
    server: socket.socket,
) -> None:
    """Bytes of the board that it did not read make it a reset: it is in no table any more."""
    client = socket.create_connection(server.getsockname()[:2])
    with closing(server.accept()[0]):
        words = _words(client)
        assert holders(_url(server), words) == _US
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        assert holders(_url(server), "") == _NOBODY
        assert holders(_url(server), words) == _LEAVING


def test_of_other_machines_nothing_is_known(server: socket.socket) -> None:
    assert holders(_url(server), "It said: the port is in use by 192.0.2.1:4711") == _NOBODY


@pytest.mark.parametrize("url", ["/dev/ttyUSB0", "hwgrep://x", "rfc2217://[x", "socket://x:y"])
def test_what_is_no_server_has_no_holders(url: str) -> None:
    assert holders(url, "") == _NOBODY
