"""``GET /stats``: what was discarded and dropped, by protocol, and who was disconnected."""

import http.client
import json
import struct
from pathlib import Path
from typing import Any

from host_broker.client import connect
from host_broker.protocols.lightmq.codec import Codec
from tests.host_broker.net.broker_process import BrokerProcess, broker, until

_LISTEN = (
    *("--listen", "auto://127.0.0.1:0?slow=drop-newest"),
    *("--set", "net.outbox_high_bytes=200000"),
    *("--set", "net.outbox_low_bytes=50000"),
)


def _packet(flags: int, topic: bytes, body: bytes) -> bytes:
    return struct.pack(">BBI", flags, len(topic), len(body)) + topic + body


def _stats(running: BrokerProcess) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", running.ports["auto"], timeout=20)
    try:
        connection.request("GET", "/stats")
        answer = connection.getresponse()
        assert answer.status == 200
        found = json.loads(answer.read())
        assert isinstance(found, dict)
        return found
    finally:
        connection.close()


def test_discards_and_drops_by_protocol(tmp_path: Path) -> None:
    codec = Codec("client")
    with broker("--data", str(tmp_path), *_LISTEN) as running:
        assert _stats(running)["discarded"] == {}
        with (
            running.raw("auto") as client,
            running.raw("auto") as board,
            running.raw("auto") as sleeper,
        ):
            client.sendall(_packet(0, b"$/info/clients", b"x") * 3 + _packet(0, b"//", b"x"))
            # Responses to nothing.
            board.sendall(codec.connect("board") + codec.sendresp(7, b"x") * 2)
            sleeper.sendall(_packet(0x80, b"t", b""))
            with connect(f"fmqp://127.0.0.1:{running.ports['auto']}") as publisher:
                publisher.sync()
                for _ in range(64):
                    publisher.publish("t", bytes(256 * 1024))
                publisher.sync()
            until(lambda: _stats(running)["discarded"].get("lightmq", {}).get("R17") == 2)
            stats = _stats(running)
        assert stats["discarded"] == {"fmqp": {"R30": 3, "R9": 1}, "lightmq": {"R17": 2}}
        dropped = stats["dropped"]
        assert set(dropped) >= {"fmqp"}
        assert dropped["fmqp"]["messages"] > 10
        assert dropped["fmqp"]["bytes"] > 10 * 256 * 1024
        assert stats["publications"] >= 64


def test_who_was_closed_or_disconnected_and_why() -> None:
    limits = (
        *("--set", "fmqp.hard_body_limit=2000000"),
        *("--set", "fmqp.idle_timeout_s=0.5"),
    )
    with broker("--ephemeral", "--listen", "auto://127.0.0.1:0", *limits) as running:
        before = _stats(running)
        assert (before["closed_by"], before["disconnected"]) == ({}, {})
        with running.raw("auto") as greedy, running.raw("auto") as idle:
            greedy.sendall(struct.pack(">BBI", 0, 1, 2_000_001) + b"t")
            assert greedy.recv(1) == b""
            idle.sendall(_packet(0, b"t", b"x"))
            assert idle.recv(1) == b""
        stats = _stats(running)
        assert stats["closed"] == 1
        assert stats["closed_by"] == {"fmqp": {"fmqp.hard_body_limit": 1}}
        assert stats["disconnected"] == {"idle": 1}
