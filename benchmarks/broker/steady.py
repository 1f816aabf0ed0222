"""What is not a throughput: latency at steady rates, and the cost of idle clients."""

import contextlib
import resource
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.broker import idle, latency
from benchmarks.broker.peers import BARE_LOOP, MOSQUITTO, MOTEMQ, RELAY, Peer, PeerFailed, running
from benchmarks.broker.rounds import in_turn

_RATES = {f"latency-{rate // 1000}k": rate for rate in latency.RATES}
MEASURES = (*_RATES, "idle")
_WINDOWS = 10  # per round
_WINDOW_MESSAGES = 3000  # of them 30 decide the p99
_SHORTEST_WINDOW_S = 0.1
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
    """Measure many short windows of all brokers in turn.

    Whatever else the machine does lengthens some windows, of whomever it meets, and shortens none:
    the lower quartile of many windows is the broker's own more than a mean of few long ones.
    """
    measured = (*peers, BARE_LOOP)
    windows = rounds * _WINDOWS
    window_s = max(_WINDOW_MESSAGES / rate, _SHORTEST_WINDOW_S)
    found: dict[str, list[latency.Latency]] = {peer.name: [] for peer in measured}
    with contextlib.ExitStack() as stack:
        brokers = {peer: stack.enter_context(running(peer)) for peer in measured}
        for number in range(windows):
            for peer in in_turn(measured, number):
                found[peer.name].append(latency.measure(peer, brokers[peer], rate, window_s))
            if not (number + 1) % _WINDOWS:
                line = ", ".join(f"{name} {_quiet(all_):.0f}" for name, all_ in found.items())
                told(f"latency at {rate}/s: {number + 1}/{windows} windows, p99 in us: {line}")
    document[f"latency_us_at_{rate}"] = {
        name: [asdict(each) for each in all_] for name, all_ in found.items()
    }
    lines = [
        f"{windows} windows of {window_s:g} s; quiet: the lower quartile of them",
        "",
        "| messages/s | broker | p50, µs | quiet p99, µs | median p99, µs | CPU, µs each "
        "| quiet p99 of ours/theirs | p99 of ours/theirs by window | reached |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_latency_line(rate, peer, found) for peer in measured),
    ]
    return "\n".join(lines)


def _quiet(windows: Sequence[latency.Latency]) -> float:
    """Return the lower quartile of the windows' p99, microseconds."""
    return sorted(each.p99 for each in windows)[(len(windows) - 1) // 4]


def _latency_line(rate: int, peer: Peer, found: dict[str, list[latency.Latency]]) -> str:
    theirs, ours = found[peer.name], found[MOTEMQ.name]
    quiet = _quiet(ours) / _quiet(theirs)
    by_window = statistics.median(a.p99 / b.p99 for a, b in zip(ours, theirs, strict=True))
    figures = [
        statistics.median(each.p50 for each in theirs),
        _quiet(theirs),
        statistics.median(each.p99 for each in theirs),
    ]
    cpu_us = statistics.median(each.measured.cpu_us for each in theirs)
    judged = peer is MOSQUITTO and rate == _MUST_BEAT_AT
    verdict = ("yes" if quiet <= 1 else "**no**") + " (at most 1)" if judged else ""
    cells = [f"{rate:,}", peer.name, *(f"{figure:.0f}" for figure in figures), f"{cpu_us:.1f}"]
    cells += ["", ""] if peer is MOTEMQ else [f"{quiet:.2f}", f"{by_window:.2f}"]
    return "| " + " | ".join([*cells, verdict]) + " |"


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
