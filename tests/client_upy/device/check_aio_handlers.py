"""Handlers, blocks, long payloads of the asyncio driver. Argument: a file, JSON, ports by name."""

import asyncio

from checks import Blocked, check, equal, now, publication, raises, run, soon_after, within
from live_clients import PORTS, SOON_MS, fmqp, raised, ran, soon
from long_payload import Source, is_part

from umotemq.aio import Aio
from umotemq.chunks import ChunkClient
from umotemq.fmqp import FmqpClient
from umotemq.wanted import Publisher


@check
def what_a_handler_raises_ends_the_block_whoever_runs():
    """Also while the task that entered the block waits for room to write."""
    caught = []

    async def main():
        client = FmqpClient(Blocked(), name=b"")
        stream = client.transport

        def handler(topic, payload):
            raise ValueError("in the handler")

        client.subscribe(b"h/2", handler)
        async with Aio(client) as link:
            await link.connect()
            stream.room = 0
            stream.feed(publication(b"h/2", b"x"))
            try:
                await link.publish(b"h/2", bytes(50))
            except Exception as error:
                caught.append(error)
            await asyncio.sleep_ms(10000)

    equal(str(within(0, 3000, raises, ValueError, ran, main())), "in the handler")
    equal(caught, [])


@check
def what_cannot_be_a_subscription_is_refused_and_leaves_none():
    async def main():
        async with Aio(fmqp()) as link:
            await link.connect()
            for options in ({"raw": True}, {"qos": 1}, {"handler": print}):
                raises(TypeError, link.messages, "no/thing", **options)
            for handler, options in ((None, {}), ("print", {}), (print, {"raw": True})):
                try:
                    await link.subscribe("no/thing", handler, **options)
                except TypeError:
                    continue
                raise AssertionError("%r %r" % (handler, options))
            equal([entry[1] for entry in link.client._standing], [])
            await link.ping(SOON_MS)

    ran(main())


@check
def handlers_may_be_coroutines():
    async def main(got):
        async with Aio(fmqp()) as link:
            equal(link.up, False)
            await link.connect()
            equal(link.up, True)

            async def slow(topic, payload):
                await asyncio.sleep_ms(5)
                await link.publish("co/answer", payload)
                got.append(payload)

            await link.subscribe("co/ask", slow)
            await link.subscribe("co/answer", lambda topic, payload: got.append((topic, payload)))
            for n in range(3):
                await link.publish("co/ask", "%d" % n)
            await soon(lambda: len(got) == 6)
            equal([each for each in got if isinstance(each, bytes)], [b"0", b"1", b"2"])
            await link.unsubscribe("co/ask")
            await link.publish("co/ask", "more")
            await link.ping(SOON_MS)
            await asyncio.sleep_ms(20)
            equal((len(got), link.client.discarded), (6, 0))

            async def wrong(topic, payload):
                called.append(now())
                raise ValueError("in the coroutine")

            await link.subscribe("co/ask", wrong)
            await link.publish("co/ask", "x")
            await asyncio.sleep_ms(SOON_MS)

    got = []
    called = []
    error = raises(ValueError, ran, main(got))
    soon_after(called[0])
    equal(str(error), "in the coroutine")


@check
def a_handler_may_end_its_own_subscription():
    """It goes on to its end, and hears no more; also if another takes its place."""

    async def main(got):
        async with Aio(fmqp()) as link:
            await link.connect()

            async def second(topic, payload):
                await link.unsubscribe("h/own")
                await asyncio.sleep_ms(1)
                got.append((b"second", payload))

            async def first(topic, payload):
                await link.subscribe("h/own", second)
                await asyncio.sleep_ms(1)
                got.append((b"first", payload))

            await link.subscribe("h/own", first)
            await link.publish("h/own", b"0")
            await soon(lambda: len(got) == 1)
            await link.publish("h/own", b"1")
            await soon(lambda: len(got) == 2)
            await link.publish("h/own", b"2")
            await link.ping(SOON_MS)
            equal(link._served, {})

    got = []
    ran(main(got))
    equal(got, [(b"first", b"0"), (b"second", b"1")])


@check
def leaving_messages_unsubscribes():
    async def main():
        client = fmqp()
        sensor = Publisher(client, b"lm/1")
        async with Aio(client) as link:
            await link.connect()
            async with link.messages("lm/1") as messages:
                await soon(lambda: sensor.wanted)
                await link.publish("lm/1", "x")
                async for topic, payload in messages:
                    equal((topic, payload), (b"lm/1", b"x"))
                    break
            await soon(lambda: not sensor.wanted)

    ran(main())


@check
def a_block_may_be_entered_again():
    async def main():
        link = Aio(fmqp())
        for _ in range(3):
            async with link:
                await link.connect()
                await link.ping(SOON_MS)

    ran(main())


@check
def others_run_while_a_long_payload_is_sent():
    length = 3000 if isinstance(PORTS["fmqp"], list) else 60000
    got = []
    came = []

    def piece(total, offset, view):
        equal(is_part(view, offset), True)
        came.append(len(view))

    async def main():
        client = fmqp(kind=ChunkClient)
        client.receive(b"long/1", piece)
        client.subscribe(b"long/2", lambda topic, payload: got.append((payload, sum(came))))
        async with Aio(client) as link:
            await link.connect()
            turns = 0

            async def count():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep_ms(0)

            async def talk():
                while client._last == 0:
                    await asyncio.sleep_ms(0)
                await link.publish(b"long/2", b"behind it")

            tasks = [asyncio.create_task(count()), asyncio.create_task(talk())]
            await link.do(client.publish_from, b"long/1", length, Source(length))
            equal(turns > length // 4000, True, "%d turns" % turns)
            await soon(lambda: got)
            equal(got, [(b"behind it", length)])
            tasks[0].cancel()
            # What a handler says is not put into the middle of it, and a source's end is told.
            task = asyncio.create_task(link.do(client.publish_from, b"long/1", 9000, Source(4000)))
            while client._last == 0:
                await asyncio.sleep_ms(0)
            raises("size", client.publish, b"long/2", b"within it")
            await raised("source", task)

    ran(main())


run()
