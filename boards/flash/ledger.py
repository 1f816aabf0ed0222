"""What was written to which board, when, by what: one JSON line each, only ever appended."""

import datetime
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    """One flashing that was proven: the board booted the image and said who it is.

    Without ``sha256`` it is one that was begun, and says that what was before may be gone.
    """

    board: str
    identity: str  # MAC or uid, hex
    sha256: str
    image: str
    tool: str
    machine: str
    version: str
    when: str = ""  # UTC, ISO 8601


class Ledger:
    """The file ``path``; several processes may append, each whole lines."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, entry: Entry) -> None:
        """Write one line, on disk when this returns."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = json.dumps({**asdict(entry), "when": now}) + "\n"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab", buffering=0) as file:
            file.write(line.encode())
            os.fsync(file.fileno())

    def last(self, board: str) -> Entry | None:
        """Return what the board was last given, or None; damaged lines are passed over."""
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        for line in reversed(text.splitlines()):
            try:
                row = json.loads(line)
                if row["board"] == board:
                    return Entry(**row)
            except (ValueError, KeyError, TypeError):
                continue  # cut short by a full disk or a power cut
        return None
