"""What a backup is: a tar whose last member says what the others have to be.

The members are the files of a data folder, by the names that they have there, and ``backup.json``.
A tar without it was cut off. Pure: it knows texts and bytes only.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

MANIFEST = "backup.json"
SIZE_HEADER = "Backup-Bytes"  # of the answer: those of all files together
FORMAT = 1
# Whatever a tar or a manifest says, nothing is written anywhere else.
_NAME = re.compile(
    r"[a-z][a-z0-9]*\.sqlite|published\.json|users\.toml|acl\.toml|journal/(journal|groups)\.json"
    r"|journal/p\d{4,6}/\d{20}\.mj[li]"
)
_SHA256 = re.compile(r"[0-9a-f]{64}")


class BackupFault(ValueError):
    """It is no backup, or not a whole one; the text says why."""


@dataclass(frozen=True, slots=True)
class BackedUpFile:
    """A file: its name below the data folder, bytes, time of its last write, SHA-256."""

    name: str
    size: int
    written_ns: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup has, taken at ``taken_ns`` (since 1970 UTC); ``nexts``: of each partition the
    number after its last message."""

    journal: str
    taken_ns: int
    nexts: Sequence[int]
    files: Sequence[BackedUpFile]

    def spelled(self) -> bytes:
        """Return it as bytes."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode() + b"\n"


def is_allowed(name: str) -> bool:
    """Whether a backup may have a file of this name."""
    return _NAME.fullmatch(name) is not None


def read_manifest(data: bytes) -> Manifest:
    """Read it. Raises ``BackupFault``."""
    try:
        document: dict[str, Any] = json.loads(data)
        if document["format"] != FORMAT:
            raise BackupFault(
                f"it is of format {document['format']!r}, this motemq knows {FORMAT}; use the one "
                "that made it"
            )
        files = [
            BackedUpFile(str(f["name"]), int(f["size"]), int(f["written_ns"]), str(f["sha256"]))
            for f in document["files"]
        ]
        nexts = [int(number) for number in document["nexts"]]
        manifest = Manifest(str(document["journal"]), int(document["taken_ns"]), nexts, files)
    except BackupFault:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BackupFault(f"its {MANIFEST} is not what a broker writes") from error
    names = {file.name for file in manifest.files}
    strange = [file for file in manifest.files if not _is_sound(file)]
    if strange or len(names) != len(manifest.files):
        raise BackupFault(f"its {MANIFEST} names a file that no backup has, or one twice")
    return manifest


def _is_sound(file: BackedUpFile) -> bool:
    whole = file.size >= 0 and 0 <= file.written_ns < 2**63
    return whole and is_allowed(file.name) and _SHA256.fullmatch(file.sha256) is not None
