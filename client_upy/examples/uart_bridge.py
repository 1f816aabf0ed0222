"""A board without a network, on a serial line to a computer that runs the bridge.

    motemq bridge --serial /dev/ttyUSB0 --baud 921600 --to fmqp://127.0.0.1:8765
    motemq sub fmqp://127.0.0.1:8765 'home/*/uptime' -v

The bridge opens a session when the board speaks, and closes it after 2 s of the board's silence:
so we speak more often (keepalive_ms), and are silent for longer (quiet_ms) before we begin anew.
"""

import time

import config

from umotemq.fmqp import FmqpClient
from umotemq.uart import Uart

client = FmqpClient(Uart(quiet_ms=2500, **config.UART), keepalive_ms=500, timeout_ms=3000)
while True:
    client.poll(1000)
    try:
        client.publish(b"home/" + config.NAME + b"/uptime", b"%d" % (time.ticks_ms() // 1000))
    except OSError as error:
        print("not sent:", error)
