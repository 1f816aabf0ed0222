"""The brokers that are compared: how each is started, subscribed to and published to.

Every peer is measured with the same payload on the same loopback by raw sockets and prebuilt
bytes, so that the load generator costs the same for all.
"""

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TOPIC = b"bench/one"
_START_S = 20.0


@dataclass(frozen=True, slots=True)
class Peer:
    """One broker: its command line for a port, and its wire language for one topic."""

    name: str
    program: str
    package: str  # the Debian package, "" for ours
    argv: Callable[[int, Path], list[str]]
    hello: bytes  # sent first by every client
    greeting: bytes  # what the broker's answer to it ends with; b"" = no answer
    subscribe: bytes
    subscribed: bytes  # what the answer to `subscribe` ends with; b"" = no answer
    publication: Callable[[bytes], bytes]
    delivery: Callable[[bytes], bytes]  # what a subscriber gets per message


def _motemq_argv(port: int, folder: Path) -> list[str]:
    listen = f"fmqp://127.0.0.1:{port}"
    return [sys.executable, "-m", "motemq", "broker", "--listen", listen, "--ephemeral"]


def _fmqp_publication(payload: bytes) -> bytes:
    return bytes([0, len(_TOPIC)]) + len(payload).to_bytes(4, "big") + _TOPIC + payload


def _mosquitto_argv(port: int, folder: Path) -> list[str]:
    config = folder / "mosquitto.conf"
    # No queue limit, so that QoS 0 messages are delayed and not dropped.
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nlog_type none\n"
    )
    return ["mosquitto", "-c", str(config)]


def _mqtt_publication(payload: bytes) -> bytes:
    body = len(_TOPIC).to_bytes(2, "big") + _TOPIC + payload
    if len(body) > 127:
        return bytes([0x30, len(body) & 0x7F | 0x80, len(body) >> 7]) + body
    return bytes([0x30, len(body)]) + body


_MQTT_CONNECT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"
_MQTT_SUBSCRIBE = b"\x82" + bytes([5 + len(_TOPIC)]) + b"\x00\x01\x00\x09" + _TOPIC + b"\x00"


def _nats_argv(port: int, folder: Path) -> list[str]:
    return ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-l", str(folder / "nats.log")]


def _nats_line(head: bytes, payload: bytes) -> bytes:
    return b"%s %d\r\n%s\r\n" % (head, len(payload), payload)


MOTEMQ = Peer(
    *("motemq", sys.executable, "", _motemq_argv, b"", b""),
    *(bytes([0x80, len(_TOPIC), 0, 0, 0, 0]) + _TOPIC, b""),
    *(_fmqp_publication, _fmqp_publication),
)
MOSQUITTO = Peer(
    *("mosquitto", "mosquitto", "mosquitto", _mosquitto_argv, _MQTT_CONNECT, b"\x20\x02\x00\x00"),
    *(_MQTT_SUBSCRIBE, b"\x90\x03\x00\x01\x00"),
    *(_mqtt_publication, _mqtt_publication),
)
NATS = Peer(
    *("nats-server", "nats-server", "nats-server", _nats_argv),
    *(b'CONNECT {"verbose":false}\r\nPING\r\n', b"PONG\r\n"),
    *(b"SUB bench.one 1\r\nPING\r\n", b"PONG\r\n"),
    lambda payload: _nats_line(b"PUB bench.one", payload),
    lambda payload: _nats_line(b"MSG bench.one 1", payload),
)
PEERS = (MOTEMQ, MOSQUITTO, NATS)


def installed(peer: Peer) -> bool:
    """Tell whether the peer's program is on this machine."""
    return shutil.which(peer.program) is not None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running(peer: Peer) -> Iterator[int]:
    """Run the peer on a free loopback port while the block lasts; yields the port.

    Raises ``RuntimeError`` if it does not accept connections within 20 s.
    """
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            peer.argv(port, Path(folder)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _wait_until_accepting(peer, process, port)
            yield port
        finally:
            process.terminate()
            process.wait(_START_S)


def _wait_until_accepting(peer: Peer, process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)  # a poll of another program's start, bounded by `end`
    raise RuntimeError(f"{peer.name} did not accept connections within {_START_S:.0f} s")
