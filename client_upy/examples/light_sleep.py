"""Sleep between readings, and keep the client: its buffers, its subscriptions, what it counted.

The radio is off while the board sleeps, so the link is closed before and opened after; nothing is
allocated anew. For days on a battery, where deep_sleep.py is for months.

    motemq sub fmqp://127.0.0.1:8765 'home/*/battery' -v
"""

import config
from machine import lightsleep

from umotemq.fmqp import FmqpClient
from umotemq.tcp import Tcp

PERIOD_MS = 60000


def measure():
    """Read your battery's voltage here, in mV."""
    return "3700"


client = FmqpClient(Tcp(config.HOST, config.PORT), timeout_ms=3000)
topic = b"home/" + config.NAME + b"/battery"
while True:
    try:
        client.connect(timeout_ms=6000)
        client.publish(topic, measure(), retain=True)
        client.ping(timeout_ms=3000)
    except OSError as error:
        print("next time:", error)
    client.close()
    lightsleep(PERIOD_MS)
