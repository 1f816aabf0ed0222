"""Plain sockets in the selector of a real event loop: order, limits, errors, turns."""

import asyncio
import functools
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from host_broker.net.connection.poller import Poller, event_loop
from host_broker.net.connection.stream import Stream
from host_broker.outputs import Buffer

WITHIN_S = 60.0


class Recorder(asyncio.Protocol):
    """Remembers what a transport tells its protocol."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.told: list[str] = []
        self.lost = asyncio.Event()
        self.heard = asyncio.Event()
        self.error: Exception | None = None

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.heard.set()
        if self.error is not None:
            raise self.error

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(f"lost: {exc!r}")
        self.lost.set()


class Turns:
    """Counts turns, and what the loop was told of."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def end(self) -> None:
        self.log.append("end")

    def failed(self, context: dict[str, Any]) -> None:
        self.log.append(context["message"])


Scene = Callable[[Poller, Turns], Coroutine[Any, Any, None]]


def play(scene: Scene) -> None:
    """Run a scene on an event loop as the broker's is."""
    poller, turns = Poller(), Turns()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: turns.failed(context))
        poller.turns(turns.end, turns.failed)
        async with asyncio.timeout(WITHIN_S):
            await scene(poller, turns)

    with asyncio.Runner(loop_factory=functools.partial(event_loop, poller)) as runner:
        runner.run(main())


def opened(poller: Poller) -> tuple[Stream, Recorder, socket.socket]:
    """Return a stream, its protocol, and the peer's blocking socket."""
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    peer.settimeout(WITHIN_S)
    protocol = Recorder()
    stream = Stream(ours, protocol, poller, asyncio.get_running_loop())
    stream.start()
    return stream, protocol, peer


def _written() -> list[Buffer]:
    """Buffers of every kind: tiny, small, long, views; more than one system call takes."""
    buffers: list[Buffer] = []
    for number in range(300):
        length = (7, 100, 5000, 60_000)[number % 4]
        data = bytes([number % 251]) * length
        buffers.append(memoryview(data)[1:] if number % 3 else data)
    return buffers


def test_everything_is_sent_in_order_however_slowly_it_is_taken() -> None:
    async def scene(poller: Poller, _: Turns) -> None:
        stream, protocol, peer = opened(poller)
        stream.set_write_buffer_limits(1_000_000, 200_000)
        buffers = _written()
        stream.writelines(buffers[:200])
        for buffer in buffers[200:]:
            stream.write(buffer)
        expected = b"".join(buffers)
        assert stream.get_write_buffer_size() > 1_000_000
        assert protocol.told == ["pause"]
        got = bytearray()
        while len(got) < len(expected):
            got += await asyncio.to_thread(peer.recv, 30_000)
        assert got == expected
        assert stream.get_write_buffer_size() == 0
        assert protocol.told == ["pause", "resume"]
        stream.close()
        await protocol.lost.wait()
        assert peer.recv(1) == b""
        peer.close()

    play(scene)


def test_new_limits_count_at_once() -> None:
    """Or nobody would be told again of one that was paused when they were lower."""

    async def scene(poller: Poller, _: Turns) -> None:
        stream, protocol, peer = opened(poller)
        stream.set_write_buffer_limits(0)
        stream.write(bytes(4_000_000))
        waiting = stream.get_write_buffer_size()
        assert waiting > 0
        stream.set_write_buffer_limits(waiting + 10, waiting)
        assert protocol.told == ["pause", "resume"]
        stream.write(bytes(11))
        assert protocol.told == ["pause", "resume", "pause"]
        stream.set_write_buffer_limits(waiting + 100, waiting + 10)
        assert protocol.told[3:] == []
        stream.abort()
        await protocol.lost.wait()
        peer.close()

    play(scene)


def test_what_waits_is_sent_before_a_close_and_not_before_an_abort() -> None:
    async def scene(poller: Poller, _: Turns) -> None:
        for end in ("close", "abort"):
            stream, protocol, peer = opened(poller)
            stream.set_write_buffer_limits(10_000_000, 1_000_000)
            stream.write(bytes(4_000_000))
            if end == "close":
                stream.close()
                stream.write(b"more")
            else:
                stream.abort()
                stream.write(b"never")
            got = 0
            while data := await asyncio.to_thread(peer.recv, 1_000_000):
                got += len(data)
            assert (got == 4_000_004) if end == "close" else (got < 4_000_000)
            await protocol.lost.wait()
            assert protocol.told == ["lost: None"]
            peer.close()

    play(scene)


def test_an_error_in_one_read_ends_that_connection_only() -> None:
    async def scene(poller: Poller, turns: Turns) -> None:
        bad, bad_protocol, bad_peer = opened(poller)
        good, good_protocol, good_peer = opened(poller)
        bad_protocol.error = ValueError("a bug")
        bad_peer.sendall(b"x")
        good_peer.sendall(b"y")
        await bad_protocol.lost.wait()
        await good_protocol.heard.wait()
        assert bad_protocol.told == ["lost: ValueError('a bug')"]
        assert good_protocol.got == b"y"
        assert "a read could not be handled" in turns.log
        good.abort()
        await good_protocol.lost.wait()
        assert bad.is_closing()
        bad_peer.close()
        good_peer.close()

    play(scene)


def test_a_peer_that_has_reset_it_has_no_name() -> None:
    async def scene(poller: Poller, turns: Turns) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            peer = socket.create_connection(listening.getsockname(), WITHIN_S)
            ours, _ = listening.accept()
        ours.setblocking(False)
        recorder = Recorder()
        stream = Stream(ours, recorder, poller, asyncio.get_running_loop())
        stream.start()
        assert stream.get_extra_info("peername") == peer.getsockname()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        # It is not known yet: the poller has not looked.
        assert stream.get_extra_info("peername", "nobody") == "nobody"
        await recorder.lost.wait()
        assert stream.get_extra_info("peername", "nobody") == "nobody"

    play(scene)


def test_a_peer_that_leaves_while_it_is_not_read_costs_nothing_until_it_is() -> None:
    async def scene(poller: Poller, turns: Turns) -> None:
        stream, protocol, peer = opened(poller)
        stream.pause_reading()
        peer.sendall(b"last words")
        peer.close()
        turns.log.clear()
        for _ in range(50):
            await asyncio.sleep(0)
        assert turns.log == []  # epoll has nothing to say, again and again
        stream.resume_reading()
        await protocol.lost.wait()
        assert protocol.got == b"last words"

    play(scene)


@pytest.mark.parametrize("count", [3, 600])
def test_a_turn_is_bounded_and_nobody_is_passed_over(count: int) -> None:
    async def scene(poller: Poller, turns: Turns) -> None:
        # More than one look finds (256), or more bytes than one turn has (256 KiB).
        length = 150_000 if count == 3 else 10
        streams = [opened(poller) for _ in range(count)]
        for _, _, peer in streams:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, length)
        turns.log.clear()
        for _, _, peer in streams:
            peer.sendall(b"x" * length)
        for _, protocol, _ in streams:
            while len(protocol.got) < length:
                protocol.heard.clear()
                await protocol.heard.wait()
        assert 3 <= turns.log.count("end") < count + 60  # and a turn is more than one read
        for stream, protocol, peer in streams:
            stream.abort()
            await protocol.lost.wait()
            peer.close()

    play(scene)
