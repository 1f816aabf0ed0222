"""Consumer groups: up to which message each has read, kept across restarts.

Messages that all groups have read may go before their time (``journal.trim_read``); how long
messages are kept at most is not theirs to say.
"""

import json
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from host_broker.net.journal.scan import JournalError
from host_broker.net.storage.files import private

MOST_GROUPS = 100
GROUPS_FILE = "groups.json"
_log = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class GroupError(ValueError):
    """A group cannot be kept; the text says why."""


@dataclass(frozen=True, slots=True)
class Group:
    """``positions``: partition to the number of the first message not yet read."""

    positions: Mapping[int, int]
    said_ns: int  # when, since 1970 UTC


def read_groups(path: Path) -> dict[str, Group]:
    """Return the groups in a file, none if it is not there. Raises ValueError, ``OSError``."""
    try:
        document = json.loads(path.read_bytes())
        groups = {}
        for name, group in document.items():
            positions = {int(number): int(at) for number, at in group["positions"].items()}
            groups[str(name)] = Group(positions, int(group["said_ns"]))
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not what the broker writes ({error})") from error
    return groups


def _unreadable(path: Path, error: OSError) -> JournalError:
    return JournalError(
        f"{path} cannot be read ({error.strerror or error}); it says what consumer groups have "
        "read: move it away to begin without groups"
    )


class Groups:
    """The groups of the journal in ``folder``. Threads may share one."""

    def __init__(self, folder: Path) -> None:
        """Read them. A file that is torn is put aside, and the log says so.

        Raises ``JournalError`` if there is a file that cannot be opened.
        """
        self._path = folder / GROUPS_FILE
        self._lock = threading.Lock()
        self._groups: dict[str, Group] = {}
        self._torn = False
        try:
            self._groups = read_groups(self._path)
        except ValueError as error:
            self._torn = True
            aside = self._path.with_suffix(".torn")
            try:
                self._path.replace(aside)
            except OSError as failure:
                raise _unreadable(self._path, failure) from failure
            _log.warning(
                "journal: torn: %s: %s; it is kept as %s, consumer groups begin anew, and nothing "
                "is deleted because they have read it until the broker starts again",
                self._path,
                error,
                aside.name,
            )
        except OSError as error:
            raise _unreadable(self._path, error) from error

    def all(self) -> dict[str, Group]:
        """Return all groups by name."""
        with self._lock:
            return dict(self._groups)

    def put(self, name: str, positions: Mapping[int, int]) -> None:
        """Keep what a group has read. Raises ``GroupError``, ``OSError``."""
        if not _NAME.fullmatch(name):
            raise GroupError("a group's name has 1 to 64 letters, digits, '.', '_' or '-'")
        with self._lock:
            if name not in self._groups and len(self._groups) >= MOST_GROUPS:
                raise GroupError(f"there are {MOST_GROUPS} groups already; delete one")
            known = self._groups.get(name)
            merged = {**(known.positions if known else {}), **positions}
            self._write({**self._groups, name: Group(merged, time.time_ns())})

    def delete(self, name: str) -> bool:
        """Forget a group; False if there is none. Raises ``OSError``."""
        with self._lock:
            if name not in self._groups:
                return False
            self._write({each: group for each, group in self._groups.items() if each != name})
            return True

    def read_by_all(self) -> dict[int, int]:
        """Return, by partition, the first message that some group has not read.

        A partition of which a group has said nothing is not in it; nothing is, without groups.
        """
        groups = list(self.all().values())
        if not groups or self._torn:  # others may have read less, and not said so again yet
            return {}
        partitions = set.intersection(*(set(group.positions) for group in groups))
        return {number: min(group.positions[number] for group in groups) for number in partitions}

    def _write(self, groups: dict[str, Group]) -> None:
        document = {
            name: {"positions": dict(group.positions), "said_ns": group.said_ns}
            for name, group in groups.items()
        }
        unborn = self._path.with_suffix(".new")
        with private(unborn) as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        unborn.replace(self._path)
        self._groups = groups
