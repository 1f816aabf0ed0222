"""MicroMsg2 under asyncio, and the real broker. Argument: a file, JSON, ports by name."""

import asyncio
import io

from checks import check, equal, run
from live_clients import SOON_MS, raised, ran, soon
from live_micromsg2 import micromsg2

from umotemq.aio import Aio
from umotemq.fragments import FragmentClient
from umotemq.outage import Ring


@check
def topics_queues_and_filters():
    async def main():
        got = []
        jobs = []
        async with Aio(micromsg2(b"aio")) as link:
            await link.connect(timeout_ms=SOON_MS)

            async def hear(topic, payload):
                await asyncio.sleep_ms(1)
                got.append(payload)

            await link.subscribe("am/1", hear, filter="n>N3")
            await link.subscribe(
                "am/jobs", lambda topic, payload: jobs.append(payload), queued=True
            )
            async with link.messages("am/2") as messages:
                for n in range(6):
                    await link.publish("am/1", b"%d" % n, properties="n:N%d" % n)
                    await link.publish("am/jobs", b"%d" % n, queued=True)
                await link.publish("am/2", "last")
                async for topic, payload in messages:
                    equal((topic, payload), (b"am/2", b"last"))
                    break
            await soon(lambda: len(jobs) == 6 and len(got) == 2)
            equal((got, jobs), ([b"4", b"5"], [b"%d" % n for n in range(6)]))
            await link.unsubscribe("am/jobs", queued=True)
            await link.unsubscribe("am/1")
            equal(await link.ping(SOON_MS) > 0, True)
            equal((len(jobs), link.client._standing), (6, []))

    ran(main())


@check
def many_tasks_share_a_small_window():
    async def main():
        heard = bytearray(120)  # how often each came; a list that grows wants more and more at once

        def hear(topic, payload):
            heard[int(payload)] += 1

        listener = micromsg2(b"ear", rx_size=500)
        listener.subscribe("win/*", hear)
        async with Aio(listener) as ear, Aio(micromsg2(b"mouth", window=3, rx_size=300)) as link:
            await ear.connect(timeout_ms=SOON_MS)
            await ear.ping(SOON_MS)
            await link.connect(timeout_ms=SOON_MS)

            async def publish(first):
                for n in range(first, first + 40):
                    await link.publish("win/%d" % (first // 40), b"%d" % n)

            await asyncio.gather(*[publish(first) for first in (0, 40, 80)])
            await link.ping(SOON_MS)
            await soon(lambda: sum(heard) == 120)
            equal(min(heard), 1)

    ran(main())


@check
def what_is_confirmed_is_there():
    async def main():
        heard = []
        ring = Ring(600)
        client = micromsg2(b"sure", window=5, outage=ring)
        client.subscribe("sure/aio", lambda topic, payload: heard.append(int(payload)))
        async with Aio(client) as link:
            await link.connect(timeout_ms=SOON_MS)
            for n in range(60):
                await link.publish("sure/aio", b"%d" % n, confirm=True)
            await soon(lambda: not ring.count and len(heard) == 60)
            equal((heard, ring.dropped), (list(range(60)), 0))

    ran(main())


@check
def long_payloads_go_in_fragments():
    async def main():
        got = []
        payload = b"0123456789abcdef!" * 50
        client = micromsg2(b"pieces", kind=FragmentClient, rx_size=1000, message_size=0, window=2)
        client.retry_ms = 60000  # the next link would hide why this one ended
        client.subscribe("long/aio", lambda topic, data: got.append(data))
        async with Aio(client) as link:
            await link.connect(timeout_ms=SOON_MS)
            source = io.BytesIO(payload)
            await link.do(client.publish_from, "long/aio", len(payload), source)
            await link.publish("long/aio", "after")
            await soon(lambda: len(got) == 2)
            equal(got == [payload, b"after"], True)
            # A source that ends early: what it began cannot be taken back.
            short = io.BytesIO(b"x" * 700)
            await raised("source", link.do(client.publish_from, "long/aio", 2000, short))

    ran(main())


run()
