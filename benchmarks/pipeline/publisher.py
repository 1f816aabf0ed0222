"""``python -m benchmarks.pipeline.publisher PORT RATE SECONDS``: publish at a steady rate."""

import sys
import time

from host_broker.client import connect

_TICK_S = 0.005


def main(port: int, rate: int, seconds: float) -> None:
    """Publish ``NUMBER TIME_NS`` under bench/a; print how many there were."""
    client = connect(f"fmqp://127.0.0.1:{port}")
    total, sent = int(rate * seconds), 0
    with client:
        began = time.monotonic()
        while sent < total:
            due = min(total, int((time.monotonic() - began) * rate) + 1)
            while sent < due:
                client.publish("bench/a", b"%d %d" % (sent, time.time_ns()))
                sent += 1
            time.sleep(_TICK_S)
        client.sync()
    print(total)  # noqa: T201 - the result


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
