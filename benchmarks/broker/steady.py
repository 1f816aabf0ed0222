"""What is not a throughput: latency at steady rates, and the memory of those who do not read."""

import contextlib
import resource
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.broker import burst, idle, latency, retained
from benchmarks.broker.effort import Effort
from benchmarks.broker.generator import Load
from benchmarks.broker.peers import (
    BARE_LOOP,
    JOURNAL,
    MOSQUITTO,
    MOTEMQ,
    NATS,
    RELAY,
    Peer,
    PeerFailed,
    running,
)
from benchmarks.broker.rounds import in_turn

_RATES = {f"latency-{rate // 1000}k": rate for rate in latency.RATES}
MEASURES = (*_RATES, "idle", "retained")
_SHORTEST_WINDOW_S, _LONGEST_WINDOW_S = 0.1, 1.0
_JUDGED_AT = 10_000  # messages per second
_AT_MOST = {MOTEMQ.name: 1.15, JOURNAL.name: 1.3}  # times the quiet p99 of mosquitto


def measure(
    name: str,
    left_out: Sequence[str],
    seed: int,
    effort: Effort,
    document: dict[str, Any],
    told: Callable[[str], None],
) -> str:
    """Measure one of ``MEASURES``; returns its table and adds its figures to ``document``.

    ``left_out``: brokers, by their names, that are not measured. Raises ``PeerFailed``.
    """
    if name in _RATES:
        order = (MOTEMQ, JOURNAL, MOSQUITTO, NATS, RELAY, BARE_LOOP)
        return _latency(_RATES[name], _but(order, left_out), seed, effort, document, told)
    if name == "idle":
        peers = _but((MOTEMQ, MOSQUITTO, NATS), left_out)
        return _idle(peers, effort.idle_clients, document, told)
    # nats-server retains nothing, the relay neither.
    return _retained(_but((MOTEMQ, MOSQUITTO), left_out), seed, document, told)


def _but(peers: Sequence[Peer], left_out: Sequence[str]) -> list[Peer]:
    return [peer for peer in peers if peer.name not in left_out]


def _latency(
    rate: int,
    measured: Sequence[Peer],
    seed: int,
    effort: Effort,
    document: dict[str, Any],
    told: Callable[[str], None],
) -> str:
    """Measure many short windows of all brokers in turn.

    Whatever else the machine does lengthens some windows, of whomever it meets, and shortens none:
    the lower quartile of many windows is the broker's own more than a mean of few long ones.
    """
    windows = effort.rounds * effort.windows
    window_s = min(max(effort.window_messages / rate, _SHORTEST_WINDOW_S), _LONGEST_WINDOW_S)
    traffic = latency.traffic(seed)
    found: dict[str, list[latency.Latency]] = {peer.name: [] for peer in measured}
    with contextlib.ExitStack() as stack:
        brokers = {peer: stack.enter_context(running(peer)) for peer in measured}
        loads = {peer: Load(peer.wire, peer.hearing, traffic) for peer in measured}
        for peer in measured:
            burst.check(peer, brokers[peer], loads[peer])
        for number in range(windows):
            for peer in in_turn(measured, number):
                taken = latency.measure(peer, brokers[peer], loads[peer], rate, window_s)
                found[peer.name].append(taken)
            if not (number + 1) % effort.windows:
                line = ", ".join(f"{name} {_quiet(all_):.0f}" for name, all_ in found.items())
                told(f"latency at {rate}/s: {number + 1}/{windows} windows, p99 in us: {line}")
    document[f"latency_us_at_{rate}"] = {
        name: [asdict(each) for each in all_] for name, all_ in found.items()
    }
    disturbed = sum(each.disturbed for all_ in found.values() for each in all_)
    lines = [
        f"{windows} windows of {window_s:g} s; quiet: the lower quartile of them; "
        f"{disturbed} of {windows * len(measured)} were disturbed",
        "",
        "| messages/s | broker | p50, µs | quiet p99, µs | median p99, µs | CPU, µs each "
        "| quiet p99 / mosquitto's | p99 / mosquitto's by window | at most | reached |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_latency_line(rate, peer.name, found) for peer in measured),
    ]
    return "\n".join(lines)


def _quiet(windows: Sequence[latency.Latency]) -> float:
    """Return the lower quartile of the windows' p99, microseconds."""
    return sorted(each.p99 for each in windows)[(len(windows) - 1) // 4]


def _latency_line(rate: int, name: str, found: dict[str, list[latency.Latency]]) -> str:
    windows, others = found[name], found.get(MOSQUITTO.name, [])
    figures = [
        statistics.median(each.p50 for each in windows),
        _quiet(windows),
        statistics.median(each.p99 for each in windows),
    ]
    cpu_us = statistics.median(each.measured.cpu_us for each in windows)
    cells = [f"{rate:,}", name, *(f"{figure:.0f}" for figure in figures), f"{cpu_us:.1f}"]
    at_most = _AT_MOST.get(name) if rate == _JUDGED_AT else None
    if not others or name == MOSQUITTO.name:
        cells += ["", "", "" if at_most is None else f"{at_most:g}", ""]
    else:
        quiet = _quiet(windows) / _quiet(others)
        by_window = statistics.median(a.p99 / b.p99 for a, b in zip(windows, others, strict=True))
        cells += [f"{quiet:.2f}", f"{by_window:.2f}"]
        cells += ["", ""] if at_most is None else [f"{at_most:g}", _reached(quiet <= at_most)]
    return "| " + " | ".join(cells) + " |"


def _reached(reached: bool) -> str:
    return "yes" if reached else "**no**"


def _idle(
    peers: Sequence[Peer],
    count: int,
    document: dict[str, Any],
    told: Callable[[str], None],
) -> str:
    wanted = count + 100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise PeerFailed(f"idle needs {wanted} open files, the system allows {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    lines = [
        f"| {count:,} idle clients | KiB each | CPU, % of a core | under | reached |",
        "|---|---|---|---|---|",
    ]
    document["idle"] = {"clients": count}
    for peer in peers:
        with running(peer) as broker:
            found = idle.measure(peer, broker, count)
        told(f"idle: {peer.name} {found.kib_per_client:.1f} KiB per client")
        document["idle"][peer.name] = asdict(found)
        goal = ["", ""]
        if peer is MOTEMQ:
            goal = [f"{idle.MUST_KIB:g} KiB", _reached(found.kib_per_client < idle.MUST_KIB)]
        cells = [peer.name, f"{found.kib_per_client:.1f}", f"{found.cpu_percent:.1f}", *goal]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _retained(
    peers: Sequence[Peer], seed: int, document: dict[str, Any], told: Callable[[str], None]
) -> str:
    lines = [
        f"| {retained.RETAINED_BYTES / 1e6:g} MB retained, {retained.SUBSCRIBERS} subscribers that "
        "never read | MB for the retained | MB for the subscribers | under | reached |",
        "|---|---|---|---|---|",
    ]
    document["retained"] = {}
    for peer in peers:
        with running(peer) as broker:
            found = retained.measure(peer, broker, seed)
        told(f"retained: {peer.name} {found.subscribers_mb:.1f} MB for the subscribers")
        document["retained"][peer.name] = asdict(found)
        goal = ["", ""]
        if peer is MOTEMQ:
            goal = [f"{retained.MUST_MB:g} MB", _reached(found.subscribers_mb < retained.MUST_MB)]
        cells = [peer.name, f"{found.retained_mb:.1f}", f"{found.subscribers_mb:.1f}", *goal]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
