"""What happens at the broker while somebody looks: many topics that change, and a stopwatch.

Run as a process of its own, ``python -m benchmarks.dashboard.traffic PORT TOPICS RATE``, it
publishes every topic ``RATE`` times a second, spread over each period, and prints once a second how
many publications that were.
"""

import socket
import sys
import threading
import time
from collections.abc import Iterator

from host_broker.client import connect
from host_broker.protocols.fmqp.spelling import encode_publication

_STEP_S = 0.01
_PROBE_S = 0.01


def _spread(topics: int, rate: float) -> Iterator[bytes]:
    """Give what is to be sent in each step of 10 ms, so that each topic comes ``rate`` times a
    second, with another value each time."""
    due = at = number = 0.0
    while True:
        due += topics * rate * _STEP_S
        packets = []
        while at < due:
            topic = int(at % topics)
            body = b'{"value": %.2f}' % (20 + (number % 997) / 100)
            packets.append(encode_publication(f"load/{topic // 50}/{topic}/reading", body))
            at += 1
            number += 1
        yield b"".join(packets)


def publish(port: int, topics: int, rate: float) -> None:
    """Publish until the end of this process, or of the broker."""
    with socket.create_connection(("127.0.0.1", port)) as broker:
        began = time.monotonic()
        for step, packets in enumerate(_spread(topics, rate), 1):
            broker.sendall(packets)
            if step % round(1 / _STEP_S) == 0:
                print(round(step * _STEP_S * topics * rate), flush=True)  # noqa: T201
            time.sleep(max(0.0, began + step * _STEP_S - time.monotonic()))


class Stopwatch:
    """Two other clients: one tells the other something 100 times a second."""

    def __init__(self, port: int) -> None:
        url = f"fmqp://127.0.0.1:{port}"
        self._hears = connect(url)
        self._says = connect(url)
        self._subscription = self._hears.subscribe("probe/others", confirm=True)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._say, daemon=True)
        self._thread.start()

    def _say(self) -> None:
        while not self._over.wait(_PROBE_S):
            self._says.publish("probe/others", str(time.perf_counter_ns()).encode())

    def measure(self, seconds: float) -> list[float]:
        """Return the milliseconds that each message took that came in so many seconds."""
        until = time.perf_counter() + seconds
        took = []
        while time.perf_counter() < until:
            message = self._subscription.receive(5.0)
            now = time.perf_counter_ns()
            if message is None:
                raise TimeoutError("a client heard nothing from another one for 5 s")
            took.append((now - int(message.payload)) / 1e6)
        return took

    def close(self) -> None:
        """End both."""
        self._over.set()
        self._thread.join()
        self._says.close()
        self._hears.close()


if __name__ == "__main__":
    publish(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
