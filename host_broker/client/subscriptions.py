"""A client's subscriptions, and the messages that have come for them and were not taken yet.

No sockets, no clock, no lock: its user holds one. Messages of subscriptions that nobody reads by
themselves are in one inbox, in the order in which they came.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from host_broker.client.inbox import OVERHEAD_BYTES, Inbox, Mark
from host_broker.client_errors import ClientError
from host_broker.client_session import Message, Messages, Subscription

_KNOWN_TOPICS = 8192


class Subscribed:
    """One subscription. ``inbox``: its own, once somebody reads it. ``active``: as far as its
    reader has read; ``confirmed``: as far as the broker has said. ``awaited``: who made it waits
    until it is active, and need not be told so. ``refused``: it never will be.
    """

    def __init__(self, spec: Subscription) -> None:
        self.spec = spec
        self.inbox: Inbox | None = None
        self.active = False
        self.confirmed = asyncio.Event()
        self.awaited = False
        self.refused: ClientError | None = None


class Subscriptions:
    """Of one client. ``matches(pattern, topic)`` is the protocol's rule.

    A message is for every subscription that is read by itself and matches it; if there is none, it
    is for ``inbox``. ``unread_bytes`` is about the memory of all that was not taken yet.
    """

    def __init__(self, matches: Callable[[str, str], bool]) -> None:
        self.inbox = Inbox()
        self.unread_bytes = 0
        self._matches = matches
        self._all: dict[int, Subscribed] = {}
        self._attached: list[Subscribed] = []
        self._routes: dict[tuple[str, bool], tuple[Inbox, ...]] = {}
        self._ignores_others = False

    def __iter__(self) -> Iterator[Subscribed]:
        return iter(list(self._all.values()))

    def __contains__(self, subscribed: Subscribed) -> bool:
        return subscribed.spec.number in self._all

    def get(self, number: int) -> Subscribed | None:
        """Return the subscription of that number."""
        return self._all.get(number)

    def add(self, subscribed: Subscribed) -> None:
        """Begin to deliver for a subscription."""
        self._all[subscribed.spec.number] = subscribed

    def remove(self, subscribed: Subscribed) -> None:
        """Deliver for it no longer. What has come can still be taken."""
        self._all.pop(subscribed.spec.number, None)
        if subscribed in self._attached:
            self._attached.remove(subscribed)
            self._routes.clear()

    def ignore_others(self) -> None:
        """Keep no message for ``inbox`` any more."""
        self._ignores_others = True
        self.inbox.items = deque(item for item in self.inbox.items if isinstance(item, Mark))
        self.unread_bytes = 0
        for subscribed in self._attached:
            items = self.inbox_of(subscribed).items
            self.unread_bytes += sum(
                len(item.payload) + OVERHEAD_BYTES for item in items if isinstance(item, Message)
            )

    def deliver(self, event: Messages) -> None:
        """Put messages where they will be looked for. In the loop's thread, as tasks are woken."""
        messages = event.messages
        if self._ignores_others and not self._attached:
            return
        self.unread_bytes += len(messages) * OVERHEAD_BYTES
        self.unread_bytes += sum([len(message.payload) for message in messages])
        if not self._attached:
            self.inbox.put(messages)
            return
        if event.subscription is not None:
            known = self._all.get(event.subscription)
            inbox = None if known is None else known.inbox
            (inbox or self.inbox).put(messages)
            self._drop_others()
            return
        for message in messages:
            inboxes = self._routes.get((message.topic, message.feedback)) or self._route(message)
            for inbox in inboxes:
                inbox.put((message,))
            if len(inboxes) > 1:
                self.unread_bytes += (len(inboxes) - 1) * (len(message.payload) + OVERHEAD_BYTES)
        self._drop_others()

    def mark(self, subscribed: Subscribed, *, active: bool) -> None:
        """Say, between the messages, that a subscription became active or was interrupted."""
        if subscribed.spec.confirm:
            (subscribed.inbox or self.inbox).put((Mark(subscribed.spec.number, active),))
            if active:
                subscribed.confirmed.set()
            else:
                subscribed.confirmed.clear()

    def take(self, subscribed: Subscribed | None) -> Message | Mark | None:
        """Return the next that has come, for a subscription or (None) for nobody else."""
        items = self.inbox.items if subscribed is None else self.inbox_of(subscribed).items
        while items:
            item = items.popleft()
            if type(item) is Message:
                self.unread_bytes -= len(item.payload) + OVERHEAD_BYTES
                return item
            if subscribed is not None and isinstance(item, Mark):
                subscribed.active = item.active
                if not (item.active and subscribed.awaited):
                    return item
                subscribed.awaited = False
        return None

    def inbox_of(self, subscribed: Subscribed | None) -> Inbox:
        """Return where ``take`` looks. A subscription has its own from now on."""
        if subscribed is None:
            return self.inbox
        return subscribed.inbox or self._attach(subscribed)

    def wake(self) -> None:
        """Let every waiting task look again."""
        self.inbox.wake()
        for subscribed in self._attached:
            if subscribed.inbox is not None:
                subscribed.inbox.wake()

    def _drop_others(self) -> None:
        while self._ignores_others and self.inbox.items:
            item = self.inbox.items.popleft()
            if isinstance(item, Message):
                self.unread_bytes -= len(item.payload) + OVERHEAD_BYTES

    def _route(self, message: Message) -> tuple[Inbox, ...]:
        found = tuple(
            subscribed.inbox
            for subscribed in self._attached
            if subscribed.inbox is not None and self._is_for(subscribed.spec, message)
        )
        if len(self._routes) >= _KNOWN_TOPICS:
            self._routes.clear()
        route = self._routes[message.topic, message.feedback] = found or (self.inbox,)
        return route

    def _is_for(self, spec: Subscription, message: Message) -> bool:
        return spec.feedback == message.feedback and any(
            self._matches(pattern, message.topic) for pattern in spec.patterns
        )

    def _attach(self, subscribed: Subscribed) -> Inbox:
        """Give a subscription an inbox of its own, with what has come for it already."""
        inbox = subscribed.inbox = Inbox()
        rest: list[Message | Mark] = []
        for item in self.inbox.items:
            if isinstance(item, Mark):
                mine = item.subscription == subscribed.spec.number
            else:
                mine = self._is_for(subscribed.spec, item)
            (inbox.items if mine else rest).append(item)
        self.inbox.items.clear()
        self.inbox.items.extend(rest)
        if subscribed in self:
            self._attached.append(subscribed)
            self._routes.clear()
        return inbox
