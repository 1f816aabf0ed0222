"""Lose nothing in a short outage: what cannot be sent now is kept in a fixed ring.

Stop the broker for a while, start it again, and see the values of the gap arrive:

    motemq sub fmqp://127.0.0.1:8765 'meter/*' -v --reconnect
"""

import time

import config

from umotemq.fmqp import FmqpClient
from umotemq.outage import Ring
from umotemq.tcp import Tcp

PERIOD_MS = 250

# 2 KiB, about 100 readings. Full: the oldest give way; with newest=True the new ones would.
ring = Ring(2048)
client = FmqpClient(Tcp(config.HOST, config.PORT), outage=ring, retry_max_ms=5000)
topic = b"meter/" + config.NAME
number = 0
due = time.ticks_ms()
while True:
    client.poll(max(0, time.ticks_diff(due, time.ticks_ms())))
    if time.ticks_diff(due, time.ticks_ms()) > 0:
        continue
    due = time.ticks_add(due, PERIOD_MS)
    # Never raises for a lost link: it is sent, or kept, or counted as dropped.
    client.publish(topic, b"%d" % number)
    number += 1
    if not client.up:
        print("kept", ring.count, "dropped", ring.dropped)
