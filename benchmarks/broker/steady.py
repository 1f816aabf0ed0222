"""What is not a throughput: latency at steady rates, and the cost of idle clients."""

import resource
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from benchmarks.broker import idle, latency
from benchmarks.broker.metering import undisturbed
from benchmarks.broker.peers import MOSQUITTO, MOTEMQ, RELAY, Peer, PeerFailed, running
from benchmarks.broker.rounds import in_turn

_RATES = {f"latency-{rate // 1000}k": rate for rate in latency.RATES}
MEASURES = (*_RATES, "idle")
_DURATION_S = 3.0  # 30,000 publications at 10,000/s: 300 of them decide the p99
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
    return _latency(_RATES[name], peers, rounds, document, told)


def _latency(
    rate: int,
    peers: Sequence[Peer],
    rounds: int,
    document: dict[str, Any],
    told: Callable[[str], None],
) -> str:
    found: dict[str, list[latency.Latency]] = {peer.name: [] for peer in peers}
    for number in range(rounds):
        for peer in in_turn(peers, number):
            found[peer.name].append(undisturbed(partial(_latency_once, peer, rate)))
        line = ", ".join(f"{name} {all_[-1].p99:.0f}" for name, all_ in found.items())
        told(f"latency at {rate}/s: round {number + 1}/{rounds}, p99 in us: {line}")
    document[f"latency_us_at_{rate}"] = {
        name: [asdict(each) for each in all_] for name, all_ in found.items()
    }
    lines = [
        "| messages/s | broker | p50, µs | p99, µs | p99.9, µs | CPU, µs each "
        "| p99 of ours/theirs | reached |",
        "|---|---|---|---|---|---|---|---|",
        *(_latency_line(rate, peer, found) for peer in peers),
    ]
    return "\n".join(lines)


def _latency_once(peer: Peer, rate: int) -> latency.Latency:
    with running(peer) as broker:
        return latency.measure(peer, broker, rate, _DURATION_S)


def _latency_line(rate: int, peer: Peer, found: dict[str, list[latency.Latency]]) -> str:
    theirs, ours = found[peer.name], found[MOTEMQ.name]
    ratios = [a.p99 / b.p99 for a, b in zip(ours, theirs, strict=True)]
    ratio = statistics.median(ratios)
    figures = [
        statistics.median(getattr(each, field) for each in theirs)
        for field in ("p50", "p99", "p999")
    ]
    cpu_us = statistics.median(each.measured.cpu_us for each in theirs)
    judged = peer is MOSQUITTO and rate == _MUST_BEAT_AT
    verdict = ("yes" if ratio <= 1 else "**no**") + " (at most 1)" if judged else ""
    spread = f"{ratio:.2f} ({min(ratios):.2f}–{max(ratios):.2f})"  # noqa: RUF001
    cells = [f"{rate:,}", peer.name, *(f"{figure:.0f}" for figure in figures), f"{cpu_us:.1f}"]
    cells += ["" if peer is MOTEMQ else spread, verdict]
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
