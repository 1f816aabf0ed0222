"""The client for programs without asyncio: the same shell, in one background thread.

Why so long: its docstrings are the contract of both faces.
"""

import asyncio
import atexit
import contextlib
import math
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Self, TypeVar

from host_broker.address import Address
from host_broker.client import loop_thread
from host_broker.client.arguments import NO_JSON, json_or_bytes
from host_broker.client.face import ClientFace, SubscriptionFace
from host_broker.client.inbox import Mark
from host_broker.client.shell import Settings, Shell
from host_broker.client.subscriptions import Subscribed
from host_broker.client_errors import ClientError
from host_broker.client_session import Message, PropertyValue, Publication

T = TypeVar("T")

_FOREVER_S = 3600.0  # one wait; there is always another
_EXIT_S = 2.0  # for what a program leaves unsent at its end


class Subscribing(SubscriptionFace):
    """What ``Client.subscribe`` returns: ``for message in subscription``.

    From the first time that it is read, its messages come here and nowhere else.
    """

    def __init__(self, client: "Client", subscribed: Subscribed) -> None:
        super().__init__(client._shell, subscribed)
        self._client = client

    def receive(self, timeout_s: float) -> Message | None:
        """Return the next message; None if none comes within ``timeout_s``, and when ``active``
        has just changed."""
        if timeout_s <= 0:
            self._client._look()
        return _receive(self._shell, self._subscribed, timeout_s)

    def unsubscribe(self) -> None:
        """End the subscription. What has come for it can still be read."""
        self._shell.unsubscribe(self._subscribed)

    def __iter__(self) -> Iterator[Message]:
        yield from _each(self._shell, self._subscribed, None)


class Client(ClientFace):
    """A connection to a broker, for one or several threads; made by ``connect``.

    A context manager that closes. Every call has a deadline: its ``timeout_s``, or that of
    ``connect``. ``ClientError`` and ``BadArgument`` are all that it raises; ``NotSupported`` (a
    ``BadArgument``) is for what this protocol cannot do, and names those that can.
    After a fork, the child's copy is closed; the parent's goes on.
    """

    def __init__(self, address: Address, settings: Settings) -> None:
        """Connect. Raises as ``connect`` does."""
        super().__init__(address, settings)
        self._pid = os.getpid()
        self._released = False
        self._loop = loop_thread.acquire()
        try:
            self._wait_for(self._calling.open())
        except BaseException:
            self._release()
            raise
        _open.add(self)

    def publish(
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
        """Publish ``payload`` under ``topic``.

        ``json``: publish this value as JSON instead; ``Message.json`` reads it. ``retain``: the
        broker keeps it for later subscribers. ``will``: the broker publishes it when this
        connection has ended, however, and not now. ``properties``: text, numbers, and dates with
        their timezone, where the protocol has properties. ``confirm``: return when the broker has
        processed it; otherwise this returns when it is in the buffer of what will be sent, which
        holds 1 MiB. While that is full, the caller waits.
        """
        shell = self._shell
        payload = json_or_bytes(payload, json)
        limit_s = shell.settings.timeout_s if timeout_s is None else timeout_s
        with shell.lock:
            if not shell.may_publish():
                self._await_room(limit_s)
            shell.publish(Publication(topic, payload, retain, will, properties))
        if confirm:
            self._wait_for(shell.sync(limit_s))

    def subscribe(
        self,
        *patterns: str,
        confirm: bool = False,
        feedback: bool = False,
        uncounted: bool = False,
        filter: str = "",
        timeout_s: float | None = None,
    ) -> Subscribing:
        """Subscribe to topics; what a pattern can be is the protocol's.

        ``confirm``: return when the subscription is active; only then ``Message.kept`` is known.
        ``feedback``: be told who listens to the topics instead of what is said. ``uncounted``:
        without being counted in the feedback of others. ``filter``: an expression of the protocol's
        own that messages must meet. Messages come by the object that is returned, if it is read,
        else by ``receive`` and ``messages``.
        """
        subscribed = self._shell.subscribe(
            patterns, confirm=confirm, feedback=feedback, uncounted=uncounted, filter=filter
        )
        if confirm:
            self._wait_for(self._shell.active(subscribed, timeout_s))
        return Subscribing(self, subscribed)

    def begin_subscribing(
        self, *patterns: str, feedback: bool = False, uncounted: bool = False, filter: str = ""
    ) -> Subscribing:
        """The same with ``confirm``, without waiting: the object's ``active`` will tell, after
        what the broker kept."""
        subscribed = self._shell.subscribe(
            patterns, confirm=True, feedback=feedback, uncounted=uncounted, filter=filter
        )
        return Subscribing(self, subscribed)

    def unsubscribe(self, pattern: str, *, feedback: bool = False) -> None:
        """Remove exactly this subscription."""
        self._shell.unsubscribe_pattern(pattern, feedback=feedback)

    def receive(self, timeout_s: float) -> Message | None:
        """Return the next message, None if none comes within ``timeout_s``; 0 does not wait.

        A message of a queue is acknowledged when the program has finished with it: when it asks
        for the next one, unsubscribes, or closes the client. What it had not finished with comes
        again, to whoever consumes the queue then. Raises ``ConnectionLost`` when all that came was
        returned and nothing more will come.
        """
        if timeout_s <= 0:
            self._look()
        return _receive(self._shell, None, timeout_s)

    def messages(self, timeout_s: float | None = None) -> Iterator[Message]:
        """Iterate over messages until none comes for ``timeout_s``, or the client is closed."""
        yield from _each(self._shell, None, timeout_s)

    def respond(self, message: Message, payload: bytes = b"") -> None:
        """Answer a message that awaits an answer."""
        self._shell.respond(message, payload)

    def request(self, topic: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        """Publish and return the payload of the answer to this very message."""
        return self._wait_for(self._shell.request(topic, payload, timeout_s))

    def call(self, target: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        """Ask another client of the broker, by its name; return the payload of its answer.

        Raises ``NotThere`` if it is not connected or goes away, ``Timeout``.
        """
        return self._wait_for(self._calling.call(target, payload, timeout_s))

    def sync(self, timeout_s: float | None = None) -> None:
        """Return when the broker has processed everything this client sent before.

        With ``reconnect`` on whatever connection that is, within ``timeout_s``.
        """
        self._wait_for(self._shell.sync(timeout_s))

    def ping(self, timeout_s: float | None = None) -> float:
        """Return the seconds from a question to the broker until its answer."""
        return self._wait_for(self._shell.ping(timeout_s))

    def wait(self, timeout_s: float) -> None:
        """Return after ``timeout_s``. Raises as soon as the connection has ended for good."""
        shell, until = self._shell, time.monotonic() + timeout_s
        if timeout_s <= 0:
            self._look()
        with shell.changed:
            while True:
                shell.may_publish()  # raises why, if it has ended
                left_s = until - time.monotonic()
                if left_s <= 0:
                    return
                shell.changed.wait(left_s)

    def close(self) -> None:
        """Send what is waiting, then close the connection; the broker publishes the wills."""
        self._shell.finish()
        self._end(self._closing)

    def abort(self) -> None:
        """Reset the connection, as when a client dies; the broker publishes the wills."""
        self._end(self._shell.abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is None:
            self.close()
        else:
            self._end(self._closing)  # it did not finish with what it has in hand

    def _closing(self) -> Coroutine[Any, Any, None]:
        return self._calling.close(self._shell.settings.timeout_s)

    def __del__(self) -> None:
        if not getattr(self, "_released", True) and self._pid == os.getpid():
            warnings.warn(f"{self.address}: the client was not closed", ResourceWarning, 2)
            with contextlib.suppress(RuntimeError):  # the interpreter is ending
                self._loop.call_soon_threadsafe(self._shell.drop)
                self._release()

    def _end(self, how: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._released or self._pid != os.getpid():
            return
        try:
            self._wait_for(how())
        finally:
            self._release()

    def _release(self) -> None:
        if not self._released:
            self._released = True
            _open.discard(self)
            loop_thread.release()

    def _await_room(self, limit_s: float) -> None:
        shell, until = self._shell, time.monotonic() + limit_s
        if loop_thread.is_ours():
            return
        while not shell.may_publish():
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise shell.stalled()
            shell.changed.wait(min(left_s, _FOREVER_S))

    def _look(self) -> None:
        """Let the background thread take what has come before we say that nothing has."""
        looked = threading.Event()

        def once_more() -> None:
            self._loop.call_soon(self._loop.call_soon, looked.set)

        if self._released or self._pid != os.getpid():
            return
        self._loop.call_soon_threadsafe(once_more)
        looked.wait(self._shell.settings.timeout_s)

    def _wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._released or self._pid != os.getpid():
            coroutine.close()
            with self._shell.changed:
                self._shell.may_publish()  # raises why it is closed
            raise AssertionError("a released client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def _receive(shell: Shell, subscribed: Subscribed | None, timeout_s: float) -> Message | None:
    """Return the next message, None if none comes within ``timeout_s`` or a mark does."""
    item = _next(shell, subscribed, timeout_s, to_its_end=False)
    return None if isinstance(item, Mark) else item


def _next(
    shell: Shell, subscribed: Subscribed | None, timeout_s: float, *, to_its_end: bool
) -> Message | Mark | None:
    """Return the next that comes within ``timeout_s``, else None; with ``to_its_end`` None as soon
    as the subscription has ended and nothing is left of it."""
    with shell.lock:
        item = shell.take(subscribed)
        if item is None and timeout_s > 0:
            until = time.monotonic() + timeout_s
            while item is None and (left_s := until - time.monotonic()) > 0:
                if to_its_end and shell.has_ended(subscribed):
                    break
                shell.changed.wait(min(left_s, _FOREVER_S))
                item = shell.take(subscribed)
    return item


def _each(
    shell: Shell, subscribed: Subscribed | None, timeout_s: float | None
) -> Iterator[Message]:
    """Every message, until none comes for ``timeout_s``, the subscription has ended, or the client
    is closed."""
    wait_s = math.inf if timeout_s is None else timeout_s
    while True:
        try:
            item = _next(shell, subscribed, wait_s, to_its_end=True)
        except ClientError:
            if shell.closed_by_us:
                return
            raise
        if item is None:
            return
        if isinstance(item, Message):
            yield item


_open: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _close_all() -> None:
    """At the end of the program: what was published is sent, within two seconds."""
    for client in list(_open):
        if client._pid == os.getpid():
            client._end(lambda calling=client._calling: calling.close(_EXIT_S))  # type: ignore[misc]


atexit.register(_close_all)
