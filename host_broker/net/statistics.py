"""The counts of a broker since its start, for people and their tools."""

from collections.abc import Mapping

from host_broker.broker import Broker
from host_broker.net.journal.writer import Journal


def statistics(
    broker: Broker, journal: Journal | None, disconnected: Mapping[str, int]
) -> Mapping[str, object]:
    """Return what ``GET /stats`` has. ``disconnected``: by the edge, by reason."""
    stats = broker.stats
    return {
        "clients": broker.clients_by_protocol(),
        "publications": stats.publications,
        "retained": broker.retained_count,
        "retained_refused": broker.retained_refused,
        "journal": journal.statistics() if journal is not None else None,
        "closed": stats.closes,
        "closed_by": {name: dict(counts) for name, counts in stats.closed.items()},
        "disconnected": dict(disconnected),
        "discarded": {name: dict(counts) for name, counts in stats.discarded.items()},
        "dropped": {
            name: {"messages": dropped.messages, "bytes": dropped.bytes}
            for name, dropped in stats.dropped.items()
        },
        "queues": {
            name.decode(errors="replace"): {
                "messages": len(queue),
                "waiting": queue.waiting,
                "consumers": len(queue.consumers),
                "dropped": queue.dropped,
            }
            for name, queue in broker.queues.items()
        },
    }
