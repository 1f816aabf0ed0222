"""What ``confirm=True`` costs while the link is up. Arguments: PORT ROUNDS; prints NAME VALUE.

In bursts that the ring holds, plain and confirmed ones in turn; the answers come between them.
"""

import gc
import sys
from time import ticks_diff, ticks_us

import traffic

from umotemq.fmqp import FmqpClient
from umotemq.outage import Ring
from umotemq.tcp import Tcp

_BURST = 25


def connected(port, ring):
    client = FmqpClient(Tcp("127.0.0.1", port), outage=ring)
    client.connect(timeout_ms=3000)
    return client


def publish(client, confirm):
    for _ in range(_BURST):
        client.publish(traffic.SINK, traffic.PAYLOAD, confirm=confirm)


def settle(client):
    while client.outage is not None and client.outage.count:
        client.poll(10)
    client.ping()


def timed(client, confirm):
    """Return the µs of a publication."""
    client.publish(traffic.SINK, traffic.PAYLOAD, confirm=confirm)
    client.publish(traffic.SINK, traffic.PAYLOAD, confirm=confirm)
    gc.collect()
    start = ticks_us()
    publish(client, confirm)
    took = ticks_diff(ticks_us(), start)
    settle(client)
    return took / _BURST


def allocated(client):
    """Return the bytes of a confirmed publication."""
    client.publish(traffic.SINK, traffic.PAYLOAD, confirm=True)
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    publish(client, True)
    took = gc.mem_alloc() - before
    gc.enable()
    settle(client)
    return took / _BURST


port, rounds = [int(argument) for argument in sys.argv[1:]]
plain = connected(port, None)
kept = connected(port, Ring(4096))
ratios = []
for number in range(rounds):
    # Whoever is first finds the peer asleep.
    if number % 2:
        first = timed(plain, False)
        ratios.append(timed(kept, True) / first)
    else:
        confirmed = timed(kept, True)
        ratios.append(confirmed / timed(plain, False))
ratios.sort()
print("ratio %s" % ratios[len(ratios) // 2])
print("heap %s" % allocated(kept))
