"""How a continuous run is doing: told by the run itself, and by its checkpoint when it is gone.

The run writes ``CHECKPOINT/status.json`` every second. How far it is behind is asked of the
journal when somebody looks, so it is true also while nothing runs. Needs no Spark.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from motemq_pipeline.errors import PipelineError

BRONZE = "bronze"  # the query that reads the journal; the others read its table
_FILE = "status.json"
_LOCK = ".lock"  # the kernel frees it when its holder ends, however that ends


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One query: its last batch, and messages behind the journal (None: not known)."""

    name: str
    batch: int
    batch_rows: int
    batch_s: float
    rows: int  # since the run began
    rows_per_s: float  # of the last ten seconds
    behind: int | None
    finished_at: str  # the last batch with rows; "" before it
    restarts: int = 0  # after failures that passed
    failure: str = ""  # why it failed the last time, if it did


@dataclass(frozen=True, slots=True)
class RunStatus:
    """What a run says of itself."""

    pid: int
    state: str  # "running", "ended" or "failed: why"
    started_at: str
    updated_at: str
    queries: tuple[QueryStatus, ...]
    unreachable: Mapping[str, str] = field(default_factory=dict)  # brokers, and why
    given_up: tuple[str, ...] = ()  # what is no longer kept for somebody who did not read it


def now() -> str:
    """Return the time as it is written everywhere: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_status(status: RunStatus, checkpoint: Path) -> None:
    """Replace what was said before."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    fresh = checkpoint / f".{_FILE}.new"
    fresh.write_text(json.dumps(asdict(status)) + "\n")
    os.replace(fresh, checkpoint / _FILE)


@contextlib.contextmanager
def only_run(checkpoint: Path) -> Iterator[None]:
    """Hold a checkpoint for one run; raises ``PipelineError`` if another one goes on with it."""
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
        lock = (checkpoint / _LOCK).open("a+")
    except OSError as error:
        raise PipelineError(
            f"the checkpoint {checkpoint} cannot be written: {error.strerror}"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read() or "another process"
            raise PipelineError(
                f"{holder} is running with the checkpoint {checkpoint}; one at a time"
            ) from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()}")
        lock.flush()
        yield


def _is_held(checkpoint: Path) -> bool:
    try:
        with (checkpoint / _LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def read_status(checkpoint: Path) -> RunStatus:
    """Return the last word of a run; raises ``PipelineError`` if there was none.

    A run that was killed has ``ended without a word``: it holds its checkpoint no more.
    """
    try:
        document = json.loads((checkpoint / _FILE).read_text())
        queries = tuple(QueryStatus(**each) for each in document.pop("queries"))
        document["given_up"] = tuple(document.get("given_up", ()))
        status = RunStatus(**document, queries=queries)
    except FileNotFoundError:
        raise PipelineError(
            f"no run has used the checkpoint {checkpoint} yet; one that has just begun does so "
            "when its Spark has started"
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise PipelineError(f"{checkpoint / _FILE} cannot be read: {error}") from error
    if status.state == "running" and not _is_held(checkpoint):
        document["state"] = f"ended without a word (killed?) after {status.updated_at}"
        return RunStatus(**document, queries=queries)
    return status


def position(
    checkpoint: Path, query: str, has: Callable[[str, int], bool] = lambda query, batch: False
) -> dict[str, int] | None:
    """Return the offset of a query after the last batch that is in the tables.

    That is, of bronze, the next message of each partition; of others ``table_source``'s. Read from
    the checkpoint; None if there is no such batch. ``has``: whether the table has a batch of the
    query with this id: one whose end Spark had no time to note is there all the same.
    """
    done, planned = newest(checkpoint, query), newest_planned(checkpoint, query)
    if planned is not None and planned != done and has(query_id(checkpoint / query), planned):
        done = planned
    return None if done is None else _ends(checkpoint, query, done)[0]


def finished(checkpoint: Path, query: str) -> list[dict[str, int]]:
    """Return the offsets after the last batch that is finished, one a source; [] before it."""
    done = newest(checkpoint, query)
    return [] if done is None else _ends(checkpoint, query, done)


def _ends(checkpoint: Path, query: str, batch: int) -> list[dict[str, int]]:
    lines = (checkpoint / query / "offsets" / str(batch)).read_text().splitlines()
    # A version, a line about the batch, then one line a source.
    return [json.loads(line) for line in lines[2:]]


def begun_at(checkpoint: Path, query: str) -> datetime | None:
    """Return when a query was started for the first time, None before it."""
    try:
        return datetime.fromtimestamp((checkpoint / query / "metadata").stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


def query_id(checkpoint: Path) -> str:
    """Return the id of the query that has this checkpoint, "" before it was ever started."""
    try:
        found: str = json.loads((checkpoint / "metadata").read_text())["id"]
    except FileNotFoundError:
        return ""
    return found


def behind(read_up_to: Mapping[str, int], journal: Mapping[int, Any]) -> int:
    """Return how many messages bronze has yet to read. ``journal``: its partitions."""
    return sum(
        max(0, state.next - max(state.first, read_up_to.get(str(number), 0)))
        for number, state in journal.items()
    )


def newest(checkpoint: Path, query: str) -> int | None:
    """Return the number of the last batch that is finished, None before the first."""
    return _highest(checkpoint / query / "commits")


def newest_planned(checkpoint: Path, query: str) -> int | None:
    """Return the number of the last batch that was begun, None before the first."""
    return _highest(checkpoint / query / "offsets")


def _highest(folder: Path) -> int | None:
    entries = (entry.name for entry in folder.glob("[0-9]*"))
    return max((int(name) for name in entries if name.isdecimal()), default=None)
