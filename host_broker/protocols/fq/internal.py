"""Connections to fq of parts of this process: whoever asks its pages, and who reads its tables."""

from collections.abc import Mapping, Sequence

from host_broker.broker_view import BrokerView
from host_broker.bus.commands import Checkpoint, Command, PublishMany, Reply
from host_broker.bus.outcomes import Outcome, Outcomes
from host_broker.bus.queue import Queue
from host_broker.outputs import ConnectionId
from host_broker.pages import PageAnswer, PageRequest
from host_broker.protocol import NOTHING, Session
from host_broker.protocols.fq.keeper import TableKeeper
from host_broker.protocols.fq.pages import (
    MAX_MARKS,
    STATISTICS,
    SUBMIT,
    ClientFigures,
    ExchangeFigures,
    Mark,
    QueueFigures,
    RouteFigures,
    marked,
    read_mark,
    read_submission,
    refused,
    statistics,
    submitted,
    unmarked,
)
from host_broker.protocols.fq.peering import Peering, Tag
from host_broker.protocols.fq.queues import (
    MODULUS,
    Binding,
    Exchange,
    FqClient,
    FqQueue,
    queue_path,
)
from host_broker.protocols.fq.session import COUNTERS, HOPS, ID, SENDER
from host_broker.protocols.fq.shared import FqShared
from host_broker.tables import Rows

VERSION = "motemq"  # fqd says its own here
_REFUSALS = {
    "queue.name": "Checkpoints on memory queues not supported",
    "queue.place": "'chkptid' is out of range of the queue",
    "queue.checkpoint": "Checkpoint does not exist",
    "queue.taker": "A peer has taken messages of this queue: it cannot go back",
}


class InternalSession(Session):
    """One request for a page, or the one reader of the tables."""

    def __init__(
        self,
        shared: FqShared,
        keeper: TableKeeper,
        peering: Peering,
        connection: ConnectionId,
    ) -> None:
        self._shared = shared
        self._keeper = keeper
        self._peering = peering
        self._connection = connection
        self.deadline: float | None = None
        self._denied = ""
        assert shared.context.view is not None  # noqa: S101 - every broker has one
        self._view: BrokerView = shared.context.view

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Take nothing: there is no socket."""
        return NOTHING

    def rows(self, found: Mapping[str, Rows], now: float) -> Sequence[Command]:
        """Have queues, bindings and links to other brokers as the tables say."""
        self._peering.home = self._connection
        return [*self._keeper.rows(found), *self.tick(now)]

    def tick(self, now: float) -> Sequence[Command]:
        """Connect to other brokers, as far as it is time for that."""
        peering = self._peering
        commands = peering.tick(now)
        self.deadline = peering.next_deadline
        return commands

    def not_reached(self, tag: object, reason: str, now: float) -> Sequence[Command]:
        """Try again later."""
        peering = self._peering
        commands = peering.not_reached(tag.link, reason, now) if isinstance(tag, Tag) else []
        self.deadline = peering.next_deadline
        return commands

    def refused(self, action: str, topic: bytes) -> Sequence[Command]:
        """Note what the answer has to say."""
        self._denied = _denial(action, topic)
        return NOTHING

    def asked(self, request: PageRequest, now: float) -> Sequence[Command]:
        """Answer a page."""
        if request.path == SUBMIT:
            return self._submit(request)
        if request.path == STATISTICS:
            return [Reply(self._statistics)]
        return self._checkpoint(request)

    # ---- /submit ----

    def _submit(self, request: PageRequest) -> Sequence[Command]:
        server = self._shared
        found = read_submission(request, server.max_payload)
        if isinstance(found, PageAnswer):
            return [Reply(lambda: found)]
        self.client = found.sender.decode(errors="replace")
        queues, payload = server.queues, found.payload
        exchange = queues.exchanges.get(found.exchange)
        address = server.topics.of(found.exchange, found.route)
        hops = b"" if server.settings.http_zero_hops else server.node  # A16
        properties = {**address.properties, SENDER: found.sender, HOPS: hops}
        told: list[Outcomes] = []

        def answer() -> PageAnswer:
            if self._denied:
                return refused(self._denied, 403)
            queues.came({found.exchange: exchange}, (found.exchange,), [payload])
            outcome = Outcome(unrouted=1)
            for outcomes in told:
                outcome = outcomes.by_group[None]
                queues.asked(outcomes.unfiltered)
            queues.went(exchange, outcome)
            no_exchange = int(exchange is None)
            return submitted(outcome.routed, outcome.dropped, outcome.unrouted, no_exchange)

        publish = PublishMany(
            [address.topic], [payload], [properties], ID, [server.new_id()], told=told.append
        )
        return [publish, Reply(answer)]

    # ---- checkpoints ----

    def _checkpoint(self, request: PageRequest) -> Sequence[Command]:
        """Do what is asked, in fqd's order of faults; who may not use the queue learns nothing of
        it, not even that there is none."""
        mark = read_mark(request)
        if isinstance(mark, str):
            return [Reply(lambda: unmarked(mark))]
        path = queue_path(mark.queue)
        if self._view.may(self._connection, "subscribe", path):
            self._view.deny(self._connection, "subscribe", path)
            denied = _denial("subscribe", path)
            return [Reply(lambda: refused(denied, 403))]
        reason = self._why_not(mark)
        if reason:
            return [Reply(lambda: unmarked(reason))]
        refusals: list[str] = []

        def answered(limit: str) -> Sequence[Command]:
            refusals.append(limit)
            return NOTHING

        def answer() -> PageAnswer:
            refusal = refusals[0] if refusals else "nobody did it"
            return unmarked(_REFUSALS.get(refusal, refusal)) if refusal else marked(mark)

        return [Checkpoint(path, mark.do, mark.name, mark.number, answered), Reply(answer)]

    def _why_not(self, mark: Mark) -> str:
        queue = self._shared.queues.by_name.get(mark.queue)
        if queue is None:
            name = mark.queue.decode(errors="backslashreplace")
            return f"Cannot find registered queue '{name}'"
        if mark.do == "set" and not queue.permanent:
            return "Checkpoints on ephemeral queues not supported"
        if queue.kind != "disk":
            return "Checkpoints on memory queues not supported"
        on_bus = self._shared.context.queues.get(queue.path)
        marks = () if on_bus is None else on_bus.checkpoints
        if mark.do == "set" and mark.name not in marks and len(marks) >= MAX_MARKS:
            return f"there are {MAX_MARKS} checkpoints already"
        return ""

    # ---- /stats.json ----

    def _statistics(self) -> PageAnswer:
        queues = self._shared.queues
        exchanges = {name: _exchange(each) for name, each in queues.exchanges.items()}
        on_bus = self._shared.context.queues
        return statistics(
            VERSION,
            exchanges,
            _exchange(queues.together, queues.no_exchange),
            [
                _queue(each, on_bus.get(each.path), tuple(map(self._client, each.clients)))
                for each in queues.by_name.values()
            ],
        )

    def _client(self, client: FqClient) -> ClientFigures:
        counters = {name: getattr(client, name) % MODULUS for name in COUNTERS}
        return ClientFigures(
            client.user,
            client.address,
            self._view.peer_of(client.command).port,
            client.is_peer,
            counters if client.data else None,
        )


def _denial(action: str, path: bytes) -> str:
    return f"you may not {action} {path.decode(errors='backslashreplace')}"


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


def _queue(
    queue: FqQueue, on_bus: Queue | None, clients: tuple[ClientFigures, ...]
) -> QueueFigures:
    return QueueFigures(
        queue.name,
        queue.private,
        queue.kind,
        queue.policy,
        queue.said_backlog,
        0 if on_bus is None else len(on_bus),
        0 if on_bus is None else on_bus.dropped,
        clients,
    )
