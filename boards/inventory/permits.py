"""How many may do a thing at once, over all processes: flashing per USB controller, the radio.

Kernel locks again: a permit is free the moment its process ends.
"""

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOOK_S = 0.05


class NoPermit(Exception):
    """It was not our turn within the time."""


@contextmanager
def flash_permit(
    state_dir: Path, controller: str, count: int, *, deadline_s: float
) -> Iterator[None]:
    """Be one of ``count`` that flash on ``controller`` while the block lasts.

    More at once than a host controller bears and transfers fail; off the USB (``""``) there is
    none to spare. Waits up to ``deadline_s`` seconds; raises ``NoPermit``.
    """
    if not controller:
        yield
        return
    name = re.sub(r"[^A-Za-z0-9.-]", "_", controller)
    folder = state_dir / "permits"
    until = time.monotonic() + deadline_s
    while True:
        for number in range(count):
            descriptor = _try(folder / f"flash-{name}-{number}.lock", fcntl.LOCK_EX)
            if descriptor is not None:
                try:
                    yield
                finally:
                    os.close(descriptor)
                return
        if time.monotonic() > until:
            raise NoPermit(
                f"{count} boards on controller {controller} are being flashed, and none was done "
                f"within {deadline_s:g} s"
            )
        time.sleep(_LOOK_S)


@contextmanager
def radio(state_dir: Path, *, alone: bool, deadline_s: float) -> Iterator[None]:
    """Use the air while the block lasts: ``alone`` to measure, else together with others.

    Boards that measure at once would measure each other. Who wants to be alone is waited for at
    the gate, so a stream of others cannot starve it. Raises ``NoPermit``.
    """
    folder = state_dir / "permits"
    until = time.monotonic() + deadline_s
    kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    gate = _wait(folder / "radio-gate.lock", kind, until, deadline_s)
    try:
        air = _wait(folder / "radio.lock", kind, until, deadline_s)
    finally:
        os.close(gate)
    try:
        yield
    finally:
        os.close(air)


def _wait(path: Path, kind: int, until: float, deadline_s: float) -> int:
    while True:
        descriptor = _try(path, kind)
        if descriptor is not None:
            return descriptor
        if time.monotonic() > until:
            raise NoPermit(f"the radio was not ours within {deadline_s:g} s: others measure")
        time.sleep(_LOOK_S)


def _try(path: Path, kind: int) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o664)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
