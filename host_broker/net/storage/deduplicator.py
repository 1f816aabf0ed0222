"""Publications that are repeated when nobody knows whether they arrived, published once.

A publisher numbers what it sends, in ascending order; what is not above the last number is known.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from host_broker.net.journal.numbered import Number, newest
from host_broker.net.journal.scan import JournalError
from host_broker.net.storage.files import replace

MOST_PUBLISHERS = 1000  # then the one that has said nothing for longest is forgotten


class Deduplicator:
    """Remembers the last number of each publisher; in ``path``, if that is given."""

    def __init__(self, path: Path | None) -> None:
        """Read what was remembered. Raises ``JournalError`` if that cannot be read."""
        self._path = path
        self._last: dict[str, Number] = {}
        self._published: dict[str, Number] = {}  # and not remembered yet
        if path is None:
            return
        try:
            for name, (batch, part) in json.loads(path.read_text()).items():
                self._last[name] = int(batch), int(part)
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise JournalError(
                f"{path} cannot be read ({error}); it says what publishers have published: move it "
                "away, and batches that are repeated now may be published twice"
            ) from error

    def recover(self, journal: Path) -> None:
        """Remember what a broker that was killed had published, but not yet remembered.

        Call it before anything is added to the folder ``journal``. Raises ``JournalError``.
        """
        if self._path is None or not self._path.exists():
            return
        try:
            for publisher, number in newest(journal, self._path.stat().st_mtime):
                if not self.known(publisher, number):
                    self.remember(publisher, number)
        except OSError as error:
            raise JournalError(
                f"what was published last cannot be read from {journal}, or noted in {self._path}: "
                f"{error.strerror or error}"
            ) from error

    def begin(self) -> None:
        """Have a file before the first publication: ``recover`` looks for what came after it.

        Raises ``OSError``.
        """
        if self._path is not None and not self._path.exists():
            self._write(self._last)

    def known(self, publisher: str, number: Number) -> bool:
        """Whether this was published already, or something after it."""
        last = self._last.get(publisher)
        return last is not None and number <= last

    def published(self, publisher: str, number: Number) -> None:
        """Say that the journal has been given it: until it is remembered it may not be on file."""
        self._published.pop(publisher, None)
        self._published[publisher] = number
        while len(self._published) > MOST_PUBLISHERS:
            del self._published[next(iter(self._published))]

    def is_published(self, publisher: str, number: Number) -> bool:
        """Whether the journal has been given it, on file or not."""
        last = self._published.get(publisher)
        return last is not None and number <= last

    def remember(self, publisher: str, number: Number) -> None:
        """Say that it is published, and on file. Raises ``OSError``."""
        last = dict(self._last)
        last.pop(publisher, None)
        last[publisher] = number
        while len(last) > MOST_PUBLISHERS:
            del last[next(iter(last))]
        self._write(last)
        self._last = last

    def _write(self, last: Mapping[str, Number]) -> None:
        if self._path is None:
            return
        replace(self._path, json.dumps(last))
