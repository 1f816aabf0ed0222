"""A client's subscriptions, and the messages that have come for them and were not taken yet.

No sockets, no clock, no lock: its user holds one. Messages of subscriptions that nobody reads by
themselves are in one inbox, in the order in which they came.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from host_broker.client.inbox import OVERHEAD_BYTES, Behind, Inbox, Item, Mark
from host_broker.client_errors import ClientError
from host_broker.client_session import Message, Messages, Subscription

_KNOWN_TOPICS = 8192
_KNOWN_LEFT = 256  # subscriptions that have ended: what was under way for them is thrown away


class Subscribed:
    """One subscription. ``inbox``: its own, once somebody reads it. ``active``: as far as its
    reader has read; ``confirmed``: as far as the broker has said. ``awaited``: who made it waits
    until it is active, and need not be told so. ``refused``: it never will be. ``dropped``: so many
    messages the broker could not deliver in time.
    """

    def __init__(self, spec: Subscription) -> None:
        self.spec = spec
        self.inbox: Inbox | None = None
        self.active = False
        self.confirmed = asyncio.Event()
        self.awaited = False
        self.refused: ClientError | None = None
        self.dropped = 0


class Subscriptions:
    """Of one client. ``matches(pattern, topic)`` is the protocol's rule.

    A message is for the subscription of which the broker has told it, else for every one that is
    read by itself and matches it; if there is none, it is for ``inbox``. ``unread_bytes`` is about
    the memory of all that was not taken yet, but for what has come for a subscription that was
    removed: nothing more comes for that, and it goes with it. ``finished``: messages of which the
    broker is to be told that nobody needs them any more; its user empties it. The program has
    finished with a message when it asks for the next one.
    """

    def __init__(self, matches: Callable[[str, str], bool]) -> None:
        self.inbox = Inbox()
        self.unread_bytes = 0
        self.finished: list[Message] = []
        self._matches = matches
        self._all: dict[int, Subscribed] = {}
        self._attached: list[Subscribed] = []
        self._routes: dict[tuple[str, bool], tuple[Inbox, ...]] = {}
        self._ignores_others = False
        self._left: dict[tuple[tuple[str, ...], bool], Subscription] = {}  # the latest to end
        self._left_over: dict[tuple[str, bool], bool] = {}  # by topic: whether nobody wants it now
        # In ``inbox``: of which subscription its first messages were told, and its last ones.
        self._first_told: int | None = None
        self._last_told: int | None = None
        # Of messages that are in several inboxes, by their id: how many have not finished.
        self._copies: dict[int, int] = {}

    def __iter__(self) -> Iterator[Subscribed]:
        return iter(list(self._all.values()))

    def __contains__(self, subscribed: Subscribed) -> bool:
        return subscribed.spec.number in self._all

    def get(self, number: int) -> Subscribed | None:
        """Return the subscription of that number."""
        return self._all.get(number)

    def add(self, subscribed: Subscribed) -> None:
        """Begin to deliver for a subscription."""
        spec = subscribed.spec
        self._all[spec.number] = subscribed
        self._left.pop((spec.patterns, spec.feedback), None)
        self._left_over.clear()

    def remove(self, subscribed: Subscribed) -> None:
        """Deliver for it no longer. What has come can still be taken, but for what the broker will
        deliver again because it is not acknowledged; what is under way yet is for nobody."""
        spec = subscribed.spec
        if self._all.pop(spec.number, None) is None:
            return
        self._left[spec.patterns, spec.feedback] = spec
        if len(self._left) > _KNOWN_LEFT:
            del self._left[next(iter(self._left))]
        self._left_over.clear()
        if subscribed in self._attached:
            self._attached.remove(subscribed)
            self._routes.clear()
        for inbox in filter(None, (self.inbox, subscribed.inbox)):
            self._drop(inbox, self._is_unacknowledged)
        if subscribed.inbox is not None:
            self._hand_over(subscribed.inbox)
            self._forget_size(subscribed.inbox)

    def ignore_others(self) -> None:
        """Keep no message for ``inbox`` any more."""
        self._ignores_others = True
        self._drop(self.inbox, lambda message: True)

    def finish(self, subscribed: Subscribed | None = None) -> None:
        """The program has finished with what it took last: of a subscription (also if that is not
        read by itself), or of any."""
        attached = self._attached if subscribed is None else [subscribed]
        for inbox in filter(None, (self.inbox, *(each.inbox for each in attached))):
            message = inbox.in_hand
            if message is None:
                continue
            if subscribed is None or self._is_for(subscribed.spec, message):
                inbox.in_hand = None
                self._finish(message)

    def lost(self) -> None:
        """The connection has ended, and there will be another one: by that the broker delivers
        again what is not acknowledged, and the program is to have it once."""
        self._copies.clear()
        for inbox in filter(None, (self.inbox, *(each.inbox for each in self._attached))):
            inbox.in_hand = None
            self._drop(inbox, lambda message: message.receipt is not None)
        self.finished.clear()

    def deliver(self, event: Messages) -> None:
        """Put messages where they will be looked for. In the loop's thread, as tasks are woken."""
        messages = event.messages
        if self._left:
            messages = self._without_left(messages, event.subscription)
        if self._ignores_others and not self._attached:
            for message in messages:
                self._finish(message)
            return
        self.unread_bytes += len(messages) * OVERHEAD_BYTES
        self.unread_bytes += sum([len(message.payload) for message in messages])
        if not self._attached:
            self._put_unread(messages, event.subscription)
            return
        if event.subscription is not None:
            known = self._all.get(event.subscription)
            if known is not None and known.inbox is not None:
                known.inbox.put(messages)
            else:
                self._put_unread(messages, event.subscription)
            self._drop_others()
            return
        for message in messages:
            inboxes = self._routes.get((message.topic, message.feedback)) or self._route(message)
            for inbox in inboxes:
                inbox.put((message,))
            if len(inboxes) > 1:
                self.unread_bytes += (len(inboxes) - 1) * (len(message.payload) + OVERHEAD_BYTES)
                if message.receipt is not None:
                    self._copies[id(message)] = len(inboxes)
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
        inbox = self.inbox if subscribed is None else self.inbox_of(subscribed)
        items = inbox.items
        if inbox.in_hand is not None:
            self._finish(inbox.in_hand)
            inbox.in_hand = None
        while items:
            item = items.popleft()
            if type(item) is Message:
                if subscribed is None or subscribed in self:
                    self.unread_bytes -= _size(item)
                if item.receipt is not None:
                    inbox.in_hand = item
                return item
            if subscribed is not None and isinstance(item, Mark):
                subscribed.active = item.active
                if not (item.active and subscribed.awaited):
                    return item
                subscribed.awaited = False
            elif isinstance(item, Behind):
                self._first_told = item.subscription
        return None

    def inbox_of(self, subscribed: Subscribed | None) -> Inbox:
        """Return where ``take`` looks. A subscription has its own from now on."""
        if subscribed is None:
            return self.inbox
        return subscribed.inbox or self._attach(subscribed)

    def wake(self, ended: Subscribed | None = None) -> None:
        """Let every waiting task look again, also those who wait at one that has ``ended``."""
        self.inbox.wake()
        for subscribed in [*self._attached, *([] if ended is None else [ended])]:
            if subscribed.inbox is not None:
                subscribed.inbox.wake()

    def _put_unread(self, messages: list[Message], number: int | None) -> None:
        """Put messages where they stay until it is known who reads what."""
        if number != self._last_told:
            self._last_told = number
            self.inbox.items.append(Behind(number))
        self.inbox.put(messages)

    def _drop_others(self) -> None:
        if self._ignores_others and self.inbox.items:
            self._drop(self.inbox, lambda message: True)
            self._put_back(())

    def _told(self) -> Iterator[tuple[int | None, Message | Mark]]:
        """Give what ``inbox`` has, and of which subscription each was told."""
        told = self._first_told
        for item in self.inbox.items:
            if isinstance(item, Behind):
                told = item.subscription
            else:
                yield told, item

    def _put_back(self, kept: Iterable[tuple[int | None, Message | Mark]]) -> None:
        """Have this in ``inbox``, and nothing else."""
        items: deque[Item] = deque()
        self._first_told = last = None
        for told, item in kept:
            if told != last and isinstance(item, Message):
                items.append(Behind(told))
                last = told
            items.append(item)
        self._last_told = last
        self.inbox.items = items

    def _drop(self, inbox: Inbox, unwanted: Callable[[Message], bool]) -> None:
        """Throw messages away that were not taken. Marks stay."""

        def is_kept(item: Item) -> bool:
            if not (isinstance(item, Message) and unwanted(item)):
                return True
            self.unread_bytes -= _size(item)
            self._finish(item)
            return False

        if inbox is self.inbox:
            self._put_back([(told, item) for told, item in self._told() if is_kept(item)])
        else:
            inbox.items = deque(filter(is_kept, inbox.items))

    def _hand_over(self, inbox: Inbox) -> None:
        """Give what nobody reads here any more to another subscription that wants it. Whoever waits
        there is to look again (``wake``)."""
        kept: deque[Item] = deque()
        shared: deque[tuple[int | None, Message | Mark]] = deque()
        for item in reversed(inbox.items):
            if not isinstance(item, Message) or item.receipt is None:
                kept.appendleft(item)
                continue
            target = self._route(item)[0]
            if id(item) in self._copies or (self._ignores_others and target is self.inbox):
                self.unread_bytes -= _size(item)
                self._finish(item)
            elif target is self.inbox:
                shared.appendleft((None, item))
            else:
                target.items.appendleft(item)
        inbox.items = kept
        if shared:
            self._put_back([*shared, *self._told()])

    def _forget_size(self, inbox: Inbox) -> None:
        """What an inbox has counts no longer."""
        self.unread_bytes -= sum(_size(each) for each in inbox.items if isinstance(each, Message))

    def _is_unacknowledged(self, message: Message) -> bool:
        """Whether the broker delivers it again, and to others: nobody here subscribes to it."""
        return message.receipt is not None and not self._is_wanted(message)

    def _is_wanted(self, message: Message) -> bool:
        return any(self._is_for(each.spec, message) for each in self._all.values())

    def _is_left_over(self, message: Message) -> bool:
        """Whether it was for a subscription that has ended, and for no other."""
        key = message.topic, message.feedback
        known = self._left_over.get(key)
        if known is None:
            if len(self._left_over) >= _KNOWN_TOPICS:
                self._left_over.clear()
            left = any(self._is_for(each, message) for each in self._left.values())
            known = self._left_over[key] = left and not self._is_wanted(message)
        return known

    def _without_left(self, messages: list[Message], told: int | None) -> list[Message]:
        """Return messages without those that were under way when their subscription ended."""
        if told in self._all:
            return messages
        is_gone = told is not None
        kept: list[Message] = []
        for message in messages:
            if (is_gone and message.receipt is None) or self._is_left_over(message):
                self._finish(message)
            else:
                kept.append(message)
        return kept

    def _finish(self, message: Message) -> None:
        """Note that one inbox has finished with a message."""
        if message.receipt is None:
            return
        left = self._copies.pop(id(message), 1) - 1
        if left:
            self._copies[id(message)] = left
        else:
            self.finished.append(message)

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
        rest: list[tuple[int | None, Message | Mark]] = []
        number = subscribed.spec.number
        for told, item in self._told():
            if isinstance(item, Mark):
                mine = item.subscription == number
            elif told is None:
                mine = self._is_for(subscribed.spec, item)
            elif told in self._all or item.receipt is None:
                mine = told == number
            else:  # who was told of it has left, and somebody has to finish with it
                mine = self._is_for(subscribed.spec, item)
            if mine:
                inbox.items.append(item)
            else:
                rest.append((told, item))
        self._put_back(rest)
        if subscribed in self:
            self._attached.append(subscribed)
            self._routes.clear()
        else:
            self._forget_size(inbox)
        return inbox


def _size(message: Message) -> int:
    return len(message.payload) + OVERHEAD_BYTES
