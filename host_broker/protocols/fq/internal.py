"""Connections to fq of parts of this process: whoever asks its pages, and who reads its tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from host_broker.bus.commands import Command, Complain, Outcome, PublishMany, Reply
from host_broker.bus.queue import Queue
from host_broker.pages import PageAnswer, PageRequest
from host_broker.protocol import NOTHING, Session
from host_broker.protocols.fq.keeper import TableKeeper
from host_broker.protocols.fq.pages import (
    SUBMIT,
    ClientFigures,
    ExchangeFigures,
    QueueFigures,
    RouteFigures,
    read_submission,
    refused,
    statistics,
    submitted,
)
from host_broker.protocols.fq.queues import Binding, Exchange, FqClient, FqQueue, Queues
from host_broker.protocols.fq.topics import Topics
from host_broker.tables import Rows

COUNTERS = (
    "no_exchange",
    "no_route",
    "routed",
    "dropped",
    "size_dropped",
    "msgs_in",
    "msgs_out",
    "octets_in",
    "octets_out",
)
_MODULUS = 1 << 32  # of a client's counters, as fqd has them


@dataclass(slots=True)
class Totals:
    """What was published to all exchanges together, and to those that there are not."""

    together: Exchange = field(default_factory=lambda: Exchange(b""))
    no_exchange: int = 0


@dataclass(frozen=True, slots=True)
class InternalContext:
    """What these sessions share with all others of the broker.

    ``spell``: how a message's sender, hops and id are properties of a publication: those of all
    messages, the name of the one that each has for itself, and its value. ``bus_queues`` are those
    of the bus; ``new_id`` returns 16 bytes.
    """

    queues: Queues
    topics: Topics
    keeper: TableKeeper
    totals: Totals
    max_payload: int
    hops: bytes
    version: str
    bus_queues: Mapping[bytes, Queue]
    new_id: Callable[[], bytes]
    spell: Callable[[bytes, bytes, bytes], tuple[dict[str, bytes], str, bytes]]


class InternalSession(Session):
    """One request for a page, or the one reader of the tables."""

    def __init__(self, context: InternalContext) -> None:
        self._context = context
        self._denied = ""

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Take nothing: there is no socket."""
        return NOTHING

    def rows(self, found: Mapping[str, Rows], now: float) -> Sequence[Command]:
        """Have queues and bindings as the tables say."""
        return list(self._context.keeper.rows(found))

    def refused(self, action: str, topic: bytes) -> Sequence[Command]:
        """Note what the answer has to say."""
        self._denied = f"you may not {action} {topic.decode(errors='backslashreplace')}"
        return NOTHING

    def asked(self, request: PageRequest, now: float) -> Sequence[Command]:
        """Answer a page."""
        if request.path == SUBMIT:
            return self._submit(request)
        return [Reply(lambda: self._statistics())]

    # ---- /submit ----

    def _submit(self, request: PageRequest) -> Sequence[Command]:
        context, totals = self._context, self._context.totals
        found = read_submission(request, context.max_payload)
        if isinstance(found, PageAnswer):
            return [Reply(lambda: found)]
        self.client = found.sender.decode(errors="replace")
        exchange = context.queues.exchanges.get(found.exchange)
        counted = [totals.together, *([exchange] if exchange is not None else [])]
        outcomes: list[Outcome] = []
        address = context.topics.of(found.exchange, found.route)
        same, named, value = context.spell(found.sender, context.hops, context.new_id())
        same.update(address.properties)

        def answer() -> PageAnswer:
            if self._denied:
                return refused(self._denied, 403)
            outcome = outcomes[0] if outcomes else Outcome(unrouted=1)
            totals.no_exchange += exchange is None
            for each in counted:
                each.messages += 1
                each.octets += len(found.payload)
                each.no_route += outcome.unrouted
                each.routed += outcome.routed
                each.dropped += outcome.dropped
            no_exchange = int(exchange is None)
            return submitted(outcome.routed, outcome.dropped, outcome.unrouted, no_exchange)

        publish = PublishMany(address.topic, [found.payload], same, named, [value], outcomes.append)
        return [publish, Reply(answer)]

    # ---- /stats.json ----

    def _statistics(self) -> PageAnswer:
        context = self._context
        exchanges = {name: _exchange(each) for name, each in context.queues.exchanges.items()}
        together = _exchange(context.totals.together, context.totals.no_exchange)
        queues = [
            _queue(each, context.bus_queues.get(each.path))
            for each in context.queues.by_name.values()
        ]
        return statistics(context.version, exchanges, together, queues)


def _exchange(exchange: Exchange, no_exchange: int = 0) -> ExchangeFigures:
    return ExchangeFigures(
        exchange.messages,
        exchange.octets,
        exchange.no_route,
        exchange.routed,
        exchange.dropped,
        no_exchange,
        tuple(_route(each) for each in exchange.bindings.values()),
    )


def _route(binding: Binding) -> RouteFigures:
    return RouteFigures(
        binding.route,
        binding.program.prefix,
        binding.queue.name,
        binding.permanent,
        binding.invocations,
        binding.average_ns,
        binding.program.text,
    )


def _queue(queue: FqQueue, on_bus: Queue | None) -> QueueFigures:
    return QueueFigures(
        queue.name,
        queue.private,
        queue.kind,
        queue.policy,
        queue.backlog,
        0 if on_bus is None else len(on_bus),
        0 if on_bus is None else on_bus.dropped,
        tuple(_client(each) for each in queue.clients),
    )


def _client(client: FqClient) -> ClientFigures:
    counters = {name: getattr(client, name) % _MODULUS for name in COUNTERS}
    return ClientFigures(
        client.user,
        client.address,
        client.port,
        client.is_peer,
        counters if client.data else None,
    )
