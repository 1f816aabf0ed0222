"""The broker's own calls: what ``C<id>:["method", …]`` does, and what is answered (docs/umq.md)."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from host_broker.access.principal import own_level
from host_broker.access.rules import Action
from host_broker.broker_view import CallTopics
from host_broker.bus.commands import Ask, Command, Discard, Ping, Publish, Subscribe, Unsubscribe
from host_broker.bus.delivery import Delivery
from host_broker.bus.publication import property_fault, topic_fault
from host_broker.bus.queue import Queue
from host_broker.outputs import ConnectionId
from host_broker.protocol import NOTHING
from host_broker.protocols.umq.codec import (
    LATER,
    MALFORMED,
    NO_METHOD,
    NO_ROUTE,
    REJECTED,
    read_id,
)
from host_broker.protocols.umq.events import Attachment, Call
from host_broker.protocols.umq.patterns import REST, PatternFault, normal, read_pattern
from host_broker.protocols.umq.peer import Peer
from host_broker.protocols.umq.shared import UmqShared
from host_broker.protocols.umq.updates import (
    Topic,
    Updates,
    Waiting,
    as_text,
    spelled,
    told,
)
from host_broker.questions import (
    AskHistory,
    AskJournal,
    AskStatistics,
    AskTraffic,
    History,
    NoAnswer,
    Traffic,
)

ALERTS = "alerts/*/*"
_MOST_PLACES = 100  # remembered where pages of a client end at what it may not hear
_MOST_MS = 1 << 53  # of a time, and of an interval: what JSON's numbers hold


class Caller(Protocol):
    """Whose calls they are: a session."""

    connection: ConnectionId
    shared: UmqShared
    peer: Peer
    updates: Updates

    def answered(self, commands: Sequence[Command] = ()) -> Sequence[Command]:
        """Return what was done later for a call, with what is said of it."""

    def end_topic(self, subscription: Topic) -> Sequence[Command]:
        """Say D, and have no more of it."""


class CallFailed(Exception):
    """A call is answered with E: a code and a text; ``limit``: the one that it breaks."""

    def __init__(self, code: int, text: str, limit: str = "") -> None:
        super().__init__(f"{limit}: {text}" if limit else text)
        self.code = code
        self.limit = limit


@dataclass(slots=True)
class _Asked:
    """A call of a client on the bus that is under way: what it has answered so far."""

    call: int
    client: str
    topics: CallTopics
    reply: bytes
    done: bytes
    answer: bytes = b""


@dataclass(frozen=True, slots=True)
class _Page:
    prefix: str
    after: Any
    limit: int


@dataclass(slots=True)
class _Arguments:
    """The members of a call behind its method's name, taken in order."""

    method: str
    values: list[Any]
    attachments: Sequence[Attachment]

    def text(self, at: int, name: str) -> str:
        value = self.values[at] if at < len(self.values) else None
        if not isinstance(value, str):
            raise CallFailed(MALFORMED, f"{self.method}: {name} is a text")
        return value

    def options(self, at: int, known: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
        """Return the last member, an object with these members at most."""
        if len(self.values) > at + 1:
            raise CallFailed(MALFORMED, f"{self.method} has at most {at + 1} arguments")
        value = self.values[at] if at < len(self.values) else {}
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise CallFailed(MALFORMED, f"{self.method}: the options are an object")
        for name, each in value.items():
            kind = known.get(name)
            if kind is None:
                said = ", ".join(known) or "none"
                text = f"{self.method} has no option {name!r}; there are: {said}"
                raise CallFailed(MALFORMED, text)
            kinds = kind if isinstance(kind, tuple) else (kind,)
            if not isinstance(each, kinds) or (isinstance(each, bool) and bool not in kinds):
                raise CallFailed(MALFORMED, f"{self.method}: {name} cannot be {spelled(each)[:40]}")
        return value

    def body(self, at: int) -> bytes:
        """Return a text as bytes, or the one attachment in its place."""
        value = self.values[at] if at < len(self.values) else None
        if value is None:
            if len(self.attachments) != 1 or not isinstance(self.attachments[0], bytes):
                text = f"{self.method} has a text, or null and one attachment"
                raise CallFailed(MALFORMED, text)
            return self.attachments[0]
        if self.attachments:
            raise CallFailed(MALFORMED, f"{self.method} has a text, or an attachment")
        try:
            return self.text(at, "the body").encode()
        except UnicodeEncodeError:
            raise CallFailed(MALFORMED, f"{self.method}: the body is no text") from None


class Calls:
    """The calls of one client, from its C to our R or E, once each (R19)."""

    def __init__(self, session: Caller) -> None:
        self._session = session
        self._shared = session.shared
        self._settings = session.shared.settings
        self._until: dict[int, float] = {}  # calls that are answered later, the oldest first
        self._asked: dict[int, _Asked] = {}
        self._last_asked = 0
        self._places: dict[str, bytes] = {}  # topics that it may not hear, by what stands for them
        self._last_place = 0
        self._syncs: list[int] = []  # calls that wait until what was retained is told

    @property
    def deadline(self) -> float | None:
        """When ``tick`` is wanted."""
        return next(iter(self._until.values()), None)

    def call(self, call: Call, now: float) -> Sequence[Command]:
        """Do what a call asks for."""
        try:
            if self._session.peer.unanswered > self._settings.max_calls:
                raise CallFailed(LATER, "wait for answers to other calls", "umq.max_calls")
            arguments = _read(call)
            method = METHODS.get(arguments.method)
            if method is None:
                known = ", ".join(METHODS)
                raise CallFailed(NO_METHOD, f"there is no {arguments.method!r}; there are: {known}")
            return method(self, call.id, arguments, now)
        except CallFailed as error:
            self._fail(call.id, error.code, str(error), early=True)
            return [Discard(error.limit)] if error.limit else NOTHING

    def tick(self, now: float) -> Sequence[Command]:
        """Fail calls that nobody has answered in time."""
        commands: list[Command] = []
        for call, until in list(self._until.items()):
            if until > now:
                break
            self._fail(call, NO_ROUTE, f"no answer within {self._settings.call_timeout_s:g} s")
            for number, asked in list(self._asked.items()):
                if asked.call == call:
                    commands += self._forget(number)
        return commands

    def heard(self, delivery: Delivery) -> Sequence[Command]:
        """Take what answers calls of clients: their subscriptions have numbers below 0."""
        commands: list[Command] = []
        for each in delivery.subscriptions:
            if each >= 0:
                break  # they ascend
            number, is_done = divmod(-each, 2)
            asked = self._asked.get(number)
            if asked is None:
                continue
            for _, topic, body in delivery.each():
                if topic == asked.reply and not is_done:
                    asked.answer = body
                elif topic == asked.done and is_done and number in self._asked:
                    self._done(asked, body)
                    commands += self._forget(number)
        return commands

    def told(self) -> None:
        """More updates have been told: answer who waited for that."""
        if self._syncs and not self._session.updates.tells_kept:
            for call in self._syncs:
                self._answer(call, {})
            self._syncs.clear()

    def close(self) -> None:
        """Forget all."""
        self._until.clear()
        self._asked.clear()
        self._syncs.clear()

    # ---- answers ----

    def _answer(self, call: int, value: object, attachments: Sequence[bytes] = ()) -> None:
        self._until.pop(call, None)
        self._session.peer.answer(call, spelled(value), attachments)

    def _fail(self, call: int, code: int, text: str, *, early: bool = False) -> None:
        self._until.pop(call, None)
        self._session.peer.fail(call, code, text, early=early)

    def _wait(self, call: int, now: float) -> float:
        """Return until when an answer is waited for; that tells it from a later call of this id."""
        until = self._until[call] = now + self._settings.call_timeout_s
        return until

    def _is_late(self, call: int, until: float) -> bool:
        return self._until.get(call) != until

    def _allow(self, action: Action, path: bytes, *, prefix: bool = False) -> None:
        view, connection = self._shared.view, self._session.connection
        why = view.may(connection, action, path, prefix=prefix)
        if why:
            view.deny(connection, action, path)
            where = path.decode(errors="replace") + ("**" if prefix else "")
            raise CallFailed(REJECTED, f"you may not {action} {where!r}: {why}")

    def _refusal(self, limit: str, text: str) -> tuple[int, str]:
        """Return how a limit, or a right, is said to have refused something."""
        if limit.startswith("access."):
            return REJECTED, f"the rights do not allow it: {text}"
        if limit == "R30":
            return REJECTED, f"{text} is the broker's own"
        return LATER, f"{limit}: {text}"

    # ---- topics ----

    def _subscribe(self, call: int, arguments: _Arguments, now: float) -> Sequence[Command]:
        session = self._session
        pattern, text = arguments.text(0, "PATTERN"), arguments.text(1, "ID")
        options = arguments.options(
            2, {"every_ms": (int, float), "binary": bool, "retained": bool, "quiet": bool}
        )
        number = read_id(text, max_digits=self._settings.max_id_digits)
        if isinstance(number, str):
            raise CallFailed(MALFORMED, number)
        every_ms = options.get("every_ms", 0)
        if not 0 <= every_ms <= _MOST_MS:
            raise CallFailed(MALFORMED, "every_ms is a time, or 0")
        bus = self._shared.bus
        try:
            parts = read_pattern(pattern, wildcard_matches_service=bus.wildcard_matches_service)
        except PatternFault as error:
            raise CallFailed(MALFORMED, str(error)) from None
        if len(session.updates.topics) >= self._settings.max_subscriptions:
            raise CallFailed(LATER, "unsubscribe from others first", "umq.max_subscriptions")
        if not session.peer.open_topic(number):
            raise CallFailed(MALFORMED, f"{text} is in use")
        quiet, kept = options.get("quiet", False), options.get("retained", True)
        topic = Topic(number, pattern, every_ms / 1000, options.get("binary", False), parts)
        session.updates.topics[number] = topic
        left = len(parts)

        def answer(limit: str) -> Sequence[Command]:
            nonlocal left
            left -= 1
            if not topic.is_open:  # one of its parts was refused
                return NOTHING
            if limit:
                session.updates.end(topic)
                session.peer.forget_published(number)
                self._fail(call, *self._refusal(limit, pattern))
                made = parts[: len(parts) - left - 1]
                return session.answered([Unsubscribe(e.topic, number, e.prefix) for e in made])
            if left:
                return NOTHING
            topic.is_made = True
            self._answer(call, {"subscribed": pattern})
            return session.answered(session.end_topic(topic) if topic.is_unwanted else ())

        return [
            Subscribe(
                part.topic,
                number,
                part.filter,
                part.prefix,
                quiet=quiet or part.prefix,
                retained=kept,
                answer=answer,
            )
            for part in parts
        ]

    def _unsubscribe(self, call: int, arguments: _Arguments, now: float) -> Sequence[Command]:
        text = arguments.text(0, "ID")
        arguments.options(1, {})
        number = read_id(text, max_digits=self._settings.max_id_digits)
        topic = self._session.updates.topics.get(number) if isinstance(number, int) else None
        if topic is None:
            raise CallFailed(MALFORMED, f"{text} is no subscription")
        self._answer(call, {"unsubscribed": topic.pattern})
        return self._session.end_topic(topic)

    def _sync(self, call: int, arguments: _Arguments, now: float) -> Sequence[Command]:
        arguments.options(0, {})

        def answer(_: object) -> Sequence[Command]:
            self._syncs.append(call)
            self.told()
            return self._session.answered()

        # The broker comes to this when all that is retained for subscriptions before is here.
        return [Ask(AskTraffic(()), answer)]

    def _publish(self, call: int, arguments: _Arguments, now: float) -> Sequence[Command]:
        text, body = arguments.text(0, "TOPIC"), arguments.body(1)
        options = arguments.options(2, {"retain": bool, "properties": dict})
        retain = options.get("retain", False)
        topic = _topic(text)
        said = options.get("properties", {})
        if not all(isinstance(value, str) for value in said.values()):
            raise CallFailed(MALFORMED, "properties are texts by name")
        try:
            properties = {name: value.encode() for name, value in said.items()}
        except UnicodeEncodeError:
            raise CallFailed(MALFORMED, "a property is no text") from None
        if fault := property_fault(properties):
            raise CallFailed(MALFORMED, fault)
        if len(body) > self._shared.bus.max_body:
            most = self._shared.bus.max_body
            raise CallFailed(MALFORMED, f"a body has at most {most} bytes", "bus.max_body")
        if not body and not retain:
            raise CallFailed(MALFORMED, "an empty body is no publication; with retain it clears")

        def answer(limit: str) -> Sequence[Command]:
            if limit:
                self._fail(call, *self._refusal(limit, text))
            else:
                self._answer(call, {"published": 1})
            return self._session.answered()

        return [Publish(topic, body, retain=retain, properties=properties, answer=answer)]

    # ---- other clients ----

    def _call(self, call: int, arguments: _Arguments, now: float) -> Sequence[Command]:
        client, body = arguments.text(0, "CLIENT"), arguments.body(1)
        arguments.options(2, {})
        if not body:
            raise CallFailed(MALFORMED, "an empty call is not delivered")
        if len(body) > self._shared.bus.max_body:
            raise CallFailed(MALFORMED, "the body is too long", "bus.max_body")
        try:
            level = own_level(client) if client else b""
        except UnicodeEncodeError:  # half of a surrogate pair
            raise CallFailed(MALFORMED, "call: CLIENT is no text") from None
        found = self._shared.callable(level)
        if found is None:
            raise CallFailed(NO_ROUTE, f"no client {client!r} takes calls now")
        self._last_asked += 1
        number = self._last_asked
        tag = b"umq-%d-%d" % (self._session.connection, number)
        request, reply, done = (
            text.encode().replace(b"%c", level).replace(b"%t", tag)
            for text in (found.request, found.reply, found.done)
        )
        self._asked[number] = _Asked(call, client, found, reply, done)
        self._wait(call, now)

        def answer(limit: str) -> Sequence[Command]:
            if not limit or number not in self._asked:
                return NOTHING
            self._fail(call, *self._refusal(limit, f"call {client!r}"))
            return self._session.answered(self._forget(number))

        return [
            Subscribe(reply, -2 * number, quiet=True, retained=False, answer=answer),
            Subscribe(done, -2 * number - 1, quiet=True, retained=False, answer=answer),
            Publish(request, body, answer=answer),
        ]

    def _done(self, asked: _Asked, how: bytes) -> None:
        if how != asked.topics.answered:
            text = f"{asked.client!r} did not answer: {how.decode(errors='replace')}"
            self._fail(asked.call, NO_ROUTE, text)
            return
        text_of_it = as_text(asked.answer)
        if text_of_it is None:
            self._answer(asked.call, {"attachment": True}, [asked.answer])
        else:
            self._answer(asked.call, {"answer": text_of_it})

    def _forget(self, number: int) -> list[Command]:
        asked = self._asked.pop(number)
        return [
            Unsubscribe(asked.reply, -2 * number),
            Unsubscribe(asked.done, -2 * number - 1),
        ]

    def _ping(self, call: int, arguments: _Arguments, now: float) -> Sequence[Command]:
        client = arguments.values[0] if arguments.values else None
        arguments.options(1, {})
        if not isinstance(client, int | str) or isinstance(client, bool):
            raise CallFailed(MALFORMED, "ping: CLIENT is a name, or the number of a connection")
        self._allow("subscribe", b"$/info/clients")
        until = self._wait(call, now)

        def answer(seconds: float | None, why: str) -> Sequence[Command]:
            if self._is_late(call, until):
                return NOTHING
            if seconds is None:
                who = f"connection {client}" if isinstance(client, int) else repr(client)
                self._fail(call, NO_ROUTE, f"{who} {why}")
            else:
                self._answer(call, {"ms": round(seconds * 1000, 3)})
            return self._session.answered()

        return [Ping(client, answer)]

    # ---- what the broker knows ----

    def _clients(self, call: int, arguments: _Arguments, now: float) -> Sequence[Command]:
        page = self._page(arguments, 0)
        self._allow("subscribe", b"$/info/clients")
        facts = self._shared.view.clients(page.after, page.limit + 1)
        more = len(facts) > page.limit
        del facts[page.limit :]

        until = self._wait(call, now)

        def answer(traffic: Mapping[int, Traffic] | NoAnswer) -> Sequence[Command]:
            if self._is_late(call, until):
                return NOTHING
            told: list[dict[str, object]] = []
            for each in facts:
                seen = None if isinstance(traffic, NoAnswer) else traffic.get(each.connection)
                if seen is None:
                    seen = Traffic(0, None, 0, 0)
                told.append(
                    {
                        "id": each.connection,
                        "protocol": each.protocol,
                        "client": each.client,
                        "principal": each.principal.name,
                        "address": each.principal.address,
                        "subscriptions": {
                            "count": each.subscriptions,
                            "patterns": each.patterns,
                        },
                        "waiting_bytes": seen.waiting_bytes,
                        "rtt_ms": seen.rtt_ms,
                        "since": each.since_ms,
                        "published": each.published,
                        "received": seen.received,
                        "sent": seen.sent,
                    }
                )
            self._answer_page(call, "clients", told, facts[-1].connection if more else None)
            return self._session.answered()

        return [Ask(AskTraffic(tuple(each.connection for each in facts)), answer)]

    def _topics(self, call: int, arguments: _Arguments, now: float) -> Sequence[Command]:
        page = self._page(arguments, "")
        self._allow("subscribe", b"$/info/topics")
        view = self._shared.view
        found = view.topics(page.prefix.encode(), self._behind(page), page.limit + 1)
        told = [
            {"topic": topic.decode(errors="replace"), "retained": view.is_retained(topic)}
            for topic in found[: page.limit]
            if self._may_hear(topic)
        ]
        after = self._place(found[page.limit - 1]) if len(found) > page.limit else None
        self._answer_page(call, "topics", told, after)
        return NOTHING

    def _retained(self, call: int, arguments: _Arguments, now: float) -> Sequence[Command]:
        page = self._page(arguments, "")
        self._allow("subscribe", b"$/info/topics")
        found = self._shared.view.retained(page.prefix.encode(), self._behind(page), page.limit + 1)
        publications: list[object] = []
        attachments: list[bytes] = []
        size = taken = 0
        nobody = Topic(0, "")
        for message in found[: page.limit]:
            if taken and size + message.size > self._settings.max_answer_bytes:
                break
            taken += 1
            if not self._may_hear(message.topic):
                continue
            size += message.size
            body = message.body
            waiting = Waiting(
                nobody, message.topic, body, message.at_ms, 0, message.properties, kept=True
            )
            publications.append(told(waiting, attachments))
        after = self._place(found[taken - 1].topic) if len(found) > taken else None
        is_long = taken < min(len(found), page.limit)
        self._answer_page(call, "retained", publications, after, attachments)
        return [Discard("umq.max_answer_bytes")] if is_long else NOTHING

    def _queues(self, call: int, arguments: _Arguments, now: float) -> Sequence[Command]:
        page = self._page(arguments, "")
        self._allow("subscribe", b"$/info/queues")
        view = self._shared.view
        found = view.queues_behind(page.prefix.encode(), page.after.encode(), page.limit + 1)
        told = [_queue(queue) for queue in found[: page.limit]]
        more = len(found) > page.limit
        after = found[page.limit - 1].name.decode(errors="replace") if more else None
        self._answer_page(call, "queues", told, after)
        return NOTHING

    def _wills(self, call: int, arguments: _Arguments, now: float) -> Sequence[Command]:
        page = self._page(arguments, 0)
        self._allow("subscribe", b"$/info/wills")
        found, after = self._shared.view.wills(page.after, page.limit)
        told = [
            {
                "id": each.connection,
                "client": each.client,
                "protocol": each.protocol,
                "topic": each.topic.decode(errors="replace"),
                "retain": each.retain,
                "bytes": len(each.body),
                "text": as_text(each.body[:4096]),
            }
            for each in found
            if self._may_hear(each.topic)
        ]
        self._answer_page(call, "wills", told, after)
        return NOTHING

    def _statistics(self, call: int, arguments: _Arguments, now: float) -> Sequence[Command]:
        arguments.options(0, {})
        self._allow("subscribe", b"$/info/stats")
        return self._ask(call, AskStatistics(), "stats", now)

    def _journal(self, call: int, arguments: _Arguments, now: float) -> Sequence[Command]:
        arguments.options(0, {})
        self._allow("journal", b"groups")
        return self._ask(call, AskJournal(), "journal", now)

    def _ask(
        self, call: int, question: AskStatistics | AskJournal, name: str, now: float
    ) -> Sequence[Command]:
        until = self._wait(call, now)

        def answer(found: object) -> Sequence[Command]:
            if self._is_late(call, until):
                return NOTHING
            if isinstance(found, NoAnswer):
                self._fail(call, LATER, found.reason)
            else:
                self._answer(call, {name: found})
            return self._session.answered()

        return [Ask(question, answer)]

    def _history(self, call: int, arguments: _Arguments, now: float) -> Sequence[Command]:
        text = arguments.text(0, "TOPIC")
        options = arguments.options(1, {"last": int, "from": int, "to": int, "limit": int})
        try:
            parts = read_pattern(text)
        except PatternFault as error:
            raise CallFailed(MALFORMED, str(error)) from None
        topic, beneath = normal(text), parts[-1].prefix
        if beneath:  # without its last level, which is "**"
            topic = topic[: -len(REST)].rstrip(b"/")
        most = self._settings.max_page
        last = options.get("last", 0 if "from" in options or "to" in options else min(100, most))
        limit = options.get("limit", most)
        from_ms, to_ms = options.get("from", 0), options.get("to", _MOST_MS)
        if last and ("from" in options or "to" in options):
            raise CallFailed(MALFORMED, "history: 'last', or 'from' and 'to'")
        last, limit = min(last, most), min(limit, most)
        if options.get("last", 1) < 1 or limit < 1 or not 0 <= from_ms < to_ms <= _MOST_MS:
            raise CallFailed(
                MALFORMED, "history: 'last' and 'limit' are 1 or more, 'from' before 'to'"
            )
        for part in parts:
            self._allow("journal", part.topic, prefix=part.prefix)
        max_bytes = self._settings.max_answer_bytes
        asked = topic.decode()
        question = AskHistory(
            asked, last, from_ms, to_ms, limit, max_bytes=max_bytes, beneath=beneath
        )
        return self._ask_history(call, question, "publications", now)

    def _alerts(self, call: int, arguments: _Arguments, now: float) -> Sequence[Command]:
        arguments.options(0, {})
        self._allow("subscribe", ALERTS.encode())
        settings = self._settings
        question = AskHistory(
            ALERTS, last=settings.max_page, each=True, max_bytes=settings.max_answer_bytes
        )
        return self._ask_history(call, question, "alerts", now)

    def _ask_history(
        self, call: int, question: AskHistory, name: str, now: float
    ) -> Sequence[Command]:
        until = self._wait(call, now)

        def answer(found: History | NoAnswer) -> Sequence[Command]:
            if self._is_late(call, until):
                return NOTHING
            if isinstance(found, NoAnswer):
                self._fail(call, LATER, found.reason)
                return self._session.answered()
            attachments: list[bytes] = []
            nobody = Topic(0, "")
            publications = [
                told(
                    Waiting(nobody, each.topic, each.body, each.at_ms, 0, each.properties),
                    attachments,
                )
                for each in found.publications
            ]
            answer = {name: publications, "source": found.source, "more": found.more}
            self._answer(call, answer, attachments)
            return self._session.answered()

        return [Ask(question, answer)]

    def _page(self, arguments: _Arguments, first: int | str) -> _Page:
        """Read which part of a long answer is wanted; ``first``: what comes before all others."""
        kind = type(first)
        options = arguments.options(0, {"prefix": str, "after": kind, "limit": int})
        limit = min(options.get("limit", 100), self._settings.max_page)
        if limit < 1:
            raise CallFailed(MALFORMED, f"{arguments.method}: 'limit' is 1 or more")
        try:
            for each in (options.get("prefix", ""), str(options.get("after", ""))):
                each.encode()
        except UnicodeEncodeError:
            raise CallFailed(MALFORMED, f"{arguments.method}: this is no text") from None
        return _Page(options.get("prefix", ""), options.get("after", first), limit)

    def _answer_page(
        self,
        call: int,
        name: str,
        told: Sequence[object],
        after: int | str | None,
        attachments: Sequence[bytes] = (),
    ) -> None:
        """Answer a part of something long; ``after``: where the next one begins, None: no more."""
        answer: dict[str, object] = {name: told, "more": after is not None}
        if after is not None:
            answer["after"] = after
        self._answer(call, answer, attachments)

    def _place(self, topic: bytes) -> str:
        """Return where a page ends: its last topic, or what stands for one that is not told."""
        if self._may_hear(topic):
            return topic.decode(errors="replace")
        self._last_place += 1
        place = f"\0{self._last_place}"  # no topic has a NUL
        if len(self._places) >= _MOST_PLACES:
            del self._places[next(iter(self._places))]
        self._places[place] = topic
        return place

    def _behind(self, page: _Page) -> bytes:
        """Return behind which topic a page begins."""
        after = str(page.after)
        if not after.startswith("\0"):
            return after.encode()
        if after not in self._places:
            raise CallFailed(MALFORMED, "this 'after' is known no more; begin at the first page")
        return self._places[after]

    def _may_hear(self, topic: bytes) -> bool:
        view = self._shared.view
        return view.is_open or not view.may(self._session.connection, "subscribe", topic)


Method = Callable[[Calls, int, _Arguments, float], Sequence[Command]]
METHODS: Mapping[str, Method] = {
    "subscribe": Calls._subscribe,
    "unsubscribe": Calls._unsubscribe,
    "sync": Calls._sync,
    "publish": Calls._publish,
    "call": Calls._call,
    "ping": Calls._ping,
    "history": Calls._history,
    "clients": Calls._clients,
    "topics": Calls._topics,
    "retained": Calls._retained,
    "queues": Calls._queues,
    "wills": Calls._wills,
    "alerts": Calls._alerts,
    "stats": Calls._statistics,
    "journal": Calls._journal,
}


def _read(call: Call) -> _Arguments:
    try:
        said = json.loads(call.payload)
    except (ValueError, RecursionError):
        raise CallFailed(MALFORMED, "a call is a JSON array: its method, then arguments") from None
    if not isinstance(said, list) or not said or not isinstance(said[0], str):
        raise CallFailed(MALFORMED, "a call is a JSON array: its method, then arguments")
    return _Arguments(said[0][:100], said[1:], call.attachments)


def _topic(text: str) -> bytes:
    try:
        topic = normal(text)
    except PatternFault as error:
        raise CallFailed(MALFORMED, str(error)) from None
    if fault := topic_fault(topic):
        raise CallFailed(MALFORMED, fault)
    return topic


def _queue(queue: Queue) -> dict[str, object]:
    return {
        "queue": queue.name.decode(errors="replace"),
        "policy": queue.policy,
        "messages": len(queue),
        "waiting": queue.waiting,
        "bytes": queue.size,
        "consumers": len(queue.consumers),
        "dropped": queue.dropped,
        "full": queue.full,
        "durable": queue.durable,
    }
