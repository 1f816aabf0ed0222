"""Answer commands: a LightMQ client, to which the broker sends requests.

FMQP programs reach it through the broker: what they publish to lightmq/NAME/down is sent to it,
its answers are published to lightmq/NAME/reply, and lightmq/NAME/status says whether it is there.

    motemq sub fmqp://127.0.0.1:8765 'lightmq/kitchen/*' -v
    motemq pub fmqp://127.0.0.1:8765 lightmq/kitchen/down uptime
"""

import time

import config

from umotemq.lightmq import LightmqClient
from umotemq.tcp import Tcp


def uptime():
    return b"%d s" % (time.ticks_ms() // 1000)


def blink():
    return b"blinking"  # switch your LED here


COMMANDS = {b"uptime": uptime, b"blink": blink}


def answer(command):
    """Return the response; it must be quick, as nothing else is done meanwhile."""
    if command not in COMMANDS:
        return b"there are: " + b" ".join(sorted(COMMANDS))
    return COMMANDS[command]()


client = LightmqClient(Tcp(config.HOST, config.LIGHTMQ_PORT), config.NAME, handler=answer)
while True:
    up = client.up
    client.poll(10000)
    if client.up != up:
        print("connected" if client.up else client.error)
