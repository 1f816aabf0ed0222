"""What both faces of a client share: one broker, through as many connections as it takes.

The shell lives in one event loop. What only adds to what will be sent (``publish``, ``subscribe``,
``respond`` …) and ``take`` may be called from any thread; what waits is a coroutine of the loop.
Nothing grows without bound: what waits to be sent is at most 1 MiB (a publisher waits), what waits
to be read 4 MiB (then the shell reads no more, so that the broker's own rule for slow receivers
applies; while an answer is awaited 64 MiB, then the connection ends).

Why so long: it is one state, guarded by one lock.
"""

import asyncio
import contextlib
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from host_broker.address import Address
from host_broker.client.arguments import payload_bytes, require_properties, require_text
from host_broker.client.backoff import Backoff
from host_broker.client.connection import Connection
from host_broker.client.inbox import Mark
from host_broker.client.sessions import new_session, option_values, with_who_can
from host_broker.client.subscriptions import Subscribed, Subscriptions
from host_broker.client.unconfirmed import Unconfirmed
from host_broker.client_errors import (
    BadArgument,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    NotSupported,
    Refused,
    Timeout,
)
from host_broker.client_session import (
    Ability,
    Active,
    ClientSession,
    Closed,
    Done,
    Dropped,
    Event,
    Failed,
    Message,
    Messages,
    Publication,
    Ready,
    Subscription,
)

UNREAD_BYTES = 4 * 1024 * 1024
MOST_UNREAD_BYTES = 64 * 1024 * 1024
_MOST_WILLS = 64
_LOOK_S = 0.1  # how soon a broker that was just started is found

# Called in the loop's thread: None: connected (again); an error: lost, and trying again.
Watcher = Callable[[ClientError | None], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a client behaves; ``connect`` says what each means."""

    timeout_s: float = 5.0
    wait_s: float | None = None
    reconnect: bool = False
    calls: str | None = None
    unseen: bool = False
    watcher: Watcher | None = None
    unread_bytes: int = UNREAD_BYTES


class Shell:
    """One client. Made anywhere; ``open`` begins it in a loop."""

    def __init__(self, address: Address, settings: Settings) -> None:
        """Raises ``BadArgument`` for what the address says and the protocol cannot carry."""
        self.address = address
        self.settings = settings
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.connections = 0
        self.wills: list[Publication] = []
        self.trouble: ClientError | None = None  # why there is no connection now
        self.on_restored: Callable[[], None] | None = None
        self._options = option_values(address)
        self._unseen = settings.unseen and not address.client_id
        self.session = self._new_session(self._unseen)
        self._next_session: ClientSession | None = self.session
        self._connection: Connection | None = None
        self._fatal: ClientError | None = None
        self._closed_by_us = False
        self._backoff = Backoff()
        self._trying: asyncio.Task[None] | None = None
        self._operations: dict[int, tuple[Connection, asyncio.Future[object]]] = {}
        self._marks: set[int] = set()
        self._last_number = 0
        self._subscriptions = Subscriptions(
            lambda pattern, topic: self.session.matches(pattern, topic)
        )
        self._unconfirmed = Unconfirmed()
        # Why the latest publication is none of which only the next sync tells.
        self._unsent: ClientError | None = None
        self._waiting: list[asyncio.Future[None]] = []  # for anything but messages
        self._paused = False
        self._ready: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        _shells.add(self)

    # ---- the connection -------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. Raises what went wrong when there is no next try."""
        settings = self.settings
        self._loop = asyncio.get_running_loop()
        wait_s = settings.wait_s
        if wait_s is None:
            wait_s = math.inf if settings.reconnect else 0.0
        until = time.monotonic() + wait_s
        try:
            while True:
                try:
                    await self._connect()
                    break
                except ClientError as error:
                    soon = isinstance(error, ConnectFailed) and error.nobody_listens
                    again = self._backoff.is_loss(error) if settings.reconnect else soon
                    pause_s = self._backoff.next_s() if settings.reconnect else _LOOK_S
                    if again and settings.reconnect and wait_s <= 0:
                        self._tell(error)
                        self._trying = asyncio.create_task(self._try_again())
                        break
                    if not again or time.monotonic() + pause_s >= until:
                        raise
                    if settings.reconnect:
                        self._tell(error)
                    await asyncio.sleep(pause_s)
            if settings.reconnect and self._connection is not None:
                self._tell(None)
        except BaseException as error:
            failed = error if isinstance(error, ClientError) else None
            await self.close(0.0, failed)
            raise

    async def close(self, timeout_s: float, error: ClientError | None = None) -> None:
        """Send what is waiting, at most so long, and close. Twice is harmless."""
        with self.lock:
            if self._closed_by_us:
                return
            self._require_its_loop()
            self._closed_by_us = True
            connection, trying = self._connection, self._trying
            self._end(error or self._is_closed())
        if trying is not None:
            trying.cancel()
            await asyncio.wait([trying])
        if connection is not None:
            await connection.close(timeout_s)

    async def abort(self) -> None:
        """Reset the connection, as when a program dies."""
        with self.lock:
            connection = self._connection
            self._end(self._is_closed())
            if connection is not None:
                connection.abort(self._is_closed())
        await self.close(0.0)

    def drop(self) -> None:
        """Give everything up at once: nobody has this client any more. In the loop's thread."""
        with self.lock:
            self._closed_by_us = True
            if self._trying is not None:
                self._trying.cancel()
            if self._connection is not None:
                self._connection.abort(self._is_closed())

    def ignore_others(self) -> None:
        """Keep no message but those of subscriptions that are read by themselves."""
        with self.lock:
            self._subscriptions.ignore_others()
            self._acknowledge()
            self._resume_if_read()

    def interrupt(self, error: ClientError) -> None:
        """Give up the living connection; with ``reconnect`` there will be another. In the loop."""
        with self.lock:
            if self._connection is not None:
                self._connection.abort(error)

    @property
    def closed(self) -> bool:
        """Whether there is no connection and none will come."""
        return self._fatal is not None

    @property
    def closed_by_us(self) -> bool:
        """Whether ``close`` or ``abort`` was called."""
        return self._closed_by_us

    @property
    def doubt(self) -> str:
        """How an error text should end: a question if the peer has never said a word, else ""."""
        return self.session.doubt

    @property
    def name(self) -> str:
        """The client's name, "" if the protocol has none."""
        return self.session.name

    @property
    def can(self) -> frozenset[Ability]:
        """What the protocol can do."""
        return self.session.can

    @property
    def unconfirmed(self) -> int:
        """With ``reconnect``: messages of which nobody knows yet whether they arrived."""
        return len(self._unconfirmed)

    async def _connect(self) -> None:
        """Make one connection, from the dial to what is restated on it."""
        timeout_s = self.settings.timeout_s
        until = time.monotonic() + timeout_s
        try:
            await self._connect_as(until, unseen=self._unseen)
        except Refused as error:
            if not (self._unseen and error.of_name):
                raise
            # A broker that does not know clients whom nobody sees: then as everybody does.
            self._unseen = False
            await self._connect_as(until, unseen=False)

    async def _connect_as(self, until: float, *, unseen: bool) -> None:
        timeout_s = self.settings.timeout_s
        loop = asyncio.get_running_loop()
        session = self._next_session or self._new_session(unseen, self.session.name)
        self._next_session = None
        self._ready = ready = loop.create_future()
        try:
            connection = await Connection.connect(
                session,
                self.address,
                timeout_s,
                until,
                self.lock,
                self._take,
                self._lost,
            )
        except BaseException:
            ready.cancel()  # nobody awaits it any more
            raise
        self.session = session
        try:
            try:
                async with asyncio.timeout(max(0.0, until - time.monotonic())):
                    await asyncio.shield(ready)
            except TimeoutError:
                raise Timeout(
                    f"{self.address} {session.handshake} before the deadline{session.doubt}"
                ) from None
            if self.settings.reconnect:
                # A port that accepts and hangs up is no broker: wait longer then.
                await self._operate_on(connection, session.sync, timeout_s)
            with self.lock:
                if connection.ended is not None:
                    raise connection.ended
                self._connection = connection
                self.connections += 1
                self._backoff.well()
                self._restate(session)
                connection.flush()
                self.changed.notify_all()
        except BaseException as error:
            ready.cancel()
            lost = error if isinstance(error, ClientError) else self._is_closed()
            connection.abort(lost)
            raise

    def _draft(self) -> ClientSession:
        """Return a session that finds out what is possible at all, while there is no connection."""
        return self._new_session(False, self.session.name)

    def _restate(self, session: ClientSession) -> None:
        """Say again on a new connection what holds for all."""
        now = time.monotonic()
        for will in self.wills:
            session.publish(will, now)
        for subscribed in self._subscriptions:
            self._happened(session.subscribe(subscribed.spec, now))
        for publication in list(self._unconfirmed):
            try:
                session.publish(publication, now)
            except BadArgument as error:  # known of this broker only; no other one waits for it
                self._unsent = ClientError(f"'{publication.topic}' was not published: {error}")
        if self.on_restored is not None:
            self.on_restored()
        self._mark(session)

    def _lost(self, connection: Connection, error: ClientError) -> None:
        """The connection has ended; called once for each, with the lock held."""
        for number, (on, future) in list(self._operations.items()):
            if on is connection:
                self._operations.pop(number)
                if not future.done():
                    future.set_exception(error)
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(error)
        if self._connection is not connection:
            return
        self._connection = None
        self._paused = False
        if self._closed_by_us or not (self.settings.reconnect and self._backoff.is_loss(error)):
            self._end(error)
            return
        self._unconfirmed.lost()
        self._subscriptions.lost()
        self._marks.clear()
        for subscribed in self._subscriptions:
            self._subscriptions.mark(subscribed, active=False)
        self._tell(error)
        self._trying = asyncio.get_running_loop().create_task(self._try_again())

    async def _try_again(self) -> None:
        while True:
            await asyncio.sleep(self._backoff.next_s())
            try:
                await self._connect()
            except ClientError as error:
                if not self._backoff.is_loss(error):
                    with self.lock:
                        self._end(error)
                    return
                self._tell(error)
            except BadArgument as error:  # e.g. a file of the address that is gone now
                with self.lock:
                    self._end(ClientError(str(error)))
                return
            else:
                self._tell(None)
                return

    def _tell(self, trouble: ClientError | None) -> None:
        with self.lock:
            self.trouble = trouble
            self.changed.notify_all()
            self._wake()
        if self.settings.watcher is not None:
            self.settings.watcher(trouble)

    def _end(self, error: ClientError) -> None:
        """There is no connection any more, and none will come."""
        if self._fatal is None:
            self._fatal = error
            self.trouble = error
            self._connection = None
        self.changed.notify_all()
        self._wake()

    def _wake(self) -> None:
        if os.getpid() == self._pid:
            self._subscriptions.wake()
        self._wake_publishers()

    def _wake_publishers(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    def _is_closed(self) -> ConnectionLost:
        return ConnectionLost(f"the connection to {self.address} is closed; connect again")

    def _new_session(self, unseen: bool, name: str = "") -> ClientSession:
        calls = self.settings.calls
        return new_session(self.address, self._options, name=name, calls=calls, unseen=unseen)

    # ---- what comes -----------------------------------------------------------------------

    def _take(self, connection: Connection, events: Sequence[Event]) -> None:
        if not events:
            self.changed.notify_all()  # there is room for what a publisher has
            self._wake()
            return
        self._happened(events)
        if self._subscriptions.unread_bytes > self.settings.unread_bytes:
            if self._subscriptions.unread_bytes > MOST_UNREAD_BYTES:
                connection.abort(
                    ClientError(
                        f"more than {MOST_UNREAD_BYTES >> 20} MiB of messages are unread; the "
                        "connection was closed; read more often, or ping and sync on another "
                        "connection"
                    )
                )
            elif not (self._paused or self._operations or self._publisher_waits(connection)):
                self._paused = True
                connection.pause()

    def _happened(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Messages):
                self._subscriptions.deliver(event)
                self._acknowledge()
            elif isinstance(event, Done):
                self._settle(event.operation, event.result)
            elif isinstance(event, Active):
                subscribed = self._subscriptions.get(event.subscription)
                if subscribed is not None:
                    self._subscriptions.mark(subscribed, active=True)
            elif isinstance(event, Dropped):
                subscribed = self._subscriptions.get(event.subscription)
                if subscribed is not None:
                    subscribed.dropped += event.count
            elif isinstance(event, Failed):
                self._refuse(event.operation, event.error)
            elif isinstance(event, Ready):
                if self._ready is not None and not self._ready.done():
                    self._ready.set_result(None)
            elif isinstance(event, Closed):
                break
        self.changed.notify_all()
        self._wake_publishers()

    def _refuse(self, number: int, error: ClientError) -> None:
        subscribed = self._subscriptions.get(number)
        if subscribed is None:
            self._settle(number, error)
        else:
            subscribed.refused = error
            subscribed.confirmed.set()
            self._subscriptions.wake()

    def _settle(self, number: int, result: object) -> None:
        if number in self._marks:
            self._marks.remove(number)
            self._unconfirmed.reached(number)
            if isinstance(result, ClientError):
                self._unsent = result  # the program has not asked for this; its next sync tells it
            if self._connection is not None:
                self._mark(self._connection.session)
            return
        _, future = self._operations.pop(number, (None, None))
        if future is not None and not future.done():
            if isinstance(result, ClientError):
                future.set_exception(result)
            else:
                future.set_result(result)

    # ---- reading --------------------------------------------------------------------------

    def take(self, subscribed: Subscribed | None) -> Message | Mark | None:
        """Return the next that has come, for a subscription or (None) for nobody else.

        None if there is nothing; raises why, if nothing will come any more. With the lock held.
        """
        item = self._subscriptions.take(subscribed)
        self._acknowledge()
        if item is None:
            if subscribed is not None and subscribed.refused is not None:
                raise subscribed.refused
            if self._fatal is not None:
                raise self._fatal
        else:
            self._resume_if_read()
        return item

    def finish(self) -> None:
        """The program has finished with all that it took."""
        with self.lock:
            self._subscriptions.finish()
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Tell the broker what the program has finished with, together with what else is sent."""
        finished, connection = self._subscriptions.finished, self._connection
        if not finished:
            return
        if connection is not None:
            for message in finished:
                connection.session.acknowledge(message)
            connection.send_soon()
        finished.clear()

    def claim(self, subscribed: Subscribed) -> None:
        """What comes for a subscription is for who reads it, from now on."""
        with self.lock:
            self._subscriptions.inbox_of(subscribed)

    def _soon(self, act: Callable[..., object], *arguments: object) -> None:
        """Have the loop's thread do it."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(act, *arguments)

    @staticmethod
    def _publisher_waits(connection: Connection) -> bool:
        return connection.backlog_is_full or not connection.session.credit

    def _read_on(self, connection: Connection) -> None:
        """What is awaited comes behind what is unread."""
        if self._paused:
            self._paused = False
            self._soon(connection.resume)

    def _resume_if_read(self) -> None:
        """Read again, if enough was taken of what had come."""
        if not self._paused or self._subscriptions.unread_bytes > self.settings.unread_bytes // 2:
            return
        self._paused = False
        if self._connection is not None:
            self._soon(self._connection.resume)

    # ---- saying ---------------------------------------------------------------------------

    def may_publish(self) -> bool:
        """Whether ``publish`` would not exceed a bound now. With the lock held; raises why, if
        nothing can be published any more."""
        if self._fatal is not None:
            raise self._fatal
        if self.settings.reconnect and self._unconfirmed.full:
            return False
        connection = self._connection
        if connection is None:
            return self.settings.reconnect
        if self._publisher_waits(connection):
            # The broker may be waiting for us to read what we published to ourselves.
            self._read_on(connection)
            return False
        return True

    def stalled(self) -> Timeout:
        """Return the error of a publisher that waited too long; ends the connection."""
        connection = self._connection
        if connection is not None and connection.backlog_is_full:
            error = Timeout(
                f"{self.address} took no more bytes before the deadline (a subscriber of this "
                "topic may be stalled); the connection was closed"
            )
            self._soon(self.interrupt, error)
            return error
        if connection is not None and not connection.session.credit:
            return Timeout(
                f"{self.address} did not acknowledge earlier messages before the deadline; some "
                "brokers never do (see the dialects of the protocol)"
            )
        return Timeout(
            f"{len(self._unconfirmed)} messages wait for {self.address}, more are not held"
        )

    def publish(self, publication: Publication) -> None:
        """Publish; ``may_publish`` said that there is room. Raises ``BadArgument``, and why, if
        nothing can be published any more."""
        require_text(publication.topic)
        if publication.properties is not None:
            require_properties(publication.properties)
        publication.payload = payload_bytes(publication.payload)
        with self.lock:
            if self._fatal is not None:
                raise self._fatal
            if publication.will and self.settings.reconnect and len(self.wills) >= _MOST_WILLS:
                raise BadArgument(f"a client that reconnects has {_MOST_WILLS} wills at most")
            connection, now = self._connection, time.monotonic()
            session = self._draft() if connection is None else connection.session
            try:  # not by ``_telling_whose_fault``, which half of a publication's time would go to
                session.publish(publication, now)
            except NotSupported as error:
                raise with_who_can(error) from None
            except UnicodeEncodeError as error:
                raise BadArgument(str(error)) from error
            if self.settings.reconnect:
                if publication.will:
                    self.wills.append(publication)
                else:
                    self._unconfirmed.hold(publication)
                    if connection is not None:
                        self._mark(session)
            if connection is not None:
                connection.collect(now)

    def subscribe(self, patterns: tuple[str, ...], **how: object) -> Subscribed:
        """Subscribe; see ``Subscription``. Raises ``BadArgument``."""
        if not patterns:
            raise BadArgument("there is nothing to subscribe to: give at least one pattern")
        require_text(*patterns)
        with self.lock:
            if self._fatal is not None:
                raise self._fatal
            self._last_number += 1
            spec = Subscription(self._last_number, patterns, **how)  # type: ignore[arg-type]
            subscribed = Subscribed(spec)
            connection = self._connection
            session = self._draft() if connection is None else connection.session
            with self._telling_whose_fault():
                events = session.subscribe(spec, time.monotonic())
            self._subscriptions.add(subscribed)
            if connection is not None:
                if events:
                    self._soon(self._happened_later, events)
                connection.collect(time.monotonic())
            return subscribed

    def unsubscribe(self, subscribed: Subscribed) -> None:
        """End a subscription; twice is harmless. What has come for it can still be read."""
        with self.lock:
            if subscribed not in self._subscriptions:
                return
            self._subscriptions.finish(subscribed)
            self._acknowledge()
            connection = self._connection
            if connection is not None:
                connection.session.unsubscribe(subscribed.spec, time.monotonic())
                connection.collect(time.monotonic())
            # What the program did not take is the broker's again, which knows that by now.
            self._subscriptions.remove(subscribed)
            self._acknowledge()
            self._resume_if_read()
            # For what another one has got of it, and for who iterates over this one.
            self._soon(self._subscriptions.wake, subscribed)
            self.changed.notify_all()

    def has_ended(self, subscribed: Subscribed | None) -> bool:
        """Whether nothing more will come for a subscription, because it was ended. With the lock
        held."""
        return subscribed is not None and subscribed not in self._subscriptions

    def unsubscribe_pattern(self, pattern: str, *, feedback: bool) -> None:
        """End the subscriptions to exactly this pattern, also one that was never made."""
        require_text(pattern)
        with self.lock, self._telling_whose_fault():
            if self._fatal is not None:
                raise self._fatal
            found = [
                subscribed
                for subscribed in self._subscriptions
                if subscribed.spec.patterns == (pattern,) and subscribed.spec.feedback == feedback
            ]
            for subscribed in found:
                self.unsubscribe(subscribed)
            if not found and self._connection is not None:
                spec = Subscription(0, (pattern,), feedback=feedback)
                self._connection.session.unsubscribe(spec, time.monotonic())
                self._connection.collect(time.monotonic())

    def respond(self, message: Message, payload: bytes) -> None:
        """Answer a message."""
        payload = payload_bytes(payload)
        with self.lock:
            if self._fatal is not None:
                raise self._fatal
            connection = self._connection
            if connection is None:
                return  # the question is of a connection that is gone
            with self._telling_whose_fault():
                connection.session.respond(message, payload, time.monotonic())
            connection.collect(time.monotonic())

    def everything(self, levels: int | None) -> tuple[str, ...]:
        """Return patterns for every topic."""
        with self._telling_whose_fault():
            return self.session.everything(levels)

    def require(self, abilities: Iterable[Ability]) -> None:
        """Raise ``NotSupported`` for the first that the protocol has not."""
        with self._telling_whose_fault():
            self.session.require(dict.fromkeys(abilities, True))

    def _happened_later(self, events: Sequence[Event]) -> None:
        with self.lock:
            self._happened(events)

    def _mark(self, session: ClientSession) -> None:
        """Ask what the broker has, if it is time for that."""
        if self.settings.reconnect and self._unconfirmed.wants_mark:
            number = self._next_number()
            self._marks.add(number)
            self._unconfirmed.mark(number)
            missing = session.sync(number, time.monotonic())
            self._soon(self._await_mark, number, missing)

    def _await_mark(self, number: int, missing: str) -> None:
        """A broker that answers nothing for so long is as good as lost."""

        def late() -> None:
            if number in self._marks:
                self.interrupt(Timeout(f"{self.address} {missing} before the deadline"))

        asyncio.get_running_loop().call_later(self.settings.timeout_s, late)

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    @contextlib.contextmanager
    def _telling_whose_fault(self) -> Iterator[None]:
        try:
            yield
        except NotSupported as error:
            raise with_who_can(error) from None
        except UnicodeEncodeError as error:  # half of a surrogate pair is no text that can be sent
            raise BadArgument(str(error)) from error

    # ---- asking ---------------------------------------------------------------------------

    async def sync(self, timeout_s: float | None) -> None:
        """Return when the broker has processed everything sent before. Raises why, once, if
        something before it is nothing that this broker takes."""
        await self._steadily(lambda session: session.sync, timeout_s)
        with self.lock:
            unsent, self._unsent = self._unsent, None
        if unsent is not None:
            raise unsent

    async def ping(self, timeout_s: float | None) -> float:
        """Return the seconds of a round trip."""
        result = await self._operate(lambda session: session.ping, timeout_s)
        return result if isinstance(result, float) else 0.0

    async def request(self, topic: str, payload: bytes, timeout_s: float | None) -> bytes:
        """Publish and return the payload of the answer to this message."""
        require_text(topic)
        payload = payload_bytes(payload)

        def begin(session: ClientSession) -> Callable[[int, float], str]:
            return lambda number, now: session.request(number, topic, payload, now)

        result = await self._operate(begin, timeout_s)
        return result if isinstance(result, bytes) else b""

    async def active(self, subscribed: Subscribed, timeout_s: float | None) -> None:
        """Return when a subscription with ``confirm`` is active."""
        limit_s = self.settings.timeout_s if timeout_s is None else timeout_s
        subscribed.awaited = True
        try:
            await self._operate(lambda session: session.sync, limit_s)
        except Refused as error:
            if error is self._fatal:
                raise
            self._unsent = error  # a publication was; that is no matter of the subscription
        try:
            async with asyncio.timeout(limit_s):
                await subscribed.confirmed.wait()
        except TimeoutError:
            raise Timeout(
                f"{self.address} did not confirm a subscription before the deadline{self.doubt}"
            ) from None
        if subscribed.refused is not None:
            raise subscribed.refused

    async def call(self, target: str, payload: bytes, timeout_s: float | None) -> bytes:
        """Ask a client that this connection can call, and return the payload of its answer."""

        def begin(session: ClientSession) -> Callable[[int, float], str]:
            return lambda number, now: session.call(number, target, payload, now)

        result = await self._operate(begin, timeout_s)
        return result if isinstance(result, bytes) else b""

    async def next_of(
        self, subscribed: Subscribed | None, timeout_s: float, *, to_its_end: bool = False
    ) -> Message | Mark | None:
        """Return the next that comes within ``timeout_s``, else None; with ``to_its_end`` None as
        soon as the subscription has ended and nothing is left of it."""
        until = time.monotonic() + timeout_s
        while True:
            with self.lock:
                item = self.take(subscribed)
                if item is not None or (to_its_end and self.has_ended(subscribed)):
                    return item
                waiting = self._subscriptions.inbox_of(subscribed).waiting
            if not await self._in_time(waiting, until):
                return None

    async def room(self, timeout_s: float) -> None:
        """Return when ``may_publish``; raises ``Timeout``."""
        self._require_its_loop()
        until = time.monotonic() + timeout_s
        while True:
            with self.lock:
                if self.may_publish():
                    return
            if not await self._in_time(self._waiting, until):
                with self.lock:
                    raise self.stalled()

    async def stay(self, timeout_s: float) -> None:
        """Return after ``timeout_s``; raises as soon as the connection has ended for good."""
        until = time.monotonic() + timeout_s
        while True:
            with self.lock:
                self.may_publish()  # raises why, if it has ended
            if not await self._in_time(self._waiting, until):
                return

    async def _in_time(self, those: "list[asyncio.Future[None]]", until: float) -> bool:
        """Wait to be woken with ``those``; False if it is ``until`` before."""
        self._require_its_loop()
        left_s = until - time.monotonic()
        if left_s <= 0:
            return False
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self.lock:
            those.append(waiting)
        try:
            async with asyncio.timeout(None if left_s == math.inf else left_s):
                await waiting
        except TimeoutError:
            return False
        finally:
            with self.lock:
                if waiting in those:
                    those.remove(waiting)
        return True

    async def _steadily(
        self, begin: Callable[[ClientSession], Callable[[int, float], str]], timeout_s: float | None
    ) -> object:
        """Operate; with ``reconnect`` on one connection after the other, within ``timeout_s``."""
        if not self.settings.reconnect:
            return await self._operate(begin, timeout_s)
        limit_s = self.settings.timeout_s if timeout_s is None else timeout_s
        until = time.monotonic() + limit_s
        while True:
            with self.lock:
                if self._fatal is not None:
                    raise self._fatal
                connection = self._connection
            if connection is not None:
                left_s = min(self.settings.timeout_s, until - time.monotonic())
                try:
                    return await self._operate_on(
                        connection, begin(connection.session), max(0.0, left_s)
                    )
                except Timeout as error:
                    self.interrupt(error)
                except ConnectionLost:
                    pass  # there will be another
                if time.monotonic() < until:
                    continue
            elif await self._in_time(self._waiting, until):
                continue
            raise self.trouble or Timeout(f"{self.address} did not answer before the deadline")

    async def _operate(
        self, begin: Callable[[ClientSession], Callable[[int, float], str]], timeout_s: float | None
    ) -> object:
        limit_s = self.settings.timeout_s if timeout_s is None else timeout_s
        with self.lock:
            if self._fatal is not None:
                raise self._fatal
            connection = self._connection
        if connection is None:
            raise self.trouble or self._is_closed()
        return await self._operate_on(connection, begin(connection.session), limit_s)

    async def _operate_on(
        self, connection: Connection, begin: Callable[[int, float], str], limit_s: float
    ) -> object:
        self._require_its_loop()
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        with self.lock:
            if connection.ended is not None:
                raise connection.ended
            number = self._next_number()
            with self._telling_whose_fault():
                missing = begin(number, time.monotonic())
            self._operations[number] = (connection, future)
            connection.flush()
            self._read_on(connection)
        try:
            async with asyncio.timeout(None if limit_s == math.inf else limit_s):
                return await future
        except TimeoutError:
            text = f"{self.address} {missing} before the deadline{connection.session.doubt}"
            raise Timeout(text) from None
        finally:
            with self.lock:
                self._operations.pop(number, None)
                connection.session.forget(number)

    def _require_its_loop(self) -> None:
        """Raise ``ConnectionLost`` in an event loop that does not serve the connection: what comes
        would wake nobody there."""
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            raise ConnectionLost(
                f"the connection to {self.address} belongs to another event loop, such as that of "
                "an asyncio.run before; connect again in this one"
            )

    # ---- fork -----------------------------------------------------------------------------

    def forsake(self) -> None:
        """We are in a child of the process this belongs to: leave the parent's connection alone."""
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        connection, self._connection = self._connection, None
        self._fatal = ConnectionLost(
            f"the connection to {self.address} belongs to the process that forked this one; "
            "connect again"
        )
        self._closed_by_us = True
        if connection is not None:
            connection.forsake()


_shells: "weakref.WeakSet[Shell]" = weakref.WeakSet()


def _forsake_all() -> None:
    for shell in list(_shells):
        shell.forsake()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forsake_all)
