"""Real sockets of an auto listener in a real event loop, a byte at a time."""

import asyncio
import contextlib
import functools
import os
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from host_broker.broker import Broker
from host_broker.bus.publication import pack
from host_broker.net.connection.connection import Connection
from host_broker.net.connection.memory import BufferMemory
from host_broker.net.connection.poller import Poller, event_loop
from host_broker.net.connection.stream import Stream
from host_broker.net.listening.acceptor import is_crowded
from host_broker.net.listening.detection import ListenerContext, ProtocolDetector, TlsDetector
from host_broker.net.listening.handshakes import Handshakes
from host_broker.net.listening.pending import PendingConnections
from host_broker.net.listening.slots import CountedSocket, Slots
from host_broker.net.live_settings import LiveSettings
from host_broker.net.server import Server
from host_broker.recognition import Recognition
from host_broker.registry import protocols
from host_broker.settings import NetSettings, Settings
from tests.host_broker.net.certificates import Authority
from tests.host_broker.net.served import unread

WITHIN_S = 60.0
TURNS = 20  # of the loop: what a local socket was given is there at once


class Recognised(asyncio.Protocol):
    """Remembers its protocol and what it was given."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.got = b""
        self.transport: asyncio.BaseTransport | None = None
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data

    def eof_received(self) -> None:
        self.ended = True


def _context(
    settings: NetSettings, connection: Callable[[str], asyncio.Protocol], poller: Poller
) -> ListenerContext:
    specs = protocols()
    recognition = Recognition(specs.values())
    live = LiveSettings(Settings(net=settings))
    return ListenerContext(
        "auto test",
        live,
        connection,
        poller,
        PendingConnections(live, grace_s=0.0),
        Handshakes(live, BufferMemory(live, poller)),
        tuple(specs),
        recognition,
        recognition,
    )


class Scene:
    """Pending connections; those recognised are in ``found``."""

    def __init__(self, poller: Poller, settings: NetSettings) -> None:
        self.found: list[Recognised] = []
        self._context = _context(settings, self._made, poller)
        self.pending = self._context.pending
        self.live = self._context.live
        self.slots = Slots(self.live)
        self._last: socket.socket

    def use_pending(self, pending: PendingConnections) -> None:
        self.pending = self._context.pending = pending

    def use_certificate(self, certificate: ssl.SSLContext) -> None:
        self._context.tls = certificate

    def _made(self, protocol: str) -> asyncio.Protocol:
        self.found.append(Recognised(protocol))
        return self.found[-1]

    def newcomer(self, kind: str = "unix") -> socket.socket:
        """Let a newcomer in; return its peer."""
        ours, peer = socket.socketpair() if kind == "unix" else tcp_pair()
        ours.setblocking(False)
        peer.settimeout(WITHIN_S)
        taken = self.slots.take(ours)
        self._last = taken
        ProtocolDetector(taken, self._context).start()
        return peer

    async def arrived(self, count: int) -> None:
        """Wait until the kernel has brought so many bytes of the last newcomer: by TCP it may be
        busy with those of others."""
        while sum(len(guest.got) for guest in self.found) + unread(self._last) < count:  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.create_connection(listening.getsockname(), WITHIN_S)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening.accept()[0], peer


def play(
    act: Callable[[Scene], Coroutine[Any, Any, None]], settings: NetSettings | None = None
) -> None:
    poller = Poller()

    async def main() -> None:
        async with asyncio.timeout(WITHIN_S):
            scene = Scene(poller, settings or NetSettings())
            await act(scene)
            scene.pending.close()
            for guest in scene.found:
                if isinstance(guest.transport, Stream):
                    guest.transport.abort()
            await turns()

    with asyncio.Runner(loop_factory=functools.partial(event_loop, poller)) as runner:
        runner.run(main())


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", ["unix", "tcp"])
@pytest.mark.parametrize(
    ("said", "protocol", "at"),
    [
        (pack(0x80, b"a/b", b"") + pack(0, b"a/b", b"hi"), "fmqp", 3),
        (pack(0x10, b"abc", b"not MQTT"), "fmqp", 4),
        (bytes.fromhex("01000908") + b"client-1" + b"\x03\x00\x02\x00\x07", "lightmq", 3),
    ],
)
def test_a_byte_at_a_time_is_recognised_and_all_of_it_handed_over(
    kind: str, said: bytes, protocol: str, at: int
) -> None:
    async def act(scene: Scene) -> None:
        with scene.newcomer(kind) as peer:
            for number, byte in enumerate(said, 1):
                peer.sendall(bytes([byte]))
                await scene.arrived(number)
                await turns()
                assert len(scene.found) == (number >= at)
            assert [(guest.protocol, guest.got) for guest in scene.found] == [(protocol, said)]

    play(act)


def test_what_was_said_too_little_costs_no_time_while_it_lies_there() -> None:
    """The bytes stay in the kernel; a selector of levels would report them for ever."""

    async def act(scene: Scene) -> None:
        with scene.newcomer() as peer:
            peer.sendall(b"G")
            await turns()
            looks = 0
            original = ProtocolDetector.ready_to_read

            def counted(self: ProtocolDetector) -> int:
                nonlocal looks
                looks += 1
                return original(self)

            ProtocolDetector.ready_to_read = counted  # type: ignore[method-assign]
            try:
                await turns()
                assert looks == 0
                peer.sendall(b"E")
                await turns()
                assert looks == 1
            finally:
                ProtocolDetector.ready_to_read = original  # type: ignore[method-assign]
            assert scene.found == []

    play(act)


def test_one_that_leaves_without_a_word_is_forgotten() -> None:
    async def act(scene: Scene) -> None:
        scene.newcomer().close()
        scene.newcomer("tcp").close()
        while len(scene.pending):  # by TCP the kernel may be busy with the ends of others
            await turns()
        assert scene.found == []

    play(act)


@pytest.mark.parametrize("words", [b"G", b"GET / HTTP/1.1\r\nHost: x\r\n", b"\x16\x03"])
def test_half_a_word_and_its_end_are_no_word(words: bytes) -> None:
    """No more will come: nobody waits for that until a deadline."""

    async def act(scene: Scene) -> None:
        for pause in (0, 1):
            with scene.newcomer() as peer:
                peer.sendall(words)
                if pause:
                    await turns()
                    assert len(scene.pending) == 1
                peer.shutdown(socket.SHUT_WR)
                await turns()
                assert len(scene.pending) == 0
        assert scene.found == []

    play(act)


def test_words_and_their_end_that_come_together_are_both_handed_over() -> None:
    async def act(scene: Scene) -> None:
        with scene.newcomer() as peer:
            peer.sendall(pack(0, b"t", b"last"))
            peer.shutdown(socket.SHUT_WR)
            await turns()
            (guest,) = scene.found
            assert guest.got == pack(0, b"t", b"last")
            assert guest.ended

    play(act)


def test_the_oldest_has_to_go_when_there_are_too_many() -> None:
    async def act(scene: Scene) -> None:
        peers = [scene.newcomer() for _ in range(7)]
        assert len(scene.pending) == 5
        for peer in peers[:2]:
            assert peer.recv(1) == b""
        peers[2].sendall(pack(0, b"t", b"x"))
        await turns()
        assert len(scene.found) == 1
        assert len(scene.pending) == 4
        for peer in peers:
            peer.close()

    play(act, NetSettings(max_unrecognised=5))


class Silent:
    """A pending connection that says nothing."""

    listener = "auto test"
    evicted = False

    def peer(self) -> str:
        return ""

    def has_spoken(self) -> bool:
        return False

    def evict(self) -> None:
        self.evicted = True


def test_in_a_crowd_the_silent_have_less_time() -> None:
    async def act(scene: Scene) -> None:
        live = LiveSettings(Settings(net=NetSettings(max_unrecognised=1)))
        now = 100.0
        pending = PendingConnections(live, clock=lambda: now)
        silent = Silent()
        pending.add(silent)
        now += 0.009
        assert not pending.make_room(crowded=True)  # what it may have said is looked at first
        now += 0.002
        assert not pending.make_room()  # without a crowd it has 0.1 s
        assert not silent.evicted
        assert pending.make_room(crowded=True)
        assert silent.evicted
        again = Silent()
        pending.add(again)
        now += 0.099
        assert not pending.make_room()
        now += 0.002
        assert pending.make_room()
        assert again.evicted
        assert pending.refused["net.max_unrecognised"] == 2
        pending.close()

    play(act)


def test_in_a_crowd_those_whose_handshake_is_just_over_have_their_time() -> None:
    """They come from no queue in which they could have said something."""

    async def act(scene: Scene) -> None:
        live = LiveSettings(Settings(net=NetSettings(max_unrecognised=2)))
        now = 100.0
        pending = PendingConnections(live, clock=lambda: now)
        agreed, younger, last = Silent(), Silent(), Silent()
        pending.add(agreed, agreed=True)
        pending.add(younger)
        now += 0.011
        assert pending.make_room(crowded=True)
        assert (agreed.evicted, younger.evicted) == (False, True)
        pending.add(last)
        now += 0.05
        assert pending.make_room(crowded=True)
        assert (agreed.evicted, last.evicted) == (False, True)
        pending.add(Silent(), agreed=True)
        assert not pending.make_room(crowded=True)
        now += 0.04
        assert pending.make_room(crowded=True)
        assert agreed.evicted
        assert len(pending) == 1
        pending.close()

    play(act)


def test_those_that_come_out_of_tls_count_as_that(tmp_path: Path) -> None:
    cert, key = Authority(tmp_path, "ours").issue("broker")
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ours.load_cert_chain(cert, key)
    theirs.check_hostname, theirs.verify_mode = False, ssl.CERT_NONE

    async def act(scene: Scene) -> None:
        now = 100.0
        scene.use_certificate(ours)
        scene.use_pending(PendingConnections(scene.live, clock=lambda: now))
        loop = asyncio.get_running_loop()
        peer = scene.newcomer("tcp")
        peer.setblocking(False)
        said, _ = await loop.create_connection(
            asyncio.Protocol, sock=peer, ssl=theirs, server_hostname="x"
        )
        while not any(isinstance(each, TlsDetector) for each in scene.pending._timers):
            await turns()
        now += 0.05
        assert not scene.pending.make_room(crowded=True)
        now += 0.06
        assert scene.pending.make_room(crowded=True)
        said.abort()
        await turns()

    play(act, NetSettings(max_unrecognised=1))


def test_who_has_spoken_is_not_sent_away_because_nobody_has_looked_yet() -> None:
    """On a busy machine the broker may be that late: others come before it is their turn."""

    async def act(scene: Scene) -> None:
        words = [pack(0, b"t", b"x"), b"", b"\x80", pack(0, b"t", b"y")]
        peers = []
        for said in words:
            peers.append(scene.newcomer())
            peers[-1].sendall(said)
        late = scene.newcomer()  # all of this without a turn of the loop
        assert peers[1].recv(1) == b""
        newest = scene.newcomer()
        with pytest.raises(ConnectionResetError):  # something of it was unread
            peers[2].recv(1)
        await turns()
        assert [guest.got for guest in scene.found] == [words[0], words[3]]
        assert len(scene.pending) == 2
        for peer in (*peers, late, newest):
            peer.close()

    play(act, NetSettings(max_unrecognised=4))


@pytest.mark.parametrize("whole", [True, False])
def test_who_has_spoken_by_tls_is_given_the_time_to_be_read_once(
    tmp_path: Path, whole: bool
) -> None:
    """The same; and whoever sends a part of a record again and again has had that time."""
    cert, key = Authority(tmp_path, "ours").issue("broker")
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ours.load_cert_chain(cert, key)
    theirs.check_hostname, theirs.verify_mode = False, ssl.CERT_NONE

    async def act(scene: Scene) -> None:
        scene.use_certificate(ours)
        peer = scene.newcomer("tcp")
        peer.setblocking(False)
        raw = peer.fileno()
        loop = asyncio.get_running_loop()
        said, _ = await loop.create_connection(
            asyncio.Protocol, sock=peer, ssl=theirs, server_hostname="x"
        )
        while not any(isinstance(each, TlsDetector) for each in scene.pending._timers):
            await turns()
        if whole:
            said.write(pack(0, b"t", b"x"))
        else:
            os.write(raw, b"\x17\x03\x03\x40\x00")
        assert not scene.pending.make_room()
        if whole:
            while not scene.found:
                await turns()
            assert scene.found[0].got == pack(0, b"t", b"x")
        else:
            await turns()
            os.write(raw, b"x")
            assert scene.pending.make_room()
            assert len(scene.pending) == 0
        said.abort()
        for guest in scene.found:
            assert guest.transport is not None
            guest.transport.close()
        await turns()

    play(act, NetSettings(max_unrecognised=1))


def test_those_who_have_all_spoken_stay() -> None:
    async def act(scene: Scene) -> None:
        peers = [scene.newcomer() for _ in range(4)]
        for peer in peers:
            peer.sendall(pack(0, b"t", b"x"))
        assert not scene.pending.make_room()
        assert scene.pending.evict_oldest() == "not yet"
        await turns()
        assert len(scene.found) == 4
        assert scene.pending.evict_oldest() == "nobody"
        for peer in peers:
            peer.close()

    play(act, NetSettings(max_unrecognised=4))


def test_half_of_a_queue_is_a_crowd(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=8) as listening,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(3):
            stack.enter_context(socket.create_connection(listening.getsockname(), WITHIN_S))
        assert not is_crowded(listening)
        stack.enter_context(socket.create_connection(listening.getsockname(), WITHIN_S))
        assert is_crowded(listening)
        listening.accept()[0].close()
        assert not is_crowded(listening)
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "socket"))
        unix.listen()
        assert not is_crowded(unix)


def test_a_deadline_ends_the_silent_and_no_other() -> None:
    async def act(scene: Scene) -> None:
        loop = asyncio.get_running_loop()
        with scene.newcomer() as silent, scene.newcomer() as slow, scene.newcomer() as known:
            slow.sendall(b"\x80")  # one byte is not enough
            known.sendall(pack(0, b"t", b"x"))
            began = loop.time()
            assert await asyncio.to_thread(silent.recv, 1) == b""
            with pytest.raises(ConnectionResetError):  # something of it was unread
                await asyncio.to_thread(slow.recv, 1)
            assert 0.1 < loop.time() - began < 5.0
            (guest,) = scene.found
            assert not guest.ended
            assert len(scene.pending) == 0

    play(act, NetSettings(first_bytes_s=0.3))


@pytest.mark.parametrize("length", [0, 200_000])
def test_a_refused_client_can_read_why_whatever_it_goes_on_to_say(length: int) -> None:
    async def act(scene: Scene) -> None:
        with scene.newcomer("tcp") as peer:
            peer.sendall(b"POST / HTTP/1.1\r\n\r\n")
            answer = await asyncio.to_thread(peer.recv, 4096)
            assert answer.startswith(b"HTTP/1.1 501 ")
            assert await asyncio.to_thread(peer.recv, 1) == b""
            try:
                await asyncio.to_thread(peer.sendall, bytes(length))
            except ConnectionError:
                assert length  # it has had enough
            peer.close()
            while len(scene.pending):
                await turns()

    play(act)


def test_who_is_recognised_within_a_turn_does_not_overtake_what_came_before() -> None:
    """The publication was read first, so it is delivered before the count of clients changes."""
    poller = Poller()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        settings = Settings()
        live = LiveSettings(settings)
        server = Server(Broker(settings, journalled=False), live, poller, None)
        context = _context(settings.net, functools.partial(Connection, server), poller)
        peers: list[socket.socket] = []
        for _ in range(2):
            ours, peer = socket.socketpair()
            ours.setblocking(False)
            peer.settimeout(WITHIN_S)
            Stream(ours, Connection(server, "fmqp"), poller, loop).start()
            peers.append(peer)
        subscriber, publisher = peers
        subscriber.sendall(pack(0x80, b"$/info/clients", b"") + pack(0x80, b"t", b""))
        await turns()
        publisher.sendall(pack(0, b"t", b"whose route is known then"))
        await turns()
        subscriber.recv(4096)
        ours, newcomer = socket.socketpair()
        ours.setblocking(False)
        ProtocolDetector(CountedSocket(ours, Slots(live)), context).start()
        publisher.sendall(pack(0, b"t", b"first"))
        newcomer.sendall(pack(0, b"x", b""))
        await turns()
        heard = subscriber.recv(4096)
        assert heard.startswith(pack(0, b"t", b"first"))
        assert heard.endswith(b"$/info/clients" + (3).to_bytes(8, "big"))
        for each in (*peers, newcomer):
            each.close()
        await turns()

    with asyncio.Runner(loop_factory=functools.partial(event_loop, poller)) as runner:
        runner.run(main())
