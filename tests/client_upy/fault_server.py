"""A server that misbehaves, over real sockets, in TLS or not: one port for each fault."""

import functools
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.client_upy.loopback_ports import LoopbackPorts, Serve, reads_nothing

_CONNACK = b"\x02\0\x01\0"


def _silent(peer: socket.socket) -> None:
    """Reads everything, never answers."""
    while peer.recv(65536):
        continue


def _greeted(protocol: str, fault: Serve) -> Serve:
    """What a client gets that was welcome at first: its first ping, or CONNECT, is answered."""

    def serve(peer: socket.socket) -> None:
        if protocol == "fmqp":
            _answer_ping(peer)
        elif protocol == "micromsg2":
            for _, number in _micromsg2_frames(peer):
                if number:  # of its ping
                    peer.sendall(b"\x02\x01\x02" + number)
                    break
        else:
            peer.recv(65536)
            peer.sendall(_CONNACK)
        fault(peer)

    return serve


def _answer_ping(peer: socket.socket) -> None:
    """Do as a broker does for a client that publishes to a topic it is subscribed to."""
    heard = bytearray()
    while True:
        data = peer.recv(65536)
        if not data:
            raise ConnectionError("the client has gone")
        heard += data
        while len(heard) >= 6 and len(heard) >= (
            size := 6 + heard[1] + int.from_bytes(heard[2:6], "big")
        ):
            packet = heard[:size]
            del heard[:size]
            if not packet[0] & 0x80 and packet[6:11] == b"ping/":
                peer.sendall(packet)
                return


def _sends(*parts: bytes) -> Serve:
    def serve(peer: socket.socket) -> None:
        for part in parts:
            peer.sendall(part)
        _silent(peer)

    return serve


def _bytewise(data: bytes) -> Serve:
    def serve(peer: socket.socket) -> None:
        for byte in data:
            peer.sendall(bytes([byte]))
            time.sleep(0.001)  # so that the bytes come in reads of their own
        _silent(peer)

    return serve


def _fin(peer: socket.socket) -> None:
    peer.recv(1)


def _reset(peer: socket.socket) -> None:
    peer.recv(1)
    _reset_now(peer)


def _reset_now(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _ends_now(peer: socket.socket) -> None:
    """The FIN follows at once."""


def _echo(peer: socket.socket) -> None:
    """What an FMQP broker does for a client that is subscribed to what it publishes."""
    while data := peer.recv(65536):
        peer.sendall(data)


def _lightmq_echo(peer: socket.socket) -> None:
    """After CONNECT: the client's frames come back, and its answers to them answer it."""
    peer.recv(65536)
    peer.sendall(_CONNACK)
    _echo(peer)


_MICROMSG2_REPLY = b"\x01\0\0\x06broker\0\0\0\0"


def _micromsg2_frames(peer: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    """Agree to what a MicroMsg2 client needs; gives each of its frames, and its message number if
    it is one."""
    heard = bytearray()
    greetings = 0
    while data := peer.recv(65536):
        heard += data
        while (size := _micromsg2_size(heard, greetings < 2)) <= len(heard):
            frame = bytes(heard[:size])
            del heard[:size]
            if greetings < 2:
                greetings += 1
                peer.sendall(_MICROMSG2_REPLY if greetings == 1 else b"")
            else:
                yield frame, frame[1:3] if not frame[0] & 7 else b""


def _micromsg2_size(heard: bytearray, is_handshake: bool) -> int:
    """Return how many bytes the first frame has, or a few more than there are."""
    try:
        at = 1
        if is_handshake:
            at = 4 + heard[3]
            for _ in range(2):
                at += 2 + int.from_bytes(heard[at : at + 2], "big")
                heard[at - 1]
            return at
        if not heard[0] & 7:
            at = 4 + heard[3]
            at += 2 + heard[at] * 256 + heard[at + 1]
        elif heard[0] & 2:
            at = 2
        if not heard[0] & 8:
            return at + 1 + heard[at]
        heard[at + 3]
        return at + 4 + int.from_bytes(heard[at : at + 4], "big")
    except IndexError:
        return len(heard) + 1


def _micromsg2_echo(peer: socket.socket) -> None:
    """Each message is acknowledged, and comes back under its number if it has a payload."""
    for frame, number in _micromsg2_frames(peer):
        if number:
            peer.sendall(b"\x02\x01\x02" + number + (frame if frame[-1] else b""))


def _micromsg2_deaf(peer: socket.socket) -> None:
    """Each message without a payload, a client's ping, is acknowledged; no other is."""
    confirmed = True
    for frame, number in _micromsg2_frames(peer):
        confirmed = confirmed and (not number or not frame[-1])
        if number and confirmed:
            peer.sendall(b"\x02\x01\x02" + number)


def _late(peer: socket.socket) -> None:
    """Lets the client's writes find no room at first, then echoes."""
    threading.Event().wait(0.3)
    _echo(peer)


_GARBAGE = random.Random(4).randbytes(4096)
_FMQP = b"".join(b"\0\x08\0\0\0\x02faults/%c%02d" % (97 + n % 26, n) for n in range(50))
_LIGHTMQ = b"".join(b"\x05\0\x05\0%c\0%02d" % (n, n) for n in range(50))

FAULTS: dict[str, Serve] = {
    "silent": _silent,
    "garbage": _sends(_GARBAGE),
    "fin": _fin,
    "reset": _reset,
    "half_connack": _sends(_CONNACK[:3]),
    "refusal": _sends(b"\x02\0\x01\x04"),
    "late": _late,
    "echo": _echo,
    "lightmq_echo": _lightmq_echo,
    "micromsg2_echo": _micromsg2_echo,
    "micromsg2_deaf": _micromsg2_deaf,
    "half_reply": _sends(_MICROMSG2_REPLY[:5]),
    "error": _sends(b"\x04\x07no room"),
}
_MICROMSG2 = b"".join(
    b"\0\0%c\x10topic/faults/%c%02d\0\0\x02%02d" % (n + 1, 97 + n % 26, n, n) for n in range(50)
)
_AFTERWARDS: dict[str, tuple[Serve, Serve, Serve]] = {  # in FMQP, in LightMQ, in MicroMsg2
    "then_silent": (_silent, _silent, _silent),
    "then_half": (
        _sends(b"\0\x05\0\0\0\x05hal"),
        _sends(b"\x05\0\x20\0\x01\0hal"),
        _sends(b"\0\0\x01\x07topic/a\0\0\x05hal"),
    ),
    "then_long_half": (
        _sends(b"\0\x03\0\x0e\0\0a/b", b"x" * 4096),  # 900 KB
        _sends(b"\x05\xff\xff\0\x01\0hal"),
        _sends(b"\x08\0\x01\x07topic/a\0\0\0\x0e\0\0", b"x" * 4096),
    ),
    "then_absurd": (  # 200 MB; LightMQ: a PONG of 64 KB
        _sends(b"\0\x03\x0b\xeb\xc2\0a/b", b"x" * 4096),
        _sends(b"\x04\xff\xff\0\x01\0hal"),
        _sends(b"\x08\0\x01\x07topic/a\0\0\x0b\xeb\xc2\0", b"x" * 4096),
    ),
    "then_garbage": (_sends(_GARBAGE), _sends(_GARBAGE), _sends(_GARBAGE)),
    "then_reads_nothing": (reads_nothing, reads_nothing, reads_nothing),
    "then_fin": (_ends_now, _ends_now, _ends_now),
    "then_reset": (_reset_now, _reset_now, _reset_now),
    "then_bytewise": (_bytewise(_FMQP), _bytewise(_LIGHTMQ), _bytewise(_MICROMSG2)),
}
for _name, _serves in _AFTERWARDS.items():
    for _protocol, _serve in zip(("fmqp", "lightmq", "micromsg2"), _serves, strict=True):
        FAULTS[f"{_protocol}_{_name}"] = _greeted(_protocol, _serve)


class FaultServer(LoopbackPorts):
    """``ports`` maps each fault, ``refused`` and ``black_hole`` to its port.

    ``secrets``: the files of a certificate and its key; then all of it happens inside TLS.
    """

    def __init__(self, secrets: tuple[Path, Path] | None = None) -> None:
        super().__init__()
        self._tls: ssl.SSLContext | None = None
        if secrets:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(*secrets)
        for name, serve in FAULTS.items():
            self.serve(name, functools.partial(self._serve, serve))
        # A full queue of connections that nobody accepts: Linux drops further SYNs unanswered.
        hole = self.listen("black_hole", backlog=0)
        for _ in range(4):
            stuffing = self.keep(socket.socket())
            stuffing.setblocking(False)
            stuffing.connect_ex(hole.getsockname())
        self.refuse("refused")

    def _serve(self, serve: Serve, peer: socket.socket) -> None:
        if not self._tls:
            serve(peer)
            return
        with self._tls.wrap_socket(peer, server_side=True) as inside:
            serve(inside)
