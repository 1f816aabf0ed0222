"""A sensor that may lose power at any moment, and no reading: in the protocol that acknowledges.

Each reading is in flash before it is sent, and goes when the broker has acknowledged it, which it
does when the reading is in its journal. After a power cut, here or there, the last few may come
twice: each says which one it is.

    motemq sub fmqp://127.0.0.1:8765 'meter/*' -v --reconnect
"""

import time

import config

from umotemq.micromsg2 import MicroMsg2Client
from umotemq.outage import Ring
from umotemq.store import FileStore
from umotemq.tcp import Tcp

PERIOD_MS = 250


def measure():
    """Read your sensor here."""
    return "%d" % time.ticks_ms()


def stamped(payload, sequence, seconds):
    return b"%d %d " % (sequence, seconds) + payload


# 64 KiB of flash hold some 1400 readings; then the oldest give way, and are counted.
store = FileStore(config.OUTAGE_FILE, 65536)
ring = Ring(1024, store=store, always=True, stamp=stamped)
client = MicroMsg2Client(
    Tcp(config.HOST, config.PORT), name=config.NAME, outage=ring, retry_max_ms=5000
)
topic = b"meter/" + config.NAME
due = time.ticks_ms()
print("kept", ring.count, "from before")
while True:
    client.run(max(0, time.ticks_diff(due, time.ticks_ms())))
    due = time.ticks_add(due, PERIOD_MS)
    # Never raises for a lost link: it is sent, and kept until the broker has it.
    client.publish(topic, measure(), confirm=True)
    if not client.up:
        print("kept", ring.count, "dropped", ring.dropped)
