"""Slow receivers: publishers wait, memory stays bounded, nothing is lost, nobody waits for ever."""

import socket
import threading
import time

from host_broker.client import Client, connect
from tests.host_broker.net.broker_process import BrokerProcess, broker

BODY = bytes(16 * 1024)
COUNT = 4096  # 64 MiB, many times the outbox and the kernel's buffers


def fmqp(running: BrokerProcess, timeout_s: float = 60.0) -> Client:
    client = connect(running.urls["fmqp"], timeout_s=timeout_s)
    return client


def publish_all(client: Client) -> threading.Thread:
    def work() -> None:
        for number in range(COUNT):
            client.publish("t", number.to_bytes(4, "big") + BODY)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_publisher_waits_for_a_sleeping_subscriber_and_nothing_is_lost() -> None:
    settings = ("--set", "net.outbox_high_bytes=1000000", "--set", "net.outbox_low_bytes=200000")
    with broker(*settings) as running, fmqp(running) as sleeper, fmqp(running) as publisher:
        sleeper.subscribe("t")
        sleeper.sync()
        publisher.sync()
        before = running.rss_bytes()
        thread = publish_all(publisher)
        # While it sleeps: what is not read stays with the publisher.
        thread.join(2.0)
        assert thread.is_alive()
        assert running.rss_bytes() - before < 16 * 1024 * 1024
        with fmqp(running) as other:
            assert other.ping(20.0) < 20.0  # nobody else waits
        for number in range(COUNT):
            message = sleeper.receive(20.0)
            assert message is not None
            assert int.from_bytes(message.payload[:4], "big") == number
        thread.join(20.0)
        assert not thread.is_alive()
        assert running.rss_bytes() - before < 16 * 1024 * 1024


def test_a_stalled_receiver_is_disconnected_and_the_publisher_goes_on() -> None:
    settings = ("--set", "net.stalled_receiver_s=1", "--set", "net.outbox_high_bytes=1000000")
    low = ("--set", "net.outbox_low_bytes=200000")
    with broker(*settings, *low) as running, fmqp(running) as publisher:
        # On another host than the others: of one that has stalled others are given less time.
        address, elsewhere = ("127.0.0.1", running.ports["fmqp"]), ("127.0.0.2", 0)
        with socket.create_connection(address, 30, elsewhere) as sleeper, fmqp(running) as reader:
            sleeper.sendall(bytes.fromhex("800100000000") + b"t")
            reader.subscribe("t")
            reader.sync()
            started = time.monotonic()
            thread = publish_all(publisher)
            # Nobody waits for as long as a stalled receiver usually has: 30 s.
            received = sum(reader.receive(20.0) is not None for _ in range(COUNT))
            thread.join(20.0)
            assert received == COUNT
            assert time.monotonic() - started > 0.9
        code, stderr = running.end()
        assert code == 0
        assert "is closed: it took too little for 1 s" in stderr


def test_a_client_that_publishes_to_itself_without_reading_gets_everything_later() -> None:
    high = ("--set", "net.outbox_high_bytes=1000000", "--set", "net.outbox_low_bytes=200000")
    with broker(*high) as running, fmqp(running, timeout_s=10.0) as client:
        client.subscribe("t")
        count = 1500  # 24 MiB: more than every buffer on the way, less than the client keeps
        for number in range(count):
            client.publish("t", number.to_bytes(4, "big") + BODY)
        for number in range(count):
            message = client.receive(20.0)
            assert message is not None
            assert int.from_bytes(message.payload[:4], "big") == number


def test_what_one_read_asks_for_is_handed_out_step_by_step() -> None:
    """It asks for 160 MiB of retained messages at once: it gets them, as fast as it takes them."""
    with broker() as running, fmqp(running) as keeper:
        for number in range(8):
            keeper.publish(f"kept/{number}", bytes(1024 * 1024 - 1), retain=True)
        keeper.sync()
        before = running.rss_bytes()
        with running.raw("fmqp") as greedy:
            greedy.sendall((bytes.fromhex("800600000000") + b"kept/*") * 20)
            assert keeper.ping(20.0) < 20.0
            assert running.rss_bytes() - before < 16 * 1024 * 1024
            packets = 20 * 8 * (6 + len(b"kept/0") + 1024 * 1024 - 1)
            while packets:
                packets -= len(greedy.recv(min(packets, 1 << 20)))
        assert keeper.ping(20.0) < 20.0
        assert running.rss_bytes() - before < 64 * 1024 * 1024
        code, stderr = running.end()
        assert code == 0
        assert stderr == ""
