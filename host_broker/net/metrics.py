"""What the broker counts, for Prometheus: every limit, drop, refusal and queue.

The event loop takes the figures (``Figures``), which must not take long; ``exposition`` spells
them, which a thread does. A metric is a line of ``FAMILIES``: nothing is exposed that is not there,
and ``LIMITS`` says of every limit among the settings which of them counts its strikes, but for
those that stop nobody (``SIZES``).
"""

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    exposition,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from host_broker.broker import Broker
from host_broker.net.access.passwords import PasswordChecks
from host_broker.net.connection.memory import BufferMemory
from host_broker.net.journal.writer import Journal
from host_broker.net.listening.handshakes import Handshakes
from host_broker.net.listening.pending import PendingConnections
from host_broker.net.listening.slots import Slots
from host_broker.net.live_settings import LiveSettings
from host_broker.net.rate_limited_log import RateLimitedLog
from host_broker.net.server import Server
from host_broker.net.settings_source import sections
from host_broker.printable import printable
from host_broker.settings import OWN_SECTIONS


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its kind, what it says, and the names of its labels."""

    kind: Literal["gauge", "counter"]
    help: str
    labels: tuple[str, ...] = ()


# Counters get their "_total" when they are spelled.
FAMILIES: Mapping[str, Family] = {
    "motemq_up_seconds": Family("gauge", "Time since the broker started."),
    "motemq_limit": Family("gauge", "A limit, as the settings have it now.", ("setting",)),
    "motemq_connections": Family("gauge", "Sockets that are open, whatever they speak."),
    "motemq_connections_allowed": Family(
        "gauge", "How many there may be: net.max_connections, or fewer for want of open files."
    ),
    "motemq_connections_accepted": Family("counter", "Sockets that were accepted."),
    "motemq_connections_refused": Family(
        "counter", "Sockets that were closed before a client was recognised.", ("reason",)
    ),
    "motemq_connections_pending": Family("gauge", "Sockets that have said nothing whole yet."),
    "motemq_tls_handshakes": Family("gauge", "TLS handshakes under way.", ("state",)),
    "motemq_tls_handshakes_failed": Family(
        "counter", "TLS handshakes that came to nothing.", ("reason",)
    ),
    "motemq_clients": Family("gauge", "Clients that are connected.", ("protocol",)),
    "motemq_clients_closed": Family(
        "counter", "Connections that a protocol or a limit has closed.", ("protocol", "reason")
    ),
    "motemq_clients_disconnected": Family(
        "counter", "Connections that were closed for what their sockets did.", ("reason",)
    ),
    "motemq_clients_held": Family("gauge", "Connections that are read no further just now."),
    "motemq_holds": Family(
        "counter", "How often a connection was to be read no further for a while.", ("reason",)
    ),
    "motemq_failures": Family(
        "counter", "What raised an exception: sessions, filters, extensions, servers.", ("part",)
    ),
    "motemq_publications": Family("counter", "Publications that were accepted, and wills."),
    "motemq_discarded": Family(
        "counter", "What was discarded, by the rule or limit it broke.", ("protocol", "reason")
    ),
    "motemq_dropped_messages": Family(
        "counter", "Messages that slow receivers were not sent.", ("protocol",)
    ),
    "motemq_dropped_bytes": Family(
        "counter", "Bytes that slow receivers were not sent.", ("protocol",)
    ),
    "motemq_retained_messages": Family("gauge", "Retained messages."),
    "motemq_retained_bytes": Family("gauge", "Memory of the retained messages."),
    "motemq_retained_refused": Family("counter", "Messages that were to be retained and were not."),
    "motemq_held_bytes": Family("gauge", "Memory of unfinished packets and last wills."),
    "motemq_buffered_bytes": Family("gauge", "Memory of what is yet to be sent."),
    "motemq_queues": Family("gauge", "Queues."),
    "motemq_queue_messages": Family(
        "gauge", "Messages of a queue, those in flight too.", ("queue",)
    ),
    "motemq_queue_waiting": Family("gauge", "Messages that wait for a consumer.", ("queue",)),
    "motemq_queue_bytes": Family("gauge", "Bytes of a queue's messages.", ("queue",)),
    "motemq_queue_consumers": Family("gauge", "Consumers of a queue.", ("queue",)),
    "motemq_queue_full": Family("gauge", "1 if a queue takes no more.", ("queue",)),
    "motemq_queue_dropped": Family("counter", "Messages that a full queue dropped.", ("queue",)),
    "motemq_journal_full": Family("gauge", "1 while publishers wait for the journal."),
    "motemq_journal_waiting_bytes": Family("gauge", "What waits to be written."),
    "motemq_journal_next": Family("gauge", "Number of the next message.", ("partition",)),
    "motemq_journal_no_room": Family("counter", "How often the disk had no room."),
    "motemq_journal_deleted_segments": Family("counter", "Segments that age and size deleted."),
    "motemq_journal_deleted_bytes": Family("counter", "Bytes of the segments that were deleted."),
    "motemq_http_requests": Family("counter", "Requests that were answered.", ("method", "status")),
    "motemq_http_refused": Family("counter", "Requests that were not let in.", ("reason",)),
    "motemq_logins_pending": Family("gauge", "Passwords that wait to be hashed."),
    "motemq_logins_refused": Family(
        "counter", "Logins that failed, or were not looked at for too many.", ("reason",)
    ),
    "motemq_sessions": Family("gauge", "People logged in to the dashboard."),
    "motemq_sessions_ended": Family(
        "counter", "Sessions of the dashboard that a limit has ended.", ("reason",)
    ),
    "motemq_log_lines_left_out": Family("counter", "Lines that the log has as a count only."),
}

# The limits among the settings, and the metric that counts whom they stopped: with a label, the
# one whose value is the limit's name.
LIMITS: Mapping[str, str] = {
    "bus.max_body": "motemq_discarded",
    "bus.max_subscriptions": "motemq_discarded",
    "bus.max_retained": "motemq_retained_refused",
    "bus.max_retained_bytes": "motemq_retained_refused",
    "bus.max_held_bytes": "motemq_discarded",
    "bus.max_steps_per_s": "motemq_discarded",
    "bus.max_discards_per_s": "motemq_holds",
    "bus.max_queues": "motemq_discarded",
    "bus.max_queue_messages": "motemq_queue_dropped",
    "bus.max_queue_bytes": "motemq_queue_dropped",
    "net.max_connections": "motemq_connections_refused",
    "net.outbox_high_bytes": "motemq_holds",
    "net.stalled_receiver_s": "motemq_clients_disconnected",
    "net.first_bytes_s": "motemq_connections_refused",
    "net.max_unrecognised": "motemq_connections_refused",
    "net.tls_handshake_s": "motemq_tls_handshakes_failed",
    "net.max_buffered_bytes": "motemq_holds",
    "journal.max_pending_bytes": "motemq_holds",
    "journal.max_age_s": "motemq_journal_deleted_segments",
    "journal.max_bytes": "motemq_journal_deleted_segments",
    "http.max_sessions": "motemq_sessions_ended",
    "http.max_sessions_of_one": "motemq_sessions_ended",
    "http.session_s": "motemq_sessions_ended",
    "http.session_longest_s": "motemq_sessions_ended",
    "access.failed_logins": "motemq_logins_refused",
    "access.max_pending_logins": "motemq_logins_refused",
    "fmqp.hard_body_limit": "motemq_clients_closed",
    "fmqp.max_wills": "motemq_discarded",
    "fmqp.idle_timeout_s": "motemq_clients_disconnected",
    "lightmq.connect_timeout_s": "motemq_clients_closed",
    "lightmq.ping_timeout_s": "motemq_clients_closed",
    "lightmq.max_pending": "motemq_clients_closed",
    "micromsg2.handshake_timeout_s": "motemq_clients_closed",
    "micromsg2.ack_timeout_s": "motemq_clients_closed",
    "micromsg2.max_backlog_bytes": "motemq_clients_closed",
    "fq.handshake_timeout_s": "motemq_clients_closed",
    "fq.max_payload": "motemq_discarded",
    "fq.max_program": "motemq_clients_closed",
    "umq.handshake_timeout_s": "motemq_clients_closed",
    "umq.ping_timeout_s": "motemq_clients_closed",
    "umq.max_text": "motemq_clients_closed",
    "umq.max_attachment": "motemq_clients_closed",
    "umq.max_attachments": "motemq_clients_closed",
    "umq.max_calls": "motemq_discarded",
    "umq.max_subscriptions": "motemq_discarded",
    "umq.max_attributes": "motemq_discarded",
    "umq.max_attribute_bytes": "motemq_discarded",
    "umq.max_answer_bytes": "motemq_discarded",
    "umq.max_id_digits": "motemq_clients_closed",
    "umq.max_waiting_updates": "motemq_dropped_messages",
    "umq.max_waiting_bytes": "motemq_dropped_bytes",
}

# Limits that stop nobody and are not counted: whoever asks for a longer page is told that there is
# more, and where it begins.
SIZES: frozenset[str] = frozenset({"umq.max_page"})

Figure = tuple[str, tuple[str, ...], float]  # a name of FAMILIES, values of its labels, value


class Figures:
    """Takes the figures from where they are counted; nothing here counts by itself, but for HTTP.

    ``asked`` and ``refused`` count the requests of the HTTP site.
    """

    def __init__(
        self,
        broker: Broker,
        server: Server,
        live: LiveSettings,
        slots: Slots,
        pending: PendingConnections,
        handshakes: Handshakes,
        journal: Journal | None,
        passwords: PasswordChecks,
        began: float,
    ) -> None:
        """``began``: when the broker started, by ``time.monotonic``."""
        self.asked: dict[tuple[str, str], int] = {}
        self.refused: dict[str, int] = {}
        self._broker = broker
        self._server = server
        self._live = live
        self._slots = slots
        self._pending = pending
        self._handshakes = handshakes
        self._memory: BufferMemory = server.memory
        self._journal = journal
        self._passwords = passwords
        self._began = began

    def answered(self, method: str, status: int) -> None:
        """Count a request; methods that HTTP does not know are one."""
        key = (method if method in _METHODS else "other", str(status))
        self.asked[key] = self.asked.get(key, 0) + 1

    def refuse(self, reason: str) -> None:
        """Count a request that was not let in."""
        self.refused[reason] = self.refused.get(reason, 0) + 1

    @property
    def up_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def take(self) -> list[Figure]:
        """Return all figures as they are now; call it in the event loop."""
        return [*self._edge(), *self._bus(), *self._queues(), *self._journalled()]

    def _edge(self) -> Iterator[Figure]:
        yield "motemq_up_seconds", (), self.up_s
        for name, value in _limits(self._live):
            yield "motemq_limit", (name,), value
        slots, pending, handshakes = self._slots, self._pending, self._handshakes
        yield "motemq_connections", (), slots.used
        yield "motemq_connections_allowed", (), slots.limit
        yield "motemq_connections_accepted", (), slots.accepted
        yield "motemq_connections_refused", ("net.max_connections",), slots.refused
        yield "motemq_connections_refused", ("made room",), slots.evicted
        yield from _by("motemq_connections_refused", pending.refused)
        yield "motemq_connections_pending", (), len(pending)
        yield "motemq_tls_handshakes", ("running",), self._memory.handshakes
        yield "motemq_tls_handshakes", ("waiting",), handshakes.waiting
        yield from _by("motemq_tls_handshakes_failed", handshakes.failed)
        server = self._server
        yield from _by("motemq_clients_disconnected", server.disconnected)
        held = sum(connection.on_hold for connection in server.connections.values())
        yield "motemq_clients_held", (), held
        yield from _by("motemq_holds", server.held)
        yield from _by("motemq_failures", server.failures)
        yield "motemq_buffered_bytes", (), self._memory.used
        for (method, status), count in self.asked.items():
            yield "motemq_http_requests", (method, status), count
        yield from _by("motemq_http_refused", self.refused)
        yield "motemq_logins_pending", (), self._passwords.pending
        failed = self._broker.access.backoff.counted
        yield "motemq_logins_refused", ("access.failed_logins",), failed
        yield "motemq_logins_refused", ("access.max_pending_logins",), self._passwords.refused
        sessions = self._broker.access.sessions
        yield "motemq_sessions", (), len(sessions)
        yield from _by("motemq_sessions_ended", sessions.ended)
        yield "motemq_log_lines_left_out", (), RateLimitedLog.left_out

    def _bus(self) -> Iterator[Figure]:
        broker, stats = self._broker, self._broker.stats
        yield from _by("motemq_clients", broker.clients_by_protocol())
        yield from _by_protocol("motemq_clients_closed", stats.closed)
        yield "motemq_publications", (), stats.publications
        yield from _by_protocol("motemq_discarded", stats.discarded)
        for protocol, dropped in stats.dropped.items():
            yield "motemq_dropped_messages", (protocol,), dropped.messages
            yield "motemq_dropped_bytes", (protocol,), dropped.bytes
        yield "motemq_retained_messages", (), broker.retained_count
        yield "motemq_retained_bytes", (), broker.retained_bytes
        yield "motemq_retained_refused", (), broker.retained_refused
        yield "motemq_held_bytes", (), broker.held_bytes

    def _queues(self) -> Iterator[Figure]:
        queues = self._broker.queues
        yield "motemq_queues", (), len(queues)
        for name, queue in queues.items():
            label = (printable(name),)
            yield "motemq_queue_messages", label, len(queue)
            yield "motemq_queue_waiting", label, queue.waiting
            yield "motemq_queue_bytes", label, queue.size
            yield "motemq_queue_consumers", label, len(queue.consumers)
            yield "motemq_queue_full", label, queue.full
            yield "motemq_queue_dropped", label, queue.dropped

    def _journalled(self) -> Iterator[Figure]:
        journal = self._journal
        if journal is None:
            return
        yield "motemq_journal_full", (), journal.full
        yield "motemq_journal_waiting_bytes", (), journal.waiting_bytes
        for partition, number in enumerate(journal.nexts):
            yield "motemq_journal_next", (str(partition),), number
        yield "motemq_journal_no_room", (), journal.waits_for_room
        yield "motemq_journal_deleted_segments", (), journal.deleted_segments
        yield "motemq_journal_deleted_bytes", (), journal.deleted_bytes


def spelled(figures: Iterable[Figure], accept: str) -> tuple[bytes, str]:
    """Return figures as Prometheus reads them, and the Content-Type; ``accept``: what it asks for.

    Of figures of one name and labels there is the sum: Prometheus refuses a page that has a line
    twice, and names of queues may look the same when what is no text in them is escaped.
    """
    encode, content_type = exposition.choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(figures))
    for system in (ProcessCollector, PlatformCollector, GCCollector):
        system(registry=registry)
    return encode(registry), content_type


class _Collector(Collector):
    def __init__(self, figures: Iterable[Figure]) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        sums: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in FAMILIES}
        for name, labels, value in self._figures:
            found = sums[name]
            found[labels] = found.get(labels, 0) + value
        for name, family in FAMILIES.items():
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = kind(name, family.help, labels=family.labels)
            for labels, value in sums[name].items():
                metric.add_metric(labels, value)
            yield metric


_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))


def _by(name: str, counts: Mapping[str, int]) -> Iterator[Figure]:
    for reason, count in counts.items():
        yield name, (reason,), count


def _by_protocol(name: str, counts: Mapping[str, Mapping[str, int]]) -> Iterator[Figure]:
    for protocol, by_reason in counts.items():
        for reason, count in by_reason.items():
            yield name, (protocol, reason), count


def _limits(live: LiveSettings) -> Iterator[tuple[str, float]]:
    """Give every setting that is a number."""
    settings = live.all
    for section, kind in sections().items():
        values = getattr(settings, section) if section in OWN_SECTIONS else None
        values = settings.section(section, kind) if values is None else values
        for field in dataclasses.fields(values):
            value = getattr(values, field.name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield f"{section}.{field.name}", value
