"""What waits to be sent to all receivers together is bounded by ``net.max_buffered_bytes``."""

import socket
import threading

import pytest

from host_broker.bus.publication import pack
from host_broker.net.connection.overflow import Policy
from host_broker.protocols.fmqp.spelling import encode_subscription
from tests.host_broker.net.broker_process import until
from tests.host_broker.net.served import Served, exactly, served, there

BUDGET = 4 * 1024 * 1024
RECEIVERS = 20
ONE_READ = 350_000  # what a receiver may have, and what one read of a publisher has for it
MESSAGE = pack(0, b"t", bytes(50_000))
COUNT = 120  # 6 MB, for each receiver


def crowd(broker: Served, slow: Policy) -> list[socket.socket]:
    peers = []
    for _ in range(RECEIVERS):
        peer = broker.connect(slow)
        broker.say(peer, encode_subscription("t"))
        there(peer)
        peers.append(peer)
    return peers


def most_used(broker: Served, publishing: threading.Thread) -> int:
    """Return the most that was in use until the publisher waits, or is done."""
    most = 0
    for _ in range(40):
        publishing.join(0.05)
        most = max(most, broker.call(lambda: broker.server.memory.used))
    return most


def test_publishers_wait_for_less(pure: bool) -> None:
    with served(pure=pure, net={"max_buffered_bytes": BUDGET}) as broker:
        peers = crowd(broker, "pause")
        publisher = broker.connect()
        publisher.settimeout(60.0)
        publishing = threading.Thread(target=lambda: publisher.sendall(MESSAGE * COUNT))
        publishing.start()
        # With 4 MiB for each of them it would be 80 MiB.
        assert most_used(broker, publishing) < BUDGET + RECEIVERS * ONE_READ
        assert publishing.is_alive()
        readers = [
            threading.Thread(target=lambda peer=peer: exactly(peer, COUNT * len(MESSAGE)))
            for peer in peers
        ]
        for each in readers:
            each.start()
        for each in (*readers, publishing):
            each.join(60.0)
            assert not each.is_alive()
        assert broker.call(lambda: broker.server.memory.used) == 0


@pytest.mark.parametrize("slow", ["drop-oldest", "drop-newest"])
def test_more_is_dropped(slow: Policy) -> None:
    with served(net={"max_buffered_bytes": BUDGET}) as broker:
        peers = crowd(broker, slow)
        publisher = broker.connect()
        publishing = threading.Thread(target=lambda: publisher.sendall(MESSAGE * COUNT))
        publishing.start()
        assert most_used(broker, publishing) < BUDGET + RECEIVERS * ONE_READ
        publishing.join(20.0)
        assert not publishing.is_alive()
        for peer in peers:
            peer.close()
        until(lambda: broker.call(lambda: broker.server.memory.used) == 0)
