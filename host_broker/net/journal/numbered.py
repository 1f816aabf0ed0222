"""Publications that have a number (docs/http.md, Once), as the journal has them.

All of one request are one record, which names publisher and number as its client. A record is
whole or it is not there, so the journal itself knows what was published, however a broker ended.
"""

from collections.abc import Iterator
from pathlib import Path

from host_broker.net.journal.format import SEGMENT_SUFFIX
from host_broker.net.journal.mark import Number, name_of, read_mark
from host_broker.net.journal.scan import indexed

__all__ = ["Number", "name_of", "newest"]

_CLOCK_S = 60.0  # a file's time may be off by so much


def newest(journal: Path, since_s: float) -> Iterator[tuple[str, Number]]:
    """Yield publisher and number of the newest such record of every partition.

    Looks into the last segment, and while it finds none into earlier ones that were written after
    ``since_s`` (s since 1970). Raises ``OSError``, ``JournalError``.
    """
    for folder in journal.glob("p[0-9]*"):
        segments = sorted(folder.glob("[0-9]*" + SEGMENT_SUFFIX), reverse=True)
        for path in segments:
            if path != segments[0] and path.stat().st_mtime < since_s - _CLOCK_S:
                break
            index = indexed(path, int(folder.name[1:]))
            found = read_mark(index.mark) if index is not None else None
            if found is not None:
                yield found
                break
