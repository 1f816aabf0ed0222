"""As measure.py, of FMQP under asyncio. Arguments: MEASURE - PORT COUNT."""

import asyncio
import gc
import sys
from time import ticks_diff, ticks_us

import client_fmqp
import traffic
from measure import say, size_of, text

from umotemq.aio import Aio


class Client(client_fmqp.Client):
    """Its handler says when ``wanted`` messages have come."""

    def __init__(self, port, counted=False, **options):
        self.wanted = 0
        self.enough = asyncio.Event()
        super().__init__(port, counted, **options)

    def _handle(self, view, topic_start, topic_end, start, end):
        self.count += 1
        if self.count == self.wanted:
            self.enough.set()

    async def ask(self, link, command, payload, count):
        """Publish, and return when ``count`` messages have come."""
        self.wanted = self.count + count
        self.enough.clear()
        await link.publish(command, payload)
        await self.enough.wait()


async def allocated(work, count):
    await work(4)
    return (await taken(work, 2 * count) - await taken(work, count)) / count


async def taken(work, count):
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    await work(count)
    took = gc.mem_alloc() - before
    gc.enable()
    return took


async def heap(client, link, count):
    async def publish(count):
        for _ in range(count):
            await link.publish(traffic.SINK, traffic.PAYLOAD)

    async def echo(count):
        for _ in range(count):
            await client.ask(link, traffic.ECHO, traffic.PAYLOAD, 1)

    async def receive(count):
        await client.ask(link, traffic.DRIP, text(count), count)

    async def burst(count):
        await client.ask(link, traffic.BURST, text(count), count)

    say("publish", await allocated(publish, count))
    say("round_trip", await allocated(echo, min(count, 100)))
    say("receive", await allocated(receive, count))
    say("receive_burst", await allocated(burst, count))


async def rates(client, link, count):
    await client.ask(link, traffic.BURST, b"100", 100)
    gc.collect()
    await link.publish(traffic.ABSORB, size_of(count, client_fmqp.FRAME))
    client.wanted = client.count + 1
    client.enough.clear()
    start = ticks_us()
    for _ in range(count):
        await link.publish(traffic.SINK, traffic.PAYLOAD)
    await client.enough.wait()
    say("publish", ticks_diff(ticks_us(), start) / count)
    gc.collect()
    last = client.count + count
    await client.ask(link, traffic.BURST, text(count), 1)
    first = client.count
    client.wanted = last
    client.enough.clear()
    start = ticks_us()
    if client.count < last:
        await client.enough.wait()
    say("receive", ticks_diff(ticks_us(), start) / (last - first))
    gc.collect()
    await link.publish(traffic.ABSORB, size_of(count, client_fmqp.FRAME, traffic.SINKS))
    client.wanted = client.count + 1
    client.enough.clear()
    start = ticks_us()
    for _ in range(count // len(traffic.SINKS)):
        for topic in traffic.SINKS:
            await link.publish(topic, traffic.PAYLOAD)
    await client.enough.wait()
    say("in_turn", ticks_diff(ticks_us(), start) / count)


async def echo(client, link, count):
    times = []
    for _ in range(count):
        gc.collect()
        start = ticks_us()
        await client.ask(link, traffic.ECHO, traffic.PAYLOAD, 1)
        times.append(ticks_diff(ticks_us(), start))
    times.sort()
    say("p50", times[len(times) // 2])


async def calls(client, link, count):
    stream = client.transport.stream
    stream.writes = 0
    for _ in range(count):
        await link.publish(traffic.SINK, traffic.PAYLOAD)
    say("writes", stream.writes / count)
    stream.reads = 0
    await client.ask(link, traffic.BURST, text(count), count)
    say("reads", stream.reads / count)


async def main():
    name, _, port, count = sys.argv[1:5]
    client = Client(int(port), name == "calls")
    async with Aio(client.client) as link:
        await link.connect(timeout_ms=3000)
        await globals()[name](client, link, int(count))


asyncio.run(main())
