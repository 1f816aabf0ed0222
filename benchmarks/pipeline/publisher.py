"""``python -m benchmarks.pipeline.publisher PORT RATE SECONDS``: publish at a steady rate.

What is due is sent every 5 ms in one write, as a gateway of many boards does: 100,000 messages a
second must not be a measurement of a client.
"""

import socket
import struct
import sys
import time

from benchmarks.broker.wires import FMQP

TOPIC = "bench/a"
MESSAGE = struct.Struct("<QQ")  # its number, and when it was published (ns since 1970)
_TICK_S = 0.005
_HEAD = FMQP.publication(TOPIC, bytes(MESSAGE.size), 0)[: -MESSAGE.size]


def main(port: int, rate: int, seconds: float) -> None:
    """Publish ``MESSAGE`` under ``TOPIC``; print how many there were."""
    total, sent = int(rate * seconds), 0
    with socket.create_connection(("127.0.0.1", port)) as broker:
        broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        broker.sendall(FMQP.hello(0))
        began = time.monotonic()
        while sent < total:
            due = min(total, int((time.monotonic() - began) * rate) + 1)
            now_ns = time.time_ns()
            broker.sendall(
                b"".join(_HEAD + MESSAGE.pack(number, now_ns) for number in range(sent, due))
            )
            sent = due
            time.sleep(_TICK_S)
        # Closed in order: the broker reads all of it.
        broker.shutdown(socket.SHUT_WR)
        while broker.recv(4096):
            pass
    print(total)  # noqa: T201 - the result


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
