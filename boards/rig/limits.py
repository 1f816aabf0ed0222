"""The limits of one board: what it may take at most, and must have left at least."""

from collections.abc import Mapping, Sequence

from boards.rig.checks import Samples
from boards.rig.percentiles import percentile

RTT_P99 = "rtt_p99_ms"
HEAP_FREE = "heap_free_min"  # bytes


def beyond(limits: Mapping[str, float], samples: Sequence[Samples]) -> str:
    """Return what of ``samples`` is beyond a limit, "" if nothing is."""
    if RTT_P99 not in limits:
        return ""
    for sample in samples:
        if sample.metric != "rtt" or not sample.values:
            continue
        p99_ms = percentile(sample.values, 99) / 1000
        if p99_ms > limits[RTT_P99]:
            return f"RTT p99 is {p99_ms:.1f} ms, the board's limit is {limits[RTT_P99]:g} ms"
    return ""


def short_of_heap(limits: Mapping[str, float], free_bytes: int) -> str:
    """Return by how much the board's free heap is below its limit, "" if it is not."""
    least = limits.get(HEAP_FREE, 0.0)
    if free_bytes >= least:
        return ""
    return f"{free_bytes} bytes of heap are free after the checks, the board's limit is {least:g}"
