"""A sensor that measures once a second, whatever becomes of the network.

The broker keeps the last value for whoever subscribes later.

    motemq sub fmqp://127.0.0.1:8765 'home/*/uptime' -v
"""

import time

import config

from umotemq.fmqp import FmqpClient
from umotemq.tcp import Tcp

PERIOD_MS = 1000


def measure():
    """Ask your sensor here. This is for how long the board has been up, in seconds."""
    return b"%d" % (time.ticks_ms() // 1000)


client = FmqpClient(Tcp(config.HOST, config.PORT))
due = time.ticks_ms()
while True:
    # Opens the link, now and whenever it was lost. Returns early when something happened.
    client.poll(max(0, time.ticks_diff(due, time.ticks_ms())))
    if time.ticks_diff(due, time.ticks_ms()) > 0:
        continue
    due = time.ticks_add(due, PERIOD_MS)
    try:
        client.publish(b"home/" + config.NAME + b"/uptime", measure(), retain=True)
    except OSError as error:
        print("not sent:", error)
