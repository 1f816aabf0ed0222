"""Wait for one descriptor, whatever its number: select() cannot above 1023, poll() can."""

import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike


def wait_readable(file: "FileDescriptorLike", limit_s: float) -> bool:
    """Wait until a read would not block (also: it would fail); False if not within ``limit_s``."""
    return _wait(file, select.POLLIN, limit_s)


def wait_writable(file: "FileDescriptorLike", limit_s: float) -> bool:
    """Wait until a write would not block (also: it would fail); False if not within ``limit_s``."""
    return _wait(file, select.POLLOUT, limit_s)


def _wait(file: "FileDescriptorLike", event: int, limit_s: float) -> bool:
    poll = select.poll()
    poll.register(file, event)
    return bool(poll.poll(max(limit_s, 0.0) * 1000))
