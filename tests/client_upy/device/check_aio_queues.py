"""MicroMsg2's queues under asyncio, and the real broker. Argument: a file, JSON, ports by name."""

import asyncio

from checks import check, equal, run
from live_clients import SOON_MS, ran, soon
from live_micromsg2 import micromsg2

from umotemq.aio import Aio


@check
def what_is_not_finished_with_comes_back():
    # Not what was read, nor what waits: what the program has taken and asked to go on from.
    async def main():
        got = []
        async with Aio(micromsg2(b"full", window=20)) as link:
            await link.connect(timeout_ms=SOON_MS)
            for n in range(40):
                await link.publish("am/held", b"%d" % n, queued=True)
            await link.ping(SOON_MS)
            # More than the 8 that wait for others: nothing gives way.
            async with link.messages("am/held", queued=True) as jobs:
                await soon(lambda: len(jobs._queue._waiting) == 20)
                async for _, payload in jobs:
                    got.append(int(payload))
                    if len(got) == 3:
                        break  # with the third, too
            await link.ping(SOON_MS)
            try:
                async with link.messages("am/held", queued=True) as jobs:
                    async for _, payload in jobs:
                        if int(payload) == 5:
                            raise ValueError("5")
                        got.append(int(payload))
            except ValueError:
                pass
            await link.ping(SOON_MS)
            equal(got, [0, 1, 2, 3, 4])
            async with link.messages("am/held", queued=True) as jobs:
                async for _, payload in jobs:
                    got.append(int(payload))
                    if len(got) == 8:
                        await link.ping(SOON_MS)  # what is finished with is acknowledged
                        link.client._drop(None, 0)  # the link is lost with 7 in hand
                    if len(got) == 41:
                        break
        # It comes again, and nothing else does.
        equal(got, list(range(8)) + list(range(7, 40)))

    ran(main())


@check
def a_handler_that_is_slow_is_waited_for():
    async def main():
        got = bytearray(60)

        async def work(name, payload):
            await asyncio.sleep_ms(1)
            got[int(payload)] += 1

        async with Aio(micromsg2(b"slow", window=5)) as link:
            await link.connect(timeout_ms=SOON_MS)
            await link.subscribe("am/slow", work, queued=True)
            for n in range(60):
                await link.publish("am/slow", b"%d" % n, queued=True)
            await soon(lambda: sum(got) == 60)
            equal(min(got), 1)
            await link.unsubscribe("am/slow", queued=True)
            await link.ping(SOON_MS)
            await soon(lambda: not link.client._open)

    ran(main())


@check
def who_takes_a_handlers_place_goes_on_with_what_it_left():
    async def main():
        got = []

        async def hang(name, payload):
            got.append(payload)
            await asyncio.sleep_ms(10 * SOON_MS)

        def work(name, payload):
            got.append(payload)

        async with Aio(micromsg2(b"heir", window=5)) as link:
            await link.connect(timeout_ms=SOON_MS)
            await link.subscribe("am/heir/", hang, queued=True)
            for n in range(12):
                await link.publish("am/heir", b"%d" % n, queued=True)
            await soon(lambda: got)
            await link.subscribe("/am/heir", work, queued=True)
            await soon(lambda: len(got) == 13)
            equal(got, [b"0"] + [b"%d" % n for n in range(12)])
            await soon(lambda: not link.client._open)
            # Who hangs, and is taken away, holds nothing up, and leaves it to the next one.
            await link.subscribe("am/heir", hang, queued=True)
            await link.publish("am/heir", b"last", queued=True)
            await soon(lambda: len(got) == 14)
            await link.unsubscribe("am/heir/", queued=True)
            await soon(lambda: not link.client._open)
            equal(link._served, {})
            await link.subscribe("am/heir", work, queued=True)
            await soon(lambda: len(got) == 15)
            equal(got[13:], [b"last", b"last"])
            await soon(lambda: not link.client._open)

    ran(main())


run()
