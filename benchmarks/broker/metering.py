"""What a measurement cost and whether anybody disturbed it.

The broker's processor time hardly depends on how the load generator waits; where the generator
or the second core is the limit, it tells more than the rate.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

# A measurement counts as disturbed when programs that are no part of it, or other guests of the
# same host ("steal"), used more than this share of the machine. Undisturbed, kernel threads and
# the hundredths of a second in which /proc/stat counts make up to 3 %.
_OTHERS_SHARE = 0.05
_STOLEN_SHARE = 0.03
_SETTLE_S = 3.0
_BLOCK = bytes(1024 * 1024)
_SETTLE_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement of one broker."""

    deliveries_per_second: float
    cpu_us: float  # processor time of the broker per delivery, microseconds, all its threads
    broker_cores: float  # cores that the broker kept busy
    generator_cores: float  # cores that the load generator kept busy
    others_share: float  # of the machine's time, used by programs that are no part of this
    stolen_share: float  # of the machine's time, taken by other guests of the host

    @property
    def disturbed(self) -> bool:
        """Tell whether the figures say more about others than about the broker."""
        return self.others_share > _OTHERS_SHARE or self.stolen_share > _STOLEN_SHARE


class Meter:
    """Counts from its creation to ``stop``. ``pid``: the broker's process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._used_s, self._stolen_s = _used_and_stolen_s()
        self._began = time.perf_counter()
        self._generator_s = time.process_time()
        self._broker_s = cpu_s(pid)
        self.started = time.perf_counter()  # of the load, seconds on the clock of perf_counter

    def stop(self, deliveries: int) -> Measured:
        """Return what ``deliveries`` have cost since the start."""
        ended = time.perf_counter()
        broker_s = cpu_s(self._pid) - self._broker_s
        generator_s = time.process_time() - self._generator_s
        whole_s = time.perf_counter() - self._began
        used_s, stolen_s = _used_and_stolen_s()
        machine_s = whole_s * (os.cpu_count() or 1)
        others_s = used_s - self._used_s - broker_s - generator_s
        elapsed_s = ended - self.started
        return Measured(
            deliveries / elapsed_s,
            broker_s / deliveries * 1e6,
            broker_s / elapsed_s,
            generator_s / elapsed_s,
            max(0.0, others_s) / machine_s,
            (stolen_s - self._stolen_s) / machine_s,
        )


class _Judged(Protocol):
    @property
    def disturbed(self) -> bool: ...


_T = TypeVar("_T", bound=_Judged)


def undisturbed(take: Callable[[], _T], attempts: int) -> _T:
    """Measure again while others use the machine; the last of the attempts counts anyway."""
    for _ in range(attempts):
        taken = take()
        if not taken.disturbed:
            break
    return taken


def touch_memory(count: int) -> None:
    """Write and delete a file of ``count`` bytes, so that memory is free that was used before.

    A virtual machine gets memory from its host when it first writes there: 25 us for 4 KiB where
    this was written, while copying those takes one. A broker with a journal would be measured by
    how long the machine has been up.
    """
    with tempfile.TemporaryFile() as file:
        for _ in range(count // len(_BLOCK)):
            file.write(_BLOCK)


def settle(pid: int) -> None:
    """Return when a process uses less than a twentieth of a core, or after 3 s."""
    end = time.monotonic() + _SETTLE_S
    while time.monotonic() < end:
        before = cpu_s(pid)
        time.sleep(_SETTLE_LOOK_S)
        if cpu_s(pid) - before < 0.05 * _SETTLE_LOOK_S:
            return


def cpu_s(pid: int) -> float:
    """Return the seconds of processor time that all threads of a process have used.

    Linux only. Raises ``OSError`` if there is no such process.
    """
    # The clock of a process is its negated id and CPUCLOCK_SCHED (2): clock_getcpuclockid(3).
    return time.clock_gettime((~pid << 3) | 2)


def _used_and_stolen_s() -> tuple[float, float]:
    """Return the seconds that programs ran, and that other guests took, since the start.

    The kernel's work for packets (softirq) is nobody's: a broker of many small writes causes a
    sixth of the machine of it, which would look as if others had disturbed.
    """
    fields = Path("/proc/stat").read_text().split(maxsplit=9)
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return sum(int(field) for field in fields[1:4]) * tick_s, int(fields[8]) * tick_s


def resident_bytes(pid: int) -> int:
    """Return the memory that a process has in use. Linux only."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
