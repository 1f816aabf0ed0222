"""Our RFC 2217 client: its bytes in any cuts, and pyserial's own server at the far end."""

import random
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
import serial.rfc2217

from boards.rfc2217 import SET_BAUD, ComPortClient, TelnetError
from boards.serial_port import PortError, PortGone, SerialPort

_DEADLINE_S = 10.0
_BAUD_CONFIRMED = b"\xff\xfa\x2c\x65" + struct.pack(">I", 115200) + b"\xff\xf0"


def _agreed() -> ComPortClient:
    client = ComPortClient()
    client.configure(115200, rtscts=False)
    assert client.receive(b"\xff\xfd\x2c") == b""  # DO COM-PORT-OPTION
    return client


def test_it_offers_and_then_sets_the_port_once() -> None:
    client = ComPortClient()
    client.configure(0xFF00, rtscts=True)
    # WILL BINARY, WILL COM-PORT, DO BINARY, DO SUPPRESS-GO-AHEAD; nothing of the port yet.
    assert client.replies == b"\xff\xfb\x00\xff\xfb\x2c\xff\xfd\x00\xff\xfd\x03"
    client.replies.clear()
    client.receive(b"\xff\xfd\x2c\xff\xfd\x2c")
    assert client.replies == (
        b"\xff\xfa\x2c\x01\x00\x00\xff\xff\x00\xff\xf0"  # the rate; a 0xFF within is doubled
        b"\xff\xfa\x2c\x02\x08\xff\xf0\xff\xfa\x2c\x03\x01\xff\xf0\xff\xfa\x2c\x04\x01\xff\xf0"
        b"\xff\xfa\x2c\x05\x03\xff\xf0"  # RTS/CTS
        b"\xff\xfa\x2c\x05\x08\xff\xf0"  # DTR on
    )


def test_only_changes_are_answered_and_the_unknown_is_declined() -> None:
    client = _agreed()
    client.replies.clear()
    client.receive(b"\xff\xfb\x01")  # WILL ECHO
    client.receive(b"\xff\xfb\x01")
    assert client.replies == b"\xff\xfd\x01"
    client.replies.clear()
    client.receive(b"\xff\xfd\x22\xff\xfb\x22\xff\xfe\x22\xff\xfc\x22")  # LINEMODE, four verbs
    assert client.replies == b"\xff\xfc\x22\xff\xfe\x22"


def test_data_is_the_same_in_any_cuts() -> None:
    said = random.Random(7).randbytes(4000) + bytes([255, 0, 255, 255])
    stream = (
        ComPortClient.escape(said[:1000])
        + _BAUD_CONFIRMED
        + ComPortClient.escape(said[1000:])
        + b"\xff\xf1"  # NOP
    )
    for seed in range(30):
        cuts = random.Random(seed)
        client, got, rest = _agreed(), b"", stream
        while rest:
            size = cuts.choice((1, 2, 3, 50, 5000))
            got += client.receive(rest[:size])
            rest = rest[size:]
        assert got == said
        assert client.answers[SET_BAUD] == 115200


def test_the_server_may_hold_us_back() -> None:
    client = _agreed()
    client.receive(b"\xff\xfa\x2c\x6c\xff\xf0")
    assert client.suspended
    client.receive(b"\xff\xfa\x2c\x6d\xff\xf0")
    assert not client.suspended


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (b"\xff\xfa\x2c" + bytes(300), "more than 256 bytes"),
        (b"\xff\xfa\x2c\x65\xff\xfb\x01", "0xfb after IAC"),
        (b"\xff\xfd\x22" * 3000, "asks more"),
    ],
)
def test_broken_telnet_is_bounded_and_named(stream: bytes, words: str) -> None:
    with pytest.raises(TelnetError, match=words):
        _agreed().receive(stream)


def test_any_bytes_are_data_or_a_telnet_error_in_bounded_memory() -> None:
    errors = 0
    for seed in range(500):
        chance = random.Random(seed)
        client = _agreed()
        try:
            for _ in range(40):
                weights = [8, 8, 4, 4, 2, *([1] * 4)]
                bytes_ = chance.choices([255, 250, 240, 44, 253, 251, 0, 101, 65], weights, k=60)
                assert len(client.receive(bytes(bytes_))) <= 60
                assert len(client.replies) < 5000
        except TelnetError:
            errors += 1
    assert errors > 0


class _Wire:
    """What pyserial's server writes to and reads from; its serial port is ``loop://``."""

    def __init__(self, tcp: socket.socket) -> None:
        self.tcp = tcp

    def write(self, data: bytes) -> None:
        self.tcp.sendall(data)


class Server:
    """pyserial's own RFC 2217 server around an echoing port."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"rfc2217://127.0.0.1:{self.listener.getsockname()[1]}"
        self.port = serial.serial_for_url("loop://", timeout=0)
        self.connection: socket.socket | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        try:
            self.connection, _ = self.listener.accept()
        except OSError:
            return
        with self.connection as tcp:
            manager = serial.rfc2217.PortManager(self.port, _Wire(tcp))  # type: ignore[arg-type]
            while True:
                try:
                    data = tcp.recv(4096)
                    if not data:
                        break
                    said = b"".join(manager.filter(data))
                    tcp.sendall(b"".join(manager.escape(said)))
                except OSError:
                    break
        self.ended.set()

    def close(self) -> None:
        self.listener.close()
        if self.connection is not None:
            self.connection.close()
        self.thread.join(_DEADLINE_S)
        self.port.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def test_every_byte_comes_back_from_pyserials_server(server: Server) -> None:
    port = SerialPort.open(server.url, baud=57600)
    try:
        assert server.port.baudrate == 57600
        data = random.Random(3).randbytes(100_000) + b"\xff" * 1000
        got, rest = bytearray(), memoryview(data)
        while len(got) < len(data):
            if rest:
                rest = rest[port.write(rest[:3000]) :]
            got += port.read(0.0 if rest else 0.1)
            port.flush()
        assert bytes(got) == data
    finally:
        port.close()
    assert server.ended.wait(_DEADLINE_S)


def test_a_server_that_goes_is_a_port_that_goes(server: Server) -> None:
    port = SerialPort.open(server.url)
    assert server.connection is not None
    server.connection.shutdown(socket.SHUT_RDWR)
    with pytest.raises(PortGone, match="its far end closed it"):
        port.read(_DEADLINE_S)
    port.close()


def test_a_port_without_rfc2217_is_named_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boards.network_line._AGREE_S", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(PortError, match="write socket://"),
    ):
        SerialPort.open(f"rfc2217://127.0.0.1:{listener.getsockname()[1]}")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("rfc2217://127.0.0.1", "write it as rfc2217://HOST:PORT"),
        ("socket://127.0.0.1:1?color=red", "unknown option 'color'"),
        ("socket://127.0.0.1:1?token_file=/nowhere/at/all", "No such file"),
        ("rfc2217://127.0.0.1:1", "nobody listens there"),
    ],
)
def test_what_cannot_be_is_said(url: str, words: str) -> None:
    with pytest.raises(PortError, match=words):
        SerialPort.open(url)
