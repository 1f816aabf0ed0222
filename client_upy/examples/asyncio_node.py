"""Several things at once: a task that measures, and one that takes commands.

motemq sub fmqp://127.0.0.1:8765 'home/*/uptime' -v
motemq pub fmqp://127.0.0.1:8765 home/kitchen/period 200
"""

import asyncio
import time

import config

from umotemq.aio import Aio
from umotemq.fmqp import FmqpClient
from umotemq.tcp import Tcp

TOPIC = b"home/" + config.NAME
period_ms = 1000


async def measure(link):
    while True:
        try:
            await link.publish(TOPIC + b"/uptime", b"%d" % (time.ticks_ms() // 1000))
        except OSError as error:
            print("not sent:", error)
        await asyncio.sleep_ms(period_ms)


async def main():
    global period_ms
    async with Aio(FmqpClient(Tcp(config.HOST, config.PORT))) as link:
        task = asyncio.create_task(measure(link))
        # Goes on after an outage: the link is opened and the subscription made again.
        async for _, payload in link.messages(TOPIC + b"/period"):
            try:
                period_ms = max(50, int(payload))
                print("every", period_ms, "ms")
            except ValueError:
                print("not a number:", payload)
        task.cancel()


asyncio.run(main())
