"""Kill parts of a cluster and cut their cables under load, then count.

Each fault lasts some seconds; then everything that had been acknowledged by its end must get into
the table before the next one begins.
"""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster.network import BROKERS, WORKERS, Driver, Network, keys, rows
from benchmarks.faults.count import Message
from benchmarks.faults.processes import Failed
from host_broker.client import ClientError, connect
from motemq_pipeline.delta import Table
from motemq_pipeline.errors import PipelineError

KILLS = ("driver", "worker", "broker")
CUTS = ("cut-driver", "cut-worker", "cut-broker", "cut-store", "cut-master")
FAULTS = (*KILLS, *CUTS)
_CUT = "cut-"
_RECOVER_S = 600.0  # from the end of a fault until all is in the table
_WRITTEN_S = 10.0  # of the end of a journal (journal.flush_s)
_AT_ONCE = 50  # messages of a board, then it waits for their acknowledgement
_ACKNOWLEDGE_S = 5.0
_AGAIN_S = 0.2


class Board:
    """Publishes to one broker from a thread, through every fall of it, until ``end``.

    A message is acknowledged when the broker has answered the ``sync`` behind it, so it is in the
    journal (``journal.ack=written``). What was not acknowledged is not published again.
    """

    def __init__(self, name: str, url: str, rate: float) -> None:
        self._name = name
        self._url = url
        self._rate = rate
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: list[range] = []
        self._thread.start()

    @property
    def count(self) -> int:
        """How many messages were acknowledged."""
        return sum(map(len, list(self.acknowledged)))

    def path(self) -> str:
        """Return where it publishes."""
        return f"telemetry/{self._name}/temperature"

    def payloads(self) -> Iterator[bytes]:
        """Yield every payload that was acknowledged."""
        for numbers in self.acknowledged:
            yield from map(self._payload, numbers)

    def end(self) -> None:
        """Stop."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._ended.is_set():
            with (
                suppress(OSError, ClientError),
                connect(self._url, timeout_s=_ACKNOWLEDGE_S) as client,
            ):
                while not self._ended.is_set():
                    began = time.monotonic()
                    numbers = range(number, number + _AT_ONCE)
                    number = numbers.stop  # whatever becomes of these
                    for each in numbers:
                        client.publish(self.path(), self._payload(each))
                    client.sync(_ACKNOWLEDGE_S)
                    self.acknowledged.append(numbers)
                    self._ended.wait(_AT_ONCE / self._rate - (time.monotonic() - began))
            self._ended.wait(_AGAIN_S)

    def _payload(self, number: int) -> bytes:
        said = {"v": 1, "board": self._name, "seq": number, "t_ms": number, "value": number}
        return json.dumps({**said, "sensor": "temperature", "unit": "C"}).encode()


@dataclass(frozen=True, slots=True)
class Result:
    """Messages that were acknowledged, of both journals, and rows of the table."""

    faults: int
    acknowledged: int
    journal: int
    rows: int
    twice: int  # in silver, too
    missing: int  # of what was acknowledged
    others: int  # rows that no journal has, or has otherwise; messages of a journal without a row
    ended: tuple[str, ...]  # last words of drivers that ended by themselves
    seconds: float

    @property
    def exact(self) -> bool:
        """Whether every message is there once."""
        return self.rows == self.journal and not (self.twice or self.missing or self.others)


def run(
    network: Network,
    folder: Path,
    faults: Sequence[str],
    rate: float,
    chance: random.Random,
    tell: Callable[[str], None],
    longest_s: float = 10.0,
) -> Result:
    """Do ``faults`` one after the other, each for up to ``longest_s``, then count.

    ``rate``: messages a second of each of the two brokers. ``folder`` is for the run's file and
    checkpoint; its name is that of the tables, too. Raises ``Failed``.
    """
    began = time.monotonic()
    place = network.place(folder.name)
    driver = Driver(network, network.config(folder, place.uri))
    bronze, silver = Table(place, "bronze_messages"), Table(place, "silver_telemetry")
    driver.start()
    with _boards(network, rate) as boards:

        def recovered(what: str) -> float:
            acknowledged = sum(board.count for board in boards)
            return _until_there(what, bronze, acknowledged, driver)

        recovered("the start")
        for number, fault in enumerate(faults, start=1):
            time.sleep(chance.uniform(0.0, 2.0))
            lasts_s = chance.uniform(0.0, longest_s)
            named = _strike(network, driver, fault, lasts_s, chance)
            seconds = recovered(fault)
            tell(
                f"{number} of {len(faults)}: {named} for {lasts_s:.1f} s, "
                f"then up to date after {seconds:.1f} s"
            )
    _until_written(network, boards)
    for table in (bronze, silver):
        _until_there("the end", table, len(network.journalled()), driver)
    driver.end()
    journal = network.journalled()
    return _counted(journal, rows(place), keys(place), boards, len(faults), driver.ended, began)


def _until_there(what: str, table: Table, wanted: int, driver: Driver) -> float:
    """Wait until a table has so many rows; return for how long. Raises ``Failed``."""
    since = time.monotonic()
    while (there := _count(table)) < wanted:
        driver.look()
        if time.monotonic() > since + _RECOVER_S:
            raise Failed(
                f"{what}: {table.name} has {there} of {wanted} messages after {_RECOVER_S:g} s"
            )
        time.sleep(0.2)
    return time.monotonic() - since


def _until_written(network: Network, boards: Sequence[Board]) -> None:
    """Wait until all that was acknowledged is in segments: the last may be staged. ``Failed``."""
    acknowledged = {payload for board in boards for payload in board.payloads()}
    deadline = time.monotonic() + _WRITTEN_S
    while lost := acknowledged - {payload for _, payload in network.journalled().values()}:
        if time.monotonic() > deadline:
            raise Failed(f"{len(lost)} acknowledged messages are in no journal")
        time.sleep(0.1)


@contextmanager
def _boards(network: Network, rate: float) -> Iterator[list[Board]]:
    boards = [Board(name, network.url(name), rate) for name in BROKERS]
    try:
        yield boards
    finally:
        for board in boards:
            board.end()


def _strike(
    network: Network, driver: Driver, fault: str, lasts_s: float, chance: random.Random
) -> str:
    """Do one fault; return on which machine."""
    of = {"worker": WORKERS, "broker": BROKERS}
    kind = fault.removeprefix(_CUT)
    name = chance.choice(of.get(kind, (kind,)))
    if fault.startswith(_CUT):
        network.machines[name].cut()
        try:
            time.sleep(lasts_s)
        finally:
            network.machines[name].mend()
        return f"cable of {name} cut"
    if kind == "driver":
        driver.kill()
        time.sleep(lasts_s)
    elif kind == "worker":
        network.kill_worker(name)
        time.sleep(lasts_s)
        network.start_worker(name)
    else:
        network.kill_broker(name)
        time.sleep(lasts_s)
        network.start_broker(name)
    return f"{name} killed"


def _count(table: Table) -> int:
    """Return the rows of a table; 0 while there is none, or nobody can be asked."""
    try:
        return table.count() if table.exists() else 0
    except PipelineError:
        return 0


def _counted(
    journal: dict[tuple[int, int], Message],
    found: Sequence[tuple[tuple[int, int], Message]],
    silver: Sequence[tuple[int, int]],
    boards: Sequence[Board],
    faults: int,
    ended: Sequence[str],
    began: float,
) -> Result:
    by_key = dict(found)
    there = {payload for _, payload in by_key.values()}
    wrong = sum(by_key.get(key) != journal.get(key) for key in by_key.keys() | journal.keys())
    wrong += len(set(silver) ^ journal.keys())  # every message is a reading
    return Result(
        faults,
        sum(board.count for board in boards),
        len(journal),
        len(found),
        len(found) - len(by_key) + len(silver) - len(set(silver)),
        sum(payload not in there for board in boards for payload in board.payloads()),
        wrong,
        tuple(ended),
        time.monotonic() - began,
    )
