"""Do the expensive work only while somebody listens: FMQP's feedback topics.

Start and stop this, and see the sensor wake up and go back to sleep:

    motemq sub fmqp://127.0.0.1:8765 'garden/*/moisture' -v
"""

import time

import config

from umotemq.fmqp import FmqpClient
from umotemq.tcp import Tcp
from umotemq.wanted import Publisher

PERIOD_MS = 1000


def measure():
    """Power your probe, wait until it settles, read it. This one is slow and makes it up."""
    time.sleep_ms(200)
    return b"%d" % (30 + time.ticks_ms() % 10)


def changed(wanted):
    print("wanted" if wanted else "nobody listens")


client = FmqpClient(Tcp(config.HOST, config.PORT))
moisture = Publisher(client, b"garden/" + config.NAME + b"/moisture", on_change=changed)
while True:
    client.poll(PERIOD_MS)
    if moisture.wanted:
        try:
            moisture.publish(measure())
        except OSError as error:
            print("not sent:", error)
