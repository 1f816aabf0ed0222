"""What is not a throughput: latency at steady rates, and the cost of idle clients."""

import resource
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.broker import idle, latency
from benchmarks.broker.peers import MOSQUITTO, MOTEMQ, RELAY, Peer, PeerFailed, running
from benchmarks.broker.rounds import in_turn

MEASURES = ("latency", "idle")
_DURATION_S = 1.0
_MUST_BEAT_AT = 10_000  # messages per second


def measure(
    name: str,
    peers: Sequence[Peer],
    rounds: int,
    document: dict[str, Any],
    told: Callable[[str], None],
) -> str:
    """Measure one of ``MEASURES``; returns its table and adds its figures to ``document``.

    Raises ``PeerFailed``.
    """
    if name == "idle":
        return _idle(peers, document, told)
    return _latency(peers, rounds, document, told)


def _latency(
    peers: Sequence[Peer], rounds: int, document: dict[str, Any], told: Callable[[str], None]
) -> str:
    lines = [
        "| messages/s | broker | p50, µs | p99, µs | p99.9, µs | p99 of ours/theirs | reached |",
        "|---|---|---|---|---|---|---|",
    ]
    for rate in latency.RATES:
        found: dict[str, list[latency.Latency]] = {peer.name: [] for peer in peers}
        for number in range(rounds):
            for peer in in_turn(peers, number):
                with running(peer) as broker:
                    found[peer.name].append(latency.measure(peer, broker, rate, _DURATION_S))
            told(f"latency at {rate}/s: round {number + 1}/{rounds}")
        for peer in peers:
            lines.append(_latency_line(rate, peer, found))  # noqa: PERF401
        document[f"latency_us_at_{rate}"] = {
            name: [asdict(each) for each in all_] for name, all_ in found.items()
        }
    return "\n".join(lines)


def _latency_line(rate: int, peer: Peer, found: dict[str, list[latency.Latency]]) -> str:
    theirs, ours = found[peer.name], found[MOTEMQ.name]
    ratio = statistics.median(a.p99 / b.p99 for a, b in zip(ours, theirs, strict=True))
    figures = [
        statistics.median(getattr(each, field) for each in theirs)
        for field in ("p50", "p99", "p999")
    ]
    judged = peer is MOSQUITTO and rate == _MUST_BEAT_AT
    verdict = ("yes" if ratio <= 1 else "**no**") + " (at most 1)" if judged else ""
    cells = [f"{rate:,}", peer.name, *(f"{figure:.0f}" for figure in figures)]
    cells += ["" if peer is MOTEMQ else f"{ratio:.2f}", verdict]
    return "| " + " | ".join(cells) + " |"


def _idle(peers: Sequence[Peer], document: dict[str, Any], told: Callable[[str], None]) -> str:
    wanted = idle.CLIENTS + 100
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise PeerFailed(f"idle needs {wanted} open files, the system allows {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    lines = [
        f"| {idle.CLIENTS:,} idle clients | KiB each | CPU, % of a core | must | reached |",
        "|---|---|---|---|---|",
    ]
    document["idle"] = {}
    for peer in peers:
        if peer is RELAY:
            continue
        with running(peer) as broker:
            found = idle.measure(peer, broker)
        told(f"idle: {peer.name} {found.kib_per_client:.1f} KiB per client")
        document["idle"][peer.name] = asdict(found)
        must = ("", "")
        if peer is MOTEMQ:
            reached = found.kib_per_client < idle.MUST_KIB
            must = (f"under {idle.MUST_KIB:g} KiB", "yes" if reached else "**no**")
        cells = [peer.name, f"{found.kib_per_client:.1f}", f"{found.cpu_percent:.1f}", *must]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
