"""No crash leaves behind what was in memory: messages of others, and secrets among them."""

import contextlib
import os
from pathlib import Path

# What a core dump has (core(5)). 0: registers, and nothing of the memory. Those who are handed
# dumps, as a crash reporter is, need not heed the limit of their size.
_FILTER = Path("/proc/self/coredump_filter")


def forbid_core_dumps() -> None:
    """Forbid them for this process and its children, unless ``MOTEMQ_CORE_DUMPS`` is 1."""
    if os.environ.get("MOTEMQ_CORE_DUMPS", "") not in ("", "0"):
        return
    try:
        import resource
    except ImportError:
        return  # no Unix, no core dumps
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    with contextlib.suppress(OSError):  # a system without it
        _FILTER.write_text("0")
