"""Wake up, measure, tell the broker, sleep: months on a battery. This is the whole main.py.

Nothing here waits for longer than it says, so that an absent broker costs seconds of battery and
not all of it.

    motemq sub fmqp://127.0.0.1:8765 'home/*/battery' -v
"""

import config
from machine import deepsleep

from umotemq.fmqp import FmqpClient
from umotemq.tcp import Tcp

PERIOD_MS = 600000


def measure():
    """Read your battery's voltage here, in mV."""
    return b"3700"


client = FmqpClient(Tcp(config.HOST, config.PORT), timeout_ms=3000)
try:
    client.connect(timeout_ms=6000)
    client.publish(b"home/" + config.NAME + b"/battery", measure(), retain=True)
    client.ping(timeout_ms=3000)  # until then it may be on the way, and would die with the radio
except OSError as error:
    print("next time:", error)
client.close()
deepsleep(PERIOD_MS)  # the board starts anew afterwards
