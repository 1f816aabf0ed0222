"""Two consumer groups of a broker that trims what both have read; and who asks for too old."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from host_broker.client import connect
from pyspark_motemq.blocks import JournalError
from pyspark_motemq.options import Options
from pyspark_motemq.stream import StreamReader
from tests.host_broker.net.broker_process import BrokerProcess, broker

_MESSAGES = 400
_TRIM_S = 90.0  # the broker looks every 10 s


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = ("journal.flush_s=0.001", "journal.trim_read=true", "journal.segment_bytes=4096")
    options = [word for each in settings for word in ("--set", each)]
    data = str(tmp_path / "data")
    with broker("--data", data, "--listen", "auto://127.0.0.1:0", *options) as process:
        yield process


class Query:
    """What Spark does with a stream, batch after batch, without Spark."""

    def __init__(self, running: BrokerProcess, **options: str) -> None:
        url = f"http://127.0.0.1:{running.ports['auto']}"
        given = {"brokers": url, "startingOffsets": "earliest", "echoes": "true", **options}
        self._reader = StreamReader(Options.read(given))
        self.at = self._reader.initialOffset()
        self.rows: list[tuple[int, int]] = []
        self.lamps = 0  # of the rows; the others are how a client asks whether all was taken

    def batch(self, end: dict[str, int] | None = None) -> None:
        end = end or self._reader.latestOffset(self.at, ReadAllAvailable())
        for partition in self._reader.partitions(self.at, end):
            for batch in self._reader.read(partition):
                columns = batch.to_pydict()
                self.rows += zip(columns["partition"], columns["seq"], strict=True)
                self.lamps += columns["path"].count("lab/lamp")
        self.at = end
        self._reader.commit(end)


def test_each_group_has_everything_and_a_third_is_told_what_went(running: BrokerProcess) -> None:
    port = running.ports["auto"]
    client = connect(f"fmqp://127.0.0.1:{port}")
    with client:
        for number in range(_MESSAGES):
            client.publish("lab/lamp", b"%d" % number * 20)
            if number % 20 == 0:
                client.sync()  # several records, and so several segments
        client.sync()
    fast, slow, planned, late = (
        Query(running, **options) for options in ({"group": "fast"}, {"group": "slow"}, {}, {})
    )
    careless = Query(running, failOnDataLoss="false")
    deadline = time.monotonic() + _TRIM_S
    while fast.lamps < _MESSAGES:  # the journal is written after the broker has it
        assert time.monotonic() < deadline
        fast.batch()
    (partition,) = {partition for partition, _ in fast.rows}
    total = len(fast.rows)
    slow.batch({str(partition): total // 2})
    tasks = planned._reader.partitions(planned.at, fast.at)

    def kept_from() -> int:
        """The first message that is kept: the broker trims by segments, one after the other."""
        return planned._reader._journal.partitions()[partition].first

    while kept_from() == 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    # What the slow one has yet to read is there, however far ahead the fast one is.
    assert kept_from() <= total // 2
    slow.batch(fast.at)
    everything = [(partition, number) for number in range(total)]
    assert slow.rows == fast.rows == everything
    # Whoever was planned before is told; whoever goes on from there is told, or passes over.
    words = rf"messages 0 to {total - 1} of partition {partition} cannot be read: .* 410"
    with pytest.raises(JournalError, match=words):
        for task in tasks:
            list(planned._reader.read(task))
    before = kept_from()
    words = rf"messages 0 to (\d+) of partition {partition} of .* are not in the journal"
    with pytest.raises(JournalError, match=words) as told:
        late.batch()
    missing = re.search(words, str(told.value))
    assert missing is not None
    assert before <= int(missing[1]) + 1 <= kept_from()
    before = kept_from()
    careless.batch(fast.at)
    assert careless.rows == everything[-len(careless.rows) :]
    assert before <= total - len(careless.rows) <= kept_from()
