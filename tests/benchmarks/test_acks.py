"""The benchmark of acknowledged messages: its wires against real brokers, and what it prints."""

import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.acks.exchange import wait_until_heard
from benchmarks.acks.wires import MICROMSG2, MQTT_QOS_1, AckedWire


def test_it_measures_and_judges() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "acks", "--short"],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| (motemq[^|]*|mosquitto) \| ([\d,]+) \| ([\d.]+) \|", done.stdout, re.M)
    assert [name for name, _, _ in rows] == [
        "motemq",
        "mosquitto",
        "motemq, journal.ack=memory",
        "motemq, journal.ack=written",
    ]
    assert all(int(rate.replace(",", "")) > 0 for _, rate, _ in rows)
    assert len(re.findall(r"^- .*: (not )?reached$", done.stdout, re.M)) == 3


@pytest.mark.parametrize("wire", [MICROMSG2, MQTT_QOS_1], ids=lambda wire: wire.name)
def test_acks_are_counted_across_the_wrap(wire: AckedWire) -> None:
    heard = b"".join(wire.publication(number, b"x") for number in (65534, 65535, 1, 2))
    size = wire.delivery_bytes(1)
    assert len(heard) == 4 * size
    acks = wire.acks(heard, 3, size)
    count, taken = wire.acked(acks + b"\x02", 65534)
    assert (count, taken) == (3, len(acks))
    assert wire.acked(b"\x02", 1) == (0, 0)


@pytest.mark.parametrize("missed", [0, 1, 12])
@pytest.mark.parametrize("wire", [MICROMSG2, MQTT_QOS_1], ids=lambda wire: wire.name)
def test_a_subscription_that_is_late_is_waited_for(wire: AckedWire, missed: int) -> None:
    """By messages that are published again, one when the last is acknowledged."""
    size, most = 2, missed + 2  # the subscriber hears two at once
    publisher, broker = socket.socketpair()
    subscriber, other = socket.socketpair()
    delivery = wire.delivery_bytes(size)

    def serve() -> int:
        """Acknowledge all, and deliver what comes after those that are missed."""
        waiting, number = b"", 0
        while data := broker.recv(delivery, socket.MSG_WAITALL):
            number += 1
            broker.sendall(wire.acks(data, 1, delivery))
            waiting += data if number > missed else b""
            if number >= most:
                other.sendall(waiting)
                waiting = b""
        return number

    with publisher, broker, subscriber, other, ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve)
        sent = wait_until_heard(wire, publisher, subscriber, size)
        publisher.close()
        assert served.result(10) == sent >= most
        # What it heard it has acknowledged, and nothing is left to be read.
        subscriber.setblocking(False)
        with pytest.raises(BlockingIOError):
            subscriber.recv(1)
        assert wire.acked(other.recv(100), missed + 1)[0] == sent - missed
