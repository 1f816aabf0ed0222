"""The journal's name: a UUID, made once, which tells it from every other journal."""

import json
import os
import uuid
from pathlib import Path

from host_broker.net.journal.format import (
    HEADER_LENGTH,
    SEGMENT_SUFFIX,
    HeaderFault,
    unpack_header,
)
from host_broker.net.journal.scan import version_1
from host_broker.net.storage.files import private

IDENTITY_FILE = "journal.json"


def read_identity(journal: Path) -> uuid.UUID | None:
    """Return the UUID of the journal in a folder, None if it has none yet.

    It is in ``journal.json``, and in every segment: whichever of them is there says it. Raises
    ``JournalError`` for a journal of version 1, ``OSError``.
    """
    stored = stored_identity(journal / IDENTITY_FILE)
    if stored is not None:
        return stored
    for path in sorted(journal.glob("p[0-9]*/[0-9]*" + SEGMENT_SUFFIX)):
        with path.open("rb") as file:
            found = unpack_header(
                file.read(HEADER_LENGTH), int(path.parent.name[1:]), int(path.stem)
            )
        if not isinstance(found, HeaderFault):
            return found.journal
        if found.version == 1:
            raise version_1(journal)
    return None


def identity_of(journal: Path) -> uuid.UUID:
    """Return the UUID of the journal in a folder; makes it if there is none, and keeps it.

    Raises ``JournalError``, ``OSError``.
    """
    known = read_identity(journal)
    identity = known or uuid.uuid4()
    path = journal / IDENTITY_FILE
    if identity != stored_identity(path):
        journal.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        with private(fresh) as file:
            json.dump({"format": 2, "id": str(identity)}, file)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    return identity


def stored_identity(path: Path) -> uuid.UUID | None:
    """Return the UUID in a ``journal.json``, None if it is torn or not there.

    Raises ``OSError``.
    """
    try:
        return uuid.UUID(json.loads(path.read_bytes())["id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
