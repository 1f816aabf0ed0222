"""The asyncio driver and the real broker, over one link. Argument: a file, JSON, ports by name."""

import asyncio
import time

from checks import check, equal, now, raises, run, soon_after
from live_clients import SOON_MS, fmqp, ran, soon

from umotemq.aio import Aio
from umotemq.link import LinkError
from umotemq.outage import Ring
from umotemq.wanted import Publisher


@check
def messages_come_in_a_loop():
    async def main():
        async with Aio(fmqp()) as link:
            await link.connect()
            messages = link.messages(b"m/*", queue=60)

            async def listen():
                # Compared as they come: a list of them all may find no room in a small heap.
                count = 0
                async for message in messages:
                    equal(message, (b"m/1", b"%d" % count))
                    count += 1
                    if count == 50:
                        return

            task = asyncio.create_task(listen())
            await asyncio.sleep_ms(0)
            equal(await link.ping(SOON_MS) > 0, True)
            for n in range(50):
                await link.publish(b"m/1", b"%d" % n)
            await task
        equal(messages.dropped, 0)

    ran(main())


@check
def a_client_is_the_programs_again_when_the_block_ends():
    changes = []

    async def main(client):
        # Nobody else's pattern has so many levels, nor had before.
        sensor = Publisher(client, b"a/block/that/has/its/end", changes.append)
        client.subscribe(b"a/block/that/has/its/end", print)
        async with Aio(client) as link:
            await link.connect()
            await soon(lambda: sensor.wanted)

    client = fmqp()
    ran(main(client))
    equal((client.up, changes), (False, [True, False]))
    client.close()  # with no event loop around it
    raises("closed", client.publish, b"m/2", b"x")
    raises("closed", client.poll, 10)


@check
def a_full_queue_drops_the_oldest_or_the_newest():
    async def main():
        async with Aio(fmqp()) as link:
            await link.connect()
            for newest in (False, True):
                messages = link.messages(b"q/1", queue=3, newest=newest)
                for n in range(10):
                    await link.publish(b"q/1", b"%d" % n)
                await link.ping(SOON_MS)
                equal(messages.dropped, 7)
                want = [b"0", b"1", b"2"] if newest else [b"7", b"8", b"9"]
                for payload in want:
                    equal(await messages.__anext__(), (b"q/1", payload))

    ran(main())


@check
def many_tasks_share_one_link():
    async def main():
        count = [0]

        def handler(topic, payload):
            count[0] += 1

        client = fmqp()
        client.subscribe(b"t/*", handler)
        async with Aio(client) as link:
            await link.connect()

            async def talk(name):
                for n in range(40):
                    await link.publish(b"t/%d" % name, bytes(n))
                    if n % 10 == 9:
                        await link.ping(SOON_MS)

            await asyncio.gather(*[talk(n) for n in range(5)])
            # Empty payloads reach nobody.
            await soon(lambda: count[0] == 195)
        equal(client.up, False)

    ran(main())


@check
def what_a_handler_raises_ends_the_block():
    called = []

    async def main():
        client = fmqp()

        def handler(topic, payload):
            called.append(now())
            raise ValueError("in the handler")

        client.subscribe(b"h/1", handler)
        try:
            async with Aio(client) as link:
                await link.connect()
                await link.publish(b"h/1", b"x")
                await asyncio.sleep_ms(SOON_MS)
        except ValueError as error:
            soon_after(called[0])
            # CPython counts who cancelled a task; then none is left.
            return str(error), getattr(asyncio.current_task(), "cancelling", int)()

    equal(ran(main()), ("in the handler", 0))


@check
def what_the_block_raises_leaves_it():
    async def main():
        async with Aio(fmqp()) as link:
            await link.connect()
            raise KeyError("mine")

    raises(KeyError, ran, main())


@check
def a_handler_may_publish_and_close():
    async def main():
        client = fmqp()

        def handler(topic, payload):
            client.publish(b"p/2", payload)

        def closing(topic, payload):
            answers.append(now())
            client.close()

        client.subscribe(b"p/1", handler)
        client.subscribe(b"p/2", closing)
        async with Aio(client) as link:
            await link.connect()
            await link.publish(b"p/1", b"x")
            await asyncio.sleep_ms(SOON_MS)

    answers = []
    error = raises(LinkError, ran, main())
    soon_after(answers[0])
    equal(error.args, ("closed",))


@check
def what_a_handler_publishes_must_fit_or_be_kept():
    async def main(outage):
        client = fmqp(tx_size=100, outage=outage)
        got = []

        def handler(topic, payload):
            client.stream.write, write = lambda data: None, client.stream.write
            for n in range(4):
                client.publish(b"r/2", b"%d" % n + bytes(60))
            client.stream.write = write

        client.subscribe(b"r/1", handler)
        client.subscribe(b"r/2", lambda topic, payload: got.append(payload[0]))
        async with Aio(client) as link:
            await link.connect()
            client.stream = Slow(client.stream)
            await link.publish(b"r/1", b"x")
            await soon(lambda: len(got) == 4)
        equal(got, [48, 49, 50, 51])

    ran(main(Ring(400)))
    error = raises(LinkError, ran, main(None))
    equal(error.args[0], "size")


class Slow:
    """A stream whose ``write`` can be another's."""

    def __init__(self, stream):
        self.readinto = stream.readinto
        self.write = stream.write
        self.close = stream.close


@check
def an_idle_link_sleeps():
    async def main():
        client = fmqp(keepalive_ms=200)
        steps = [0]
        real_step = client._step

        def step():
            steps[0] += 1
            return real_step()

        client._step = step
        async with Aio(client) as link:
            await link.connect()
            await asyncio.sleep_ms(50)
            steps[0] = 0
            start = time.ticks_ms()
            await asyncio.sleep_ms(1000)
            # For each sign of life one to ask, and two to hear that its answer was all.
            most = 4 * (time.ticks_diff(time.ticks_ms(), start) // 200)
            equal(0 < steps[0] <= most, True, "%d steps" % steps[0])

    ran(main())


run()
