"""The asyncio face against a real broker."""

import asyncio
from collections.abc import AsyncIterable, Iterator

import pytest

from host_broker.client import (
    AsyncClient,
    AsyncSubscription,
    Client,
    ConnectionLost,
    Message,
    Subscribing,
    connect_async,
)
from tests.host_broker.net.broker_process import BrokerProcess, broker

_END_S = 30.0


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process


@pytest.fixture(scope="module")
def url(running: BrokerProcess) -> str:
    return running.urls["fmqp"]


def test_asyncio(running: BrokerProcess) -> None:
    async def serve(ready: asyncio.Event) -> None:
        async with connect_async(running.urls["lightmq"] + "/aio-board") as board:
            ready.set()
            async for question in board.messages():
                await board.respond(question, question.payload.upper())
                if question.payload == b"end":
                    return

    async def main() -> None:
        ready = asyncio.Event()
        serving = asyncio.create_task(serve(ready))
        await ready.wait()
        async with connect_async(running.urls["fmqp"]) as client:
            subscription = await client.subscribe("aio/*", confirm=True)
            for number in range(100):
                await client.publish("aio/t", b"%d" % number)
            heard = []
            async for message in subscription:
                heard.append(message.payload)
                if len(heard) == 100:
                    break
            assert heard == [b"%d" % number for number in range(100)]
            assert await client.receive(0.05) is None
            other = await client.subscribe("aio/other", confirm=True)
            await client.publish("aio/other", b"first")
            first = await other.receive(20.0)
            assert first is not None
            assert first.payload == b"first"
            answers = await asyncio.gather(
                *(client.call("aio-board", word) for word in (b"a", b"b", b"c"))
            )
            assert answers == [b"A", b"B", b"C"]
            assert await client.ping() > 0
            await client.call("aio-board", b"end")
            await serving
        with pytest.raises(ConnectionLost, match="connect again"):
            await client.publish("aio/t", b"x")
        client = await connect_async(running.urls["fmqp"])
        await client.close()

    asyncio.run(main())


def test_iterating_ends_with_what_is_iterated_over(url: str) -> None:
    """When nothing comes for a time, with the subscription, and with the client: as in threads."""

    async def payloads(messages: AsyncIterable[Message]) -> list[bytes]:
        return [message.payload async for message in messages]

    async def main() -> None:
        client = await connect_async(url)
        subscription = await client.subscribe("ends/a", confirm=True)
        for number in range(3):
            await client.publish("ends/a", b"%d" % number)
        await client.sync()
        heard = []
        async for message in subscription:
            heard.append(message.payload)
            await subscription.unsubscribe()
        assert heard == [b"0", b"1", b"2"]
        await client.subscribe("ends/b", confirm=True)
        await client.publish("ends/b", b"x", confirm=True)
        assert await payloads(client.messages(timeout_s=0.3)) == [b"x"]
        one, another = [await client.subscribe("ends/b", confirm=True) for _ in range(2)]
        iterating = [asyncio.create_task(payloads(each)) for each in (one, another)]
        iterating.append(asyncio.create_task(payloads(client.messages())))
        await asyncio.sleep(0)  # all of them wait
        await one.unsubscribe()
        assert await iterating[0] == []
        await client.close()
        assert await iterating[1] == await iterating[2] == []

    asyncio.run(asyncio.wait_for(main(), _END_S))


def test_a_cancelled_task_leaves_the_client_alive(url: str) -> None:
    async def main() -> None:
        async with connect_async(url) as client:
            await client.subscribe("cancel/t", confirm=True)
            receiving = asyncio.create_task(client.receive(60.0))
            await asyncio.sleep(0)
            receiving.cancel()
            await client.publish("cancel/t", b"x", confirm=True)
            message = await client.receive(20.0)
            assert message is not None
            assert message.payload == b"x"

    asyncio.run(main())


def test_who_waits_is_told_that_the_connection_has_ended() -> None:
    async def main(running: BrokerProcess) -> None:
        async with connect_async(running.urls["fmqp"]) as client:
            await client.wait(0.01)
            await client.wait(0.0)
            waiting = asyncio.create_task(client.wait(_END_S))
            await client.ping()
            assert not waiting.done()
            running.process.kill()
            with pytest.raises(ConnectionLost):
                await waiting
            with pytest.raises(ConnectionLost):
                await client.wait(_END_S)

    with broker() as running:
        asyncio.run(main(running))


def test_both_faces_have_the_same_names() -> None:
    """But for what only commands use."""
    names = {name for name in dir(Client) if not name.startswith("_")}
    assert names - set(dir(AsyncClient)) == {"begin_subscribing"}
    assert set(dir(AsyncClient)) - {"__aenter__", "__aexit__"} <= set(dir(Client))
    ours, theirs = (
        {name for name in dir(each) if not name.startswith("_")}
        for each in (Subscribing, AsyncSubscription)
    )
    assert ours == theirs


def test_another_loop_is_told_so_at_once(url: str) -> None:
    """As after a first asyncio.run that only connected."""
    loop = asyncio.new_event_loop()
    client = loop.run_until_complete(_connected(url))

    async def main() -> None:
        for wanted in (
            client.publish("aio/t", b"x"),
            client.sync(),
            client.receive(_END_S),
            client.call("nobody", b"x"),
            client.wait(_END_S),
            client.close(),
        ):
            with pytest.raises(ConnectionLost, match="another event loop"):
                await asyncio.wait_for(wanted, _END_S / 3)

    asyncio.run(main())
    loop.run_until_complete(client.close())
    loop.close()


async def _connected(url: str) -> AsyncClient:
    return await connect_async(url)
