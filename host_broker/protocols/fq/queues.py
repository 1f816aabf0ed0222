"""The queues of clients, their bindings, and the exchanges that those make.

A queue is one of the bus, ``fq/NAME``: it is there as long as a client is attached to it, or for
ever if it is permanent. What is kept of that in tables, a ``Keeper`` says.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from host_broker.bus.commands import (
    Command,
    DeleteQueue,
    OpenQueue,
    Subscribe,
    Unsubscribe,
)
from host_broker.bus.delivery import Filter, SubscriptionId
from host_broker.bus.outcomes import Outcome
from host_broker.bus.publication import Properties
from host_broker.bus.queue import Queue
from host_broker.outputs import ConnectionId
from host_broker.protocol import BrokerContext
from host_broker.protocols.fq.codec import (
    LIFE_FLAGS,
    MAX_NAME,
    PEER_FLAG,
    PERMANENT,
    REFUSED,
    TRANSIENT,
)
from host_broker.protocols.fq.functions import Functions
from host_broker.protocols.fq.programs import Program, ProgramError, compile_program
from host_broker.protocols.fq.topics import ROUTE, Topics, address_of, index_of, queue_level

Kind = Literal["mem", "disk"]
Life = Literal["", "permanent", "transient"]

DEFAULT_BACKLOG = 16_384  # messages
MAX_CLIENTS = 16  # of a public queue (R31)
MAX_EXCHANGES = 10_000
QUEUES = b"fq/"  # their names on the bus begin so
MODULUS = 1 << 32

_TIMED = 16  # of so many invocations one is timed
_WEIGHT = 8  # of so many times the last one counts as one
# Bytes of a compiled program for each function and each parenthesis.
_CALL_BYTES = 300
_MADE_NAME = re.compile(rb"fq/auto-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LEADING_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)")


class QueueError(ValueError):
    """A queue cannot be had; the text is what the client is told."""


@dataclass(frozen=True, slots=True)
class WantedQueue:
    """What a client says of its queue when it logs in (R9). ``backlog``: as a 32-bit number.

    ``life``: "" leaves it as it is (R37). ``own``: the client said no name.
    """

    name: bytes
    kind: Kind = "mem"
    private: bool = True
    policy: Literal["drop", "block"] = "drop"
    backlog: int = DEFAULT_BACKLOG
    life: Life = ""
    own: bool = False


def read_wanted_queue(text: bytes, unused_name: Callable[[], bytes]) -> WantedQueue:
    """Read a name, or ``name NUL type:params``; without a name the queue gets an unused one, and is
    private and transient.

    ``QueueError`` if it is none.
    """
    name, _, detail = text.partition(b"\0")
    if len(name) > MAX_NAME:
        raise QueueError("queue name is too long")  # A9
    detail = detail.partition(b"\0")[0]
    kind, colon, params = detail.decode("utf-8", "backslashreplace").partition(":")
    words = [word for word in params.split(",") if word]
    kind = kind if kind or colon else "mem"
    if name:
        return wanted_queue(name, kind, words)
    found = wanted_queue(unused_name(), kind, [*words, "transient", "private"])
    return replace(found, own=True)


def wanted_queue(name: bytes, kind: str, words: Sequence[str]) -> WantedQueue:
    """Return what these parameters want; the last one of a kind counts. ``QueueError``."""
    private, policy, backlog = True, "drop", DEFAULT_BACKLOG
    life: Life = ""
    if kind not in ("mem", "disk"):
        raise QueueError(f"invalid queue type: {kind}")
    for word in words:
        match word:
            case "private" | "public":
                private = word == "private"
            case "drop" | "block":
                policy = word
            case "permanent":
                life = "permanent"
            case "transient":
                life = "transient"
            case _ if word.startswith("backlog="):
                number = _LEADING_NUMBER.match(word, len("backlog="))
                backlog = int(number[1]) % MODULUS if number else 0  # A24
            case _:
                raise QueueError(f"invalid queue param: {word}")
    return WantedQueue(
        name,
        "mem" if kind == "mem" else "disk",
        private,
        "drop" if policy == "drop" else "block",
        backlog,
        life,
    )


@dataclass(slots=True, eq=False)
class Binding:
    """A program on an exchange, for a queue. ``route`` is its id (R16, R20).

    ``wishes`` are its subscriptions on the bus: topics, whether each is a prefix, and filters.
    """

    route: int
    exchange: bytes
    program: Program
    queue: "FqQueue"
    peer: bool = False
    permanent: bool = False
    wishes: tuple[tuple[bytes, bool, Filter | None], ...] = ()
    invocations: int = 0  # how often its rule was asked
    average_ns: int = 0  # that it takes


@dataclass(slots=True, eq=False)
class FqQueue:
    """A queue as clients know it; ``path`` is its name on the bus."""

    name: bytes
    path: bytes
    kind: Kind
    private: bool
    policy: Literal["drop", "block"]
    backlog: int
    permanent: bool = False
    own: bool = False  # of the one client for which it was made
    clients: list["FqClient"] = field(default_factory=list)
    bindings: dict[int, Binding] = field(default_factory=dict)
    by_program: dict[tuple[bytes, bytes], Binding] = field(default_factory=dict)

    @property
    def said_backlog(self) -> int:
        """Its backlog as fqd says it: a number with a sign (A24)."""
        return self.backlog - MODULUS if self.backlog >= MODULUS // 2 else self.backlog

    @property
    def gives_nothing(self) -> bool:
        """Whether whoever publishes to it waits for ever (A24)."""
        return self.policy == "block" and not self.backlog

    @property
    def takes_acknowledgements(self) -> bool:
        """Whether a peer may say what of it is kept: it is on disk, and for one client, so that
        what that is given comes in the order of numbers."""
        return self.kind == "disk" and self.private


@dataclass(slots=True, eq=False)
class FqClient:
    """One client: its command connection, and its data connection (0: there is none yet).

    ``node``: of a peer. The counts are since it logged in; they are said modulo 2**32.
    """

    user: bytes
    queue: FqQueue
    key: bytes
    command: ConnectionId
    address: str
    data: ConnectionId = 0
    is_peer: bool = False
    node: bytes = b""
    no_exchange: int = 0
    no_route: int = 0
    routed: int = 0
    dropped: int = 0
    size_dropped: int = 0
    msgs_in: int = 0
    msgs_out: int = 0
    octets_in: int = 0
    octets_out: int = 0


@dataclass(slots=True, eq=False)
class Exchange:
    """Made by the first binding; what was published to it since (payloads: ``octets``)."""

    name: bytes
    bindings: dict[int, Binding] = field(default_factory=dict)
    messages: int = 0
    octets: int = 0
    no_route: int = 0
    routed: int = 0
    dropped: int = 0


class Keeper(Protocol):
    """Keeps permanent queues and bindings across restarts; each returns what to do for that."""

    def queue_changed(self, queue: FqQueue) -> Sequence[Command]:
        """A client has said that a queue is permanent, or that it is not."""
        return ()

    def binding_changed(self, binding: Binding, flags: int) -> Sequence[Command]:
        """A client has said that a binding is permanent, or that it is not (``flags``: A6)."""
        return ()

    def binding_ended(self, binding: Binding) -> Sequence[Command]:
        """A binding has ended by a client's word."""
        return ()


class ForgetfulKeeper(Keeper):
    """Keeps nothing."""


class Queues:
    """All queues, exchanges and bindings of one broker.

    ``functions``: those of programs. ``topics``: the broker's.
    """

    def __init__(self, context: BrokerContext, functions: Functions, topics: Topics) -> None:
        self.keeper: Keeper = ForgetfulKeeper()
        self.by_name: dict[bytes, FqQueue] = {}
        self.exchanges: dict[bytes, Exchange] = {}
        self.together = Exchange(b"")  # what was published to all of them, and to none
        self.no_exchange = 0
        self._stores = context.stores
        self._on_bus = context.queues
        self._held = context.held
        self._functions = functions
        self._topics = topics
        self._clock_ns = context.clock_ns
        self._last_route = 0
        self._by_route: dict[int, Binding] = {}
        self._unused: dict[bytes, Exchange] = {}  # nobody is bound to them, since longest first

    # ---- queues ----

    def open(
        self,
        wanted: WantedQueue,
        opened: Callable[[FqQueue], Sequence[Command]],
        refused: Callable[[str], Sequence[Command]],
    ) -> tuple[FqQueue, list[Command]]:
        """Return the queue that is wanted, made if there is none, and how to have it on the bus.

        The bus judges whether the client may use it, also if it is there already. Then ``opened``
        is called, or ``refused`` with what the client is told: only what they return may rely on
        the queue. ``QueueError`` if there cannot be such a queue.
        """
        known = self.by_name.get(wanted.name)
        if known is None and wanted.kind == "disk" and not self._stores:
            raise QueueError("no disk queues: this broker has no data folder (--data DIR)")
        queue = known or self._make(wanted)

        def answer(limit: str) -> Sequence[Command]:
            if limit:
                if known is None and self.by_name.get(queue.name) is queue:
                    del self.by_name[queue.name]
                denied = limit.startswith("access.")
                return refused("access denied" if denied else f"can't add you to queue: {limit}")
            try:
                self._compare(queue, wanted)
            except QueueError as error:
                return refused(str(error))
            commands: list[Command] = []
            if wanted.life:
                queue.permanent = wanted.life == "permanent"
                commands += self.keeper.queue_changed(queue)
            return [*commands, *opened(queue)]

        # It stays until it is deleted: attached clients count, which the bus does not know of.
        opening = OpenQueue(
            queue.path,
            "block" if queue.policy == "block" else "drop-newest",
            permanent=True,
            max_messages=queue.backlog or -1,
            durable=queue.kind == "disk",
            own=wanted.own,
            answer=answer,
        )
        if known is None and self._is_another(queue):
            return queue, [DeleteQueue(queue.path), opening]
        return queue, [opening]

    def _is_another(self, queue: FqQueue) -> bool:
        """Whether the bus has a queue of this name from before a crash, of another kind.

        Of the same kind it is taken with what waits in it.
        """
        left = self._on_bus.get(queue.path)
        if left is None or not left.wanted_messages:  # else another protocol's: those say no limit
            return False
        is_block = queue.policy == "block"
        return left.durable != (queue.kind == "disk") or (left.policy == "block") != is_block

    def end_lost(self) -> list[Command]:
        """End those on disk that a crash has left, and whose clients cannot come again: nobody else
        knows the name that was made for them."""
        known = {queue.path for queue in self.by_name.values()}
        return [
            DeleteQueue(path)
            for path in self._on_bus
            if _MADE_NAME.fullmatch(path) and path not in known
        ]

    def left(self) -> list[Queue]:
        """Return those on disk that a crash has left, and that wait for their clients."""
        known = {queue.path for queue in self.by_name.values()}
        return [
            queue
            for path, queue in self._on_bus.items()
            # Other protocols' queues may be called so, too: those say no limit.
            if path.startswith(QUEUES) and path not in known and queue.wanted_messages
        ]

    def _make(self, wanted: WantedQueue) -> FqQueue:
        path = queue_path(wanted.name)
        queue = FqQueue(
            wanted.name, path, wanted.kind, wanted.private, wanted.policy, wanted.backlog
        )
        queue.own = wanted.own
        self.by_name[wanted.name] = queue
        return queue

    def _compare(self, queue: FqQueue, wanted: WantedQueue) -> None:
        """Refuse a queue that is in use, or another one than is wanted (A26: not its backlog)."""
        if queue.private and queue.clients:
            raise QueueError("requested queue is private and in use\n")
        if queue.kind != wanted.kind:
            raise QueueError(f"requested type {wanted.kind}, queue is {queue.kind}")
        if queue.private != wanted.private:
            is_private, wanted_private = (
                "private" if each.private else "public" for each in (queue, wanted)
            )
            raise QueueError(f"requested {wanted_private}, queue is {is_private}")
        if queue.policy != wanted.policy:
            raise QueueError(f"request {wanted.policy}, queue is {queue.policy}")
        if len(queue.clients) >= MAX_CLIENTS:
            raise QueueError("can't add you to queue")

    def leave(self, client: FqClient) -> list[Command]:
        """Detach a client from its queue, which ends if it was the last one and it is transient."""
        queue = client.queue
        if client not in queue.clients:
            return []
        queue.clients.remove(client)
        return [] if queue.clients or queue.permanent else self.delete(queue)

    def delete(self, queue: FqQueue) -> list[Command]:
        """Forget a queue with its bindings."""
        if self.by_name.get(queue.name) is not queue:
            return []
        del self.by_name[queue.name]
        for binding in list(queue.bindings.values()):
            self._forget(binding)
        return [DeleteQueue(queue.path)]

    # ---- statistics ----

    def came(
        self,
        exchanges: Mapping[bytes, Exchange | None],
        names: Sequence[bytes],
        payloads: Sequence[bytes],
    ) -> None:
        """Count what somebody publishes: ``names`` are the exchanges of each payload, or one for
        all; None: there is none of that name."""
        lengths = list(map(len, payloads))
        self.together.messages += len(lengths)
        self.together.octets += sum(lengths)
        if len(names) == 1:
            self._count(exchanges[names[0]], len(lengths), sum(lengths))
            return
        for name, length in zip(names, lengths, strict=True):
            self._count(exchanges[name], 1, length)

    def _count(self, exchange: Exchange | None, messages: int, octets: int) -> None:
        if exchange is None:
            self.no_exchange += messages
        else:
            exchange.messages += messages
            exchange.octets += octets

    def went(self, exchange: Exchange | None, outcome: Outcome) -> None:
        """Count what has become of what was published to an exchange."""
        for each in (self.together, exchange):
            if each is not None:
                each.routed += outcome.routed
                each.dropped += outcome.dropped
                each.no_route += outcome.unrouted

    def asked(self, unfiltered: Sequence[tuple[bytes, tuple[SubscriptionId, ...], int]]) -> None:
        """Count for how many messages bindings without a rule were looked at (``Outcomes``)."""
        known = self._by_route
        for path, routes, count in unfiltered:
            for route in routes:
                binding = known.get(route)
                if binding is not None and binding.queue.path == path:
                    binding.invocations += count

    # ---- bindings ----

    def bind(
        self,
        queue: FqQueue,
        exchange: bytes,
        text: bytes,
        flags: int,
        answered: Callable[[Binding | None], Sequence[Command]],
    ) -> Sequence[Command]:
        """Bind a queue; ``answered`` gets the binding when it is active, None if it is refused.

        The same program again is the same binding, which may become permanent or transient (A6).
        """
        binding = queue.by_program.get((exchange, text))
        if binding is not None:
            # Who says it again may not have the right to it.
            return self._subscriptions(binding, flags, answered, is_new=False)
        size = _memory_of(text)
        if not self._held.take(size):
            return answered(None)
        try:
            program = compile_program(text, self._functions)
        except ProgramError:
            self._held.give(size)
            return answered(None)
        made_in = self._exchange(exchange)
        if made_in is None:
            self._held.give(size)
            return answered(None)
        binding = Binding(
            self._next_route(), exchange, program, queue, peer=bool(flags & PEER_FLAG)
        )
        binding.wishes = tuple(self._wishes(binding))
        queue.bindings[binding.route] = made_in.bindings[binding.route] = binding
        self._by_route[binding.route] = binding
        return self._subscriptions(binding, flags, answered, is_new=True)

    def _subscriptions(
        self,
        binding: Binding,
        flags: int,
        answered: Callable[[Binding | None], Sequence[Command]],
        *,
        is_new: bool,
    ) -> Sequence[Command]:
        """Return how to have the bus judge whether a queue may be bound so, and bind it."""
        queue, life = binding.queue, flags & LIFE_FLAGS
        refused: list[str] = []
        left = len(binding.wishes)

        def answer(limit: str) -> Sequence[Command]:
            nonlocal left
            left -= 1
            if limit:
                refused.append(limit)
            if left:
                return ()
            if refused:
                ends = self.end(binding) if is_new else []
                return [*ends, *answered(None)]
            if binding.route not in queue.bindings:
                return answered(binding)  # ended in the same read: who has guessed its id
            # Only what was accepted is known: the same program may have been said twice in a read.
            known = binding.exchange, binding.program.text
            first = queue.by_program.setdefault(known, binding)
            ends = self.end(binding) if first is not binding else []
            return [*ends, *self._set_life(first, life, flags), *answered(first)]

        return [
            Subscribe(
                topic,
                binding.route,
                filter,
                prefix,
                quiet=prefix,
                retained=False,
                queue=queue.path,
                answer=answer,
            )
            for topic, prefix, filter in binding.wishes
        ]

    def unbind(self, queue: FqQueue, route: int, exchange: bytes) -> Sequence[Command] | None:
        """End a binding of a queue; None if it has none like that."""
        binding = queue.bindings.get(route)
        if binding is None or binding.exchange != exchange:
            return None
        return [*self.end(binding), *self.keeper.binding_ended(binding)]

    def end(self, binding: Binding) -> list[Command]:
        """Forget a binding."""
        self._forget(binding)
        return [
            Unsubscribe(topic, binding.route, prefix, queue=binding.queue.path)
            for topic, prefix, _ in binding.wishes
        ]

    def lost(self, path: bytes, route: int) -> list[Command]:
        """End a binding of the queue at ``path`` that nobody may have any more."""
        binding = self._by_route.get(route)
        if binding is None or binding.queue.path != path:
            return []
        return [*self.end(binding), *self.keeper.binding_ended(binding)]

    def _forget(self, binding: Binding) -> None:
        queue = binding.queue
        if queue.bindings.pop(binding.route, None) is not None:
            self._held.give(_memory_of(binding.program.text))
        key = binding.exchange, binding.program.text
        if queue.by_program.get(key) is binding:
            del queue.by_program[key]
        self._by_route.pop(binding.route, None)
        exchange = self.exchanges[binding.exchange]
        exchange.bindings.pop(binding.route, None)
        if not exchange.bindings:
            self._unused[exchange.name] = exchange

    def _set_life(self, binding: Binding, life: int, flags: int) -> Sequence[Command]:
        if life not in (PERMANENT, TRANSIENT):
            return ()
        binding.permanent = life == PERMANENT
        return self.keeper.binding_changed(binding, flags)

    def _exchange(self, name: bytes) -> Exchange | None:
        """Return an exchange, made if there is none, that is about to be used; None if there are
        too many that somebody is bound to."""
        exchange = self.exchanges.get(name)
        if exchange is None:
            if len(self.exchanges) >= MAX_EXCHANGES:
                if not self._unused:
                    return None
                longest = next(iter(self._unused))
                del self.exchanges[longest], self._unused[longest]
            exchange = self.exchanges[name] = Exchange(name)
        self._unused.pop(name, None)
        return exchange

    def _next_route(self) -> int:
        # Four thousand million of them: one that is in use still is a matter of years.
        self._last_route = self._last_route % (REFUSED - 1) + 1
        return self._last_route

    def _wishes(self, binding: Binding) -> list[tuple[bytes, bool, Filter | None]]:
        """Return what to subscribe to for a binding: topic, whether it is a prefix, filter."""
        program, exchange = binding.program, binding.exchange
        rule = self._filter_of(binding)
        only_rule = rule if program.rule is not None else None
        if program.exact:
            return [(address_of(exchange, program.prefix).topic, False, only_rule)]
        index = index_of(exchange, program.prefix)
        wishes = [(index.prefix, True, only_rule if index.is_exact else rule)]
        if index.topic is not None:
            wishes.append((index.topic, False, only_rule))
        return wishes

    def _filter_of(self, binding: Binding) -> Filter:
        program, read, clock = binding.program, self._topics.read, self._clock_ns

        def wants(topic: bytes, properties: Properties, body: bytes) -> bool:
            route = properties.get(ROUTE)
            if route is None:
                route = read(topic).route
            timed = binding.invocations % _TIMED == 0
            binding.invocations += 1
            if not timed:
                return program(route, body)
            began = clock()
            found = program(route, body)
            took = clock() - began
            before = binding.average_ns
            binding.average_ns = took if not before else (before * (_WEIGHT - 1) + took) // _WEIGHT
            return found

        return wants


def queue_path(name: bytes) -> bytes:
    """Return the name on the bus of a queue, whether there is one or not."""
    return QUEUES + queue_level(name)


def _memory_of(program: bytes) -> int:
    """Return the bytes that a program holds, when it is compiled."""
    return len(program) + _CALL_BYTES * program.count(b"(")
