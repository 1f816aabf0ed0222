"""The asyncio driver, several links, links that are lost, and deadlines.

Argument: a file, JSON, ports by name.
"""

import asyncio

from checks import check, equal, now, raises, run, since, within
from live_clients import SOON_MS, fmqp, lightmq, raised, ran, soon, up, way

from umotemq.aio import Aio
from umotemq.link import LinkError
from umotemq.outage import Ring


@check
def lightmq_asks_and_answers():
    async def main():
        got = []

        def handler(data):
            got.append(data)
            return b"yes"

        board = lightmq(b"aio", handler=handler)
        other = fmqp()
        async with Aio(board) as link, Aio(other) as observer:
            await link.connect()
            await observer.connect()
            equal(await link.ping(SOON_MS) > 0, True)
            answers = await asyncio.gather(*[link.send(b"%d" % n) for n in range(5)])
            equal(len(answers), 5)
            for _ in range(30):
                await link.post(b"x")
            await soon(lambda: not board._posts)
            replies = observer.messages(b"lightmq/aio/reply")
            reply = asyncio.create_task(replies.__anext__())
            await asyncio.sleep_ms(0)
            await observer.ping(SOON_MS)
            await observer.publish(b"lightmq/aio/down", b"lamp")
            equal(await reply, (b"lightmq/aio/reply", b"yes"))
            equal(got, [b"lamp"])

    async def unanswered():
        board = lightmq(b"blind")
        async with Aio(board) as link:
            await link.connect()
            await raised("timeout", link.send(b"x", 50))
            equal(board._sends, {})

    ran(main())
    silent = up(fmqp())
    silent.subscribe(b"lightmq/blind/up/*", lambda topic, payload: None)  # and answers nothing
    silent.ping(SOON_MS)
    ran(unanswered())
    silent.close()


@check
def a_lost_link_comes_back_under_its_users():
    async def main():
        got = [-1, 0]  # the last, and how many came out of order or twice
        client = fmqp("cut", retry_ms=5, outage=Ring(2000))
        async with Aio(client) as link:
            await link.connect()

            async def listen():
                async for _, payload in link.messages(b"b/1", queue=50):
                    came = int(payload)
                    got[1] += came <= got[0]
                    got[0] = came

            task = asyncio.create_task(listen())
            number = down = 0
            while client.connects < 5:
                down = 0 if client.up else down + 1
                if down < 50:  # an outage is as long as the machine is busy; the ring is not
                    await link.publish(b"b/1", b"%d" % number)
                    number += 1
                if number % 20 == 0 or not client.up:
                    await asyncio.sleep_ms(1)
            await link.connect()
            equal((client.outage.dropped, got[0] > 0, got[1]), (0, True, 0))
            task.cancel()

    ran(main())


@check
def without_an_outage_a_lost_link_is_told():
    async def main():
        client = fmqp(retry_ms=30)
        async with Aio(client) as link:
            await raised(LinkError, link.publish(b"a", b"b"))
            await raised(LinkError, link.ping())
            await link.connect()
            waiting = asyncio.create_task(raised(LinkError, link.ping()))
            own = client._own
            client._own = b"nobody"  # pings that never come back
            await asyncio.sleep_ms(0)
            client._drop(None, 30)
            equal(isinstance(await waiting, LinkError), True)
            await raised(LinkError, link.publish(b"a", b"b"))
            client._own = own
            await link.connect()
            equal(client.connects, 2)

    ran(main())


@check
def without_retries_a_lost_link_ends_the_block():
    async def main():
        client = fmqp(retry_ms=0)
        async with Aio(client) as link:
            await link.connect()
            client.stream.write = None
            await asyncio.sleep_ms(10000)

    async def refused():
        async with Aio(fmqp("refused", retry_ms=0)) as link:
            await link.connect()

    error = within(0, 3000, raises, LinkError, ran, refused())
    equal(error.args[0], "connect")


@check
def deadlines_are_kept():
    async def main():
        async with Aio(fmqp("stuck", timeout_ms=200, retry_ms=50)) as link:
            error = await raised(LinkError, link.connect(timeout_ms=400))
            equal(error.args[0], "timeout")
        client = fmqp("stuck", name=b"", timeout_ms=200, retry_ms=10000)
        async with Aio(client) as link:
            await link.connect(timeout_ms=SOON_MS)
            await raised(ValueError, no_answer(link))
            start = now()
            await raised("timeout", fill(link))
            equal(since(start) < 4000, True)
            equal(client.up, False)

    async def no_answer(link):
        link.client._pong = -1
        await link.ping(100)

    async def fill(link):
        payload = bytes(200)
        while True:
            await link.publish(b"a", payload)

    ran(main())


@check
def a_silent_broker_is_noticed_and_left():
    async def main():
        client = fmqp(keepalive_ms=100, retry_ms=10000)
        async with Aio(client) as link:
            await link.connect()
            await asyncio.sleep_ms(350)
            equal(client.up, True)
            client.transport = way("stuck")
            client.timeout_ms = 150
            client._own = b"nobody"  # pings that never come back
            start = now()
            await soon(lambda: not client.up)
            equal(since(start) < 1300, True)
            equal(client.error.args[0], "timeout")

    ran(main())


run()
