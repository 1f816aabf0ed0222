"""A page that somebody has asked the broker for, until it is answered."""

import asyncio

from host_broker.outputs import ConnectionId
from host_broker.pages import PageAnswer


class NotAnswered(Exception):
    """The broker gives no answer; the text says why."""


class Asked:
    """What becomes of one request, which is a connection of its own to the broker.

    Like any publisher it may have to wait for a full queue: then its answer does.
    """

    def __init__(self, connection: ConnectionId) -> None:
        self.connection = connection
        self._answer: PageAnswer | None = None
        self._failure = ""
        self._holds: set[str] = set()
        self._changed = asyncio.Event()

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer, or there will be none."""
        return self._answer is not None or bool(self._failure)

    async def answer(self) -> PageAnswer:
        """Wait for the answer, and until nothing holds who asked. Raises ``NotAnswered``."""
        while not self._failure and (self._answer is None or self._holds):
            self._changed.clear()
            await self._changed.wait()
        if self._failure or self._answer is None:
            raise NotAnswered(self._failure)
        return self._answer

    # ---- called by the server ----

    def answered(self, answer: PageAnswer) -> None:
        """Have the answer."""
        self._answer = answer
        self._changed.set()

    def failed(self, reason: str) -> None:
        """Have none, ever."""
        self._failure = reason
        self._changed.set()

    def hold(self, reason: str) -> None:
        """Wait until it is released for the same reason."""
        self._holds.add(reason)

    def release(self, reason: str) -> None:
        """Wait for that no more."""
        self._holds.discard(reason)
        self._changed.set()
