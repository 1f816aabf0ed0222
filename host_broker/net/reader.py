"""What a stream asks of its protocol beyond asyncio: to pass on a read at once."""

import asyncio
from collections.abc import Sequence


class Reader(asyncio.Protocol):
    """A protocol that may take a read in a shorter way than asyncio's."""

    def pass_on(self, data: bytes) -> bool | None:
        """Pass on a read at once, before anything else is read, if that is possible.

        None: it was not taken, and comes again in ``data_received``. False: it was, but asyncio's
        loop has something to do for it.
        """
        return None

    def passed(self, count: int, size: int) -> None:
        """So many publications, of ``size`` bytes together, were passed on for it."""

    def finish(self, data: bytes, sent: int, receivers: "Sequence[Reader]") -> None:
        """Some of them are still to be sent to ``receivers``; the first has ``sent`` bytes."""
