"""How much one read asks for: much of those who are cheap, little of those who are not."""

import asyncio
import contextlib
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from host_broker.net.connection.encrypted import EncryptedProtocol, use_long_reads
from host_broker.net.connection.poller import Poller, event_loop
from host_broker.net.connection.stream import Stream
from tests.host_broker.net.certificates import Authority

_SHORT = 16 * 1024
_LONG = 256 * 1024
_TOTAL = 1024 * 1024


class _Reader(asyncio.Protocol):
    """Takes ``cost_s`` for every 16 KiB."""

    def __init__(self, cost_s: float) -> None:
        self.sizes: list[int] = []
        self.lost = asyncio.Event()
        self._cost_s = cost_s
        self._done = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    def data_received(self, data: bytes) -> None:
        self.sizes.append(len(data))
        busy_until = time.perf_counter() + self._cost_s * len(data) / _SHORT
        while time.perf_counter() < busy_until:
            pass
        if sum(self.sizes) == _TOTAL:
            self._done.set_result(None)

    async def all_read(self) -> None:
        await asyncio.wait_for(self._done, 60.0)


def _sizes(cost_s: float) -> list[int]:
    poller = Poller()
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * _LONG)

    async def read() -> list[int]:
        loop = asyncio.get_running_loop()
        reader = _Reader(cost_s)
        stream = Stream(ours, reader, poller, loop)
        sending = asyncio.ensure_future(loop.sock_sendall(theirs, bytes(_TOTAL)))
        stream.start()
        await reader.all_read()
        await sending
        stream.abort()
        await asyncio.sleep(0)
        return reader.sizes

    loop = event_loop(poller)
    try:
        with theirs:
            return loop.run_until_complete(read())
    finally:
        loop.close()


def _encrypted_sizes(cost_s: float, folder: Path) -> list[int]:
    authority = Authority(folder, "authority")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.issue("broker"))
    client = ssl.create_default_context(cafile=str(authority.file))
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * _LONG)
        end.setblocking(False)

    async def read() -> list[int]:
        loop = asyncio.get_running_loop()
        reader = _Reader(cost_s)
        accepting = asyncio.ensure_future(
            loop.connect_accepted_socket(lambda: reader, ours, ssl=server)
        )
        sender, sending = await loop.create_connection(
            lambda: _Reader(0.0), sock=theirs, ssl=client, server_hostname="127.0.0.1"
        )
        sender.write(bytes(_TOTAL))
        await reader.all_read()
        sender.close()
        await accepting
        await asyncio.gather(reader.lost.wait(), sending.lost.wait())
        return reader.sizes

    with contextlib.closing(event_loop(Poller())) as loop:
        return loop.run_until_complete(read())


def test_encrypted_reads_are_as_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All share one buffer, so a connection that says nothing has none."""
    monkeypatch.setattr(asyncio.sslproto, "SSLProtocol", asyncio.sslproto.SSLProtocol)
    use_long_reads()
    assert asyncio.sslproto.SSLProtocol is EncryptedProtocol
    cheap = _encrypted_sizes(0.0, tmp_path)
    assert 4 * _SHORT < max(cheap) <= _LONG
    assert sum(cheap) == _TOTAL
    dear = _encrypted_sizes(0.02, tmp_path)
    assert max(dear) <= 4 * _SHORT  # nothing is known of the first record before its end
    assert sorted(dear)[len(dear) // 2] <= _SHORT


def test_loops_of_several_threads_read_to_different_places() -> None:
    """A thread that receives lets the others run."""

    async def where() -> memoryview:
        loop = asyncio.get_running_loop()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made = [
            EncryptedProtocol(loop, asyncio.Protocol(), context, None, server_side=True)
            for _ in range(2)
        ]
        first, second = [each.get_buffer(-1) for each in made]
        assert first.obj is second.obj
        for each in made:
            each._get_app_transport().abort()
        return first

    with ThreadPoolExecutor(1) as elsewhere:
        theirs = elsewhere.submit(lambda: asyncio.run(where())).result()
    assert asyncio.run(where()).obj is not theirs.obj


@pytest.mark.parametrize(
    ("cost_s", "longest"),
    [
        (0.0, _LONG),
        (0.0025, 5 * _SHORT),  # 10 ms are worth four; the clock may be kind to one
        (0.02, _SHORT),
    ],
)
def test_a_read_costs_others_ten_milliseconds_of_waiting(cost_s: float, longest: int) -> None:
    sizes = _sizes(cost_s)
    assert max(sizes) <= longest
    assert sizes[0] <= _SHORT  # nothing is known of it yet
    if not cost_s:
        assert max(sizes) > 4 * _SHORT
