"""The benchmark measures real deliveries; how fast is never a test's business."""

import subprocess
import sys

from benchmarks.load import messages_per_second
from benchmarks.peers import MOSQUITTO, MOTEMQ, NATS, PEERS, running


def test_our_broker_delivers_every_message_of_a_measurement() -> None:
    """`messages_per_second` returns only after every byte of every delivery has arrived."""
    with running(MOTEMQ) as port:
        assert messages_per_second(MOTEMQ, port, payload_bytes=64, count=5_000) > 0


def test_publications_and_deliveries_are_spelled_right() -> None:
    assert MOTEMQ.publication(b"hi") == b"\x00\x09\x00\x00\x00\x02bench/onehi"
    assert MOSQUITTO.publication(b"hi") == b"\x30\x0d\x00\x09bench/onehi"
    assert MOSQUITTO.publication(b"x" * 200)[:3] == b"\x30\xd3\x01"
    assert NATS.publication(b"hi") == b"PUB bench.one 2\r\nhi\r\n"
    assert NATS.delivery(b"hi") == b"MSG bench.one 1 2\r\nhi\r\n"


def test_without_a_peer_it_says_so_and_fails() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--rounds", "1"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/nonexistent"},
    )
    assert result.returncode == 3
    for peer in PEERS[1:]:
        assert f"not measured: {peer.name} (apt-get install {peer.package})" in result.stderr
