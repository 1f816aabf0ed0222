"""The client for asyncio programs."""

import math
from collections.abc import AsyncIterator, Generator, Mapping
from typing import Self

from host_broker.address import Address
from host_broker.client.arguments import NO_JSON, json_or_bytes
from host_broker.client.face import ClientFace, SubscriptionFace
from host_broker.client.shell import Settings, Shell
from host_broker.client.subscriptions import Subscribed
from host_broker.client_errors import ClientError
from host_broker.client_session import Message, PropertyValue, Publication


class AsyncSubscription(SubscriptionFace):
    """What ``AsyncClient.subscribe`` returns: ``async for message in subscription``.

    From the first time that it is read, its messages come here and nowhere else.
    """

    async def receive(self, timeout_s: float) -> Message | None:
        """Return the next message; None if none comes within ``timeout_s``, and when ``active``
        has just changed."""
        item = await self._shell.next_of(self._subscribed, timeout_s)
        return item if isinstance(item, Message) else None

    async def unsubscribe(self) -> None:
        """End the subscription. What has come for it can still be read."""
        self._shell.unsubscribe(self._subscribed)

    async def __aiter__(self) -> AsyncIterator[Message]:
        async for message in _each(self._shell, self._subscribed, None):
            yield message


class AsyncClient(ClientFace):
    """A connection to a broker for asyncio programs; made by ``connect_async``.

    The same names and meanings as ``Client``, whose docstrings are the contract; what waits there
    is a coroutine here. All of it is for one event loop.
    """

    async def publish(
        self,
        topic: str,
        payload: bytes = b"",
        *,
        json: object = NO_JSON,
        retain: bool = False,
        will: bool = False,
        properties: Mapping[str, PropertyValue] | None = None,
        confirm: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """See ``Client.publish``."""
        payload = json_or_bytes(payload, json)
        limit_s = self._shell.settings.timeout_s if timeout_s is None else timeout_s
        await self._shell.room(limit_s)
        self._shell.publish(Publication(topic, payload, retain, will, properties))
        if confirm:
            await self._shell.sync(limit_s)

    async def subscribe(
        self,
        *patterns: str,
        confirm: bool = False,
        feedback: bool = False,
        uncounted: bool = False,
        filter: str = "",
        timeout_s: float | None = None,
    ) -> AsyncSubscription:
        """See ``Client.subscribe``."""
        subscribed = self._shell.subscribe(
            patterns, confirm=confirm, feedback=feedback, uncounted=uncounted, filter=filter
        )
        if confirm:
            await self._shell.active(subscribed, timeout_s)
        return AsyncSubscription(self._shell, subscribed)

    async def unsubscribe(self, pattern: str, *, feedback: bool = False) -> None:
        """See ``Client.unsubscribe``."""
        self._shell.unsubscribe_pattern(pattern, feedback=feedback)

    async def receive(self, timeout_s: float) -> Message | None:
        """See ``Client.receive``."""
        item = await self._shell.next_of(None, timeout_s)
        return item if isinstance(item, Message) else None

    async def messages(self, timeout_s: float | None = None) -> AsyncIterator[Message]:
        """See ``Client.messages``."""
        async for message in _each(self._shell, None, timeout_s):
            yield message

    async def respond(self, message: Message, payload: bytes = b"") -> None:
        """See ``Client.respond``."""
        self._shell.respond(message, payload)

    async def request(self, topic: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        """See ``Client.request``."""
        return await self._shell.request(topic, payload, timeout_s)

    async def call(self, target: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        """See ``Client.call``."""
        return await self._calling.call(target, payload, timeout_s)

    async def sync(self, timeout_s: float | None = None) -> None:
        """See ``Client.sync``."""
        await self._shell.sync(timeout_s)

    async def ping(self, timeout_s: float | None = None) -> float:
        """See ``Client.ping``."""
        return await self._shell.ping(timeout_s)

    async def wait(self, timeout_s: float) -> None:
        """See ``Client.wait``."""
        await self._shell.stay(timeout_s)

    async def close(self) -> None:
        """See ``Client.close``."""
        self._shell.finish()
        await self._closing()

    async def abort(self) -> None:
        """See ``Client.abort``."""
        await self._shell.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error: object, *_: object) -> None:
        if error is None:
            await self.close()
        else:
            await self._closing()  # it did not finish with what it has in hand

    async def _closing(self) -> None:
        await self._calling.close(self._shell.settings.timeout_s)


class Connecting:
    """What ``connect_async`` returns: await it, or enter it with ``async with``."""

    def __init__(self, address: Address, settings: Settings) -> None:
        self._client = AsyncClient(address, settings)

    def __await__(self) -> Generator[object, None, AsyncClient]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncClient:
        return await self

    async def __aexit__(self, *error: object) -> None:
        await self._client.__aexit__(*error)

    async def _open(self) -> AsyncClient:
        await self._client._calling.open()
        return self._client


async def _each(
    shell: Shell, subscribed: Subscribed | None, timeout_s: float | None
) -> AsyncIterator[Message]:
    """Every message until none comes for ``timeout_s``, the subscription has ended, or the client
    is closed; raises why, if it ended otherwise."""
    wait_s = math.inf if timeout_s is None else timeout_s
    while True:
        try:
            item = await shell.next_of(subscribed, wait_s, to_its_end=True)
        except ClientError:
            if shell.closed_by_us:
                return
            raise
        if item is None:
            return
        if isinstance(item, Message):
            yield item
