"""What subscribers that never read cost while much is retained."""

import socket

from host_broker.client import Client, connect
from tests.host_broker.net.broker_process import BrokerProcess, broker, until

MIB = 1024 * 1024
_RETAINED = 12 * MIB
_SUBSCRIBERS = 20
_SUBSCRIBE = bytes.fromhex("800300000000") + b"r/*"


def _client(running: BrokerProcess) -> Client:
    client = connect(running.urls["fmqp"], timeout_s=20.0)
    return client


def _cost(length: int) -> int:
    """Return the memory that the subscribers cost, with retained bodies of ``length`` bytes."""
    with broker() as running, _client(running) as keeper:
        for number in range(_RETAINED // length):
            keeper.publish(f"r/{number}", bytes(length), retain=True)
        keeper.sync()
        before = running.rss_bytes()
        sleepers: list[socket.socket] = []
        try:
            for _ in range(_SUBSCRIBERS):
                sleeper = running.raw("fmqp")
                sleepers.append(sleeper)
                sleeper.sendall(_SUBSCRIBE)
                assert sleeper.recv(1)  # it was answered, and reads no more
            most = 0
            looks = 0

            def looked_often() -> bool:
                nonlocal most, looks
                keeper.sync()
                most = max(most, running.rss_bytes())
                looks += 1
                return looks == 50

            until(looked_often)
            return most - before
        finally:
            for sleeper in sleepers:
                sleeper.close()


def test_subscribers_that_never_read_share_what_is_retained() -> None:
    """bus.md §4: 12 MB retained and 20 of them cost less than 40 MB, whatever the bodies are."""
    for length in (100 * 1024, 1024):
        assert _cost(length) < 40 * MIB
