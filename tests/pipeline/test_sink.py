"""Rows that become publications, each once, at a broker that runs."""

import itertools
import shutil
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from host_broker.client import Client, connect
from pyspark_motemq import sink
from pyspark_motemq.blocks import JournalError
from pyspark_motemq.sink import Prepared, _packet, _parts
from tests.host_broker.net.broker_process import BrokerProcess, broker
from tests.pipeline.test_stream import _append, _source


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerProcess]:
    options = ("--listen", "auto://127.0.0.1:0", "--set", "journal.flush_s=0.001")
    with broker("--data", str(tmp_path / "data"), *options) as process:
        yield process


@pytest.fixture
def listener(running: BrokerProcess) -> Iterator[Client]:
    client = connect(f"fmqp://127.0.0.1:{running.ports['auto']}")
    with client:
        client.subscribe("alerts/*")
        client.sync()
        yield client


def _heard(listener: Client) -> list[tuple[str, bytes]]:
    """Return what has come until now."""
    listener.sync()
    found = []
    while (message := listener.receive(0.0)) is not None:
        found.append((message.topic, message.payload))
    return found


def _publish(rows: DataFrame, running: BrokerProcess, checkpoint: Path, **options: str) -> None:
    writer = rows.writeStream.format("motemq").option("checkpointLocation", str(checkpoint))
    writer = writer.option("brokers", f"127.0.0.1:{running.ports['auto']}")
    for name, value in options.items():
        writer = writer.option(name, value)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def _alerts(spark: SparkSession, journal: Path) -> DataFrame:
    rows = _source(spark, path=str(journal), startingOffsets="earliest", maxRowsPerTrigger="100")
    return rows.select(F.concat(F.lit("alerts/"), F.col("partition")).alias("path"), "payload")


def test_a_stream_is_published_once_also_when_spark_repeats_a_batch(
    spark: SparkSession, tmp_path: Path, running: BrokerProcess, listener: Client
) -> None:
    journal, checkpoint = tmp_path / "journal", tmp_path / "checkpoint"
    _append(journal, 0, 0, 250)
    _publish(_alerts(spark, journal), running, checkpoint)
    expected = [("alerts/0", b"%d" % number) for number in range(250)]
    assert sorted(_heard(listener)) == sorted(expected)
    # As if the driver had died after it published the last batch and before Spark noted that.
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    assert last >= 2
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink()
    _append(journal, 0, 250, 50)
    _publish(_alerts(spark, journal), running, checkpoint)
    assert [int(payload) for _, payload in _heard(listener)] == list(range(250, 300))


def test_a_new_checkpoint_is_another_publisher(
    spark: SparkSession, tmp_path: Path, running: BrokerProcess, listener: Client
) -> None:
    journal, checkpoint = tmp_path / "journal", tmp_path / "checkpoint"
    _append(journal, 0, 0, 10)
    for _ in range(2):
        _publish(_alerts(spark, journal), running, checkpoint)
        assert len(_heard(listener)) == 10
        shutil.rmtree(checkpoint)


def test_on_demand_only_what_somebody_wants_is_published(
    spark: SparkSession, running: BrokerProcess, listener: Client
) -> None:
    rows = spark.createDataFrame(
        [("alerts/a", "1", False), ("nobody/b", "2", False), ("nobody/c", "3", True)],
        "path string, payload string, retained boolean",
    )
    url = f"http://127.0.0.1:{running.ports['auto']}"
    writer = rows.write.format("motemq").mode("append").option("brokers", url)
    writer.option("onDemand", "true").save()
    assert _heard(listener) == [("alerts/a", b"1")]
    listener.subscribe("nobody/*")
    assert _heard(listener) == [("nobody/c", b"3")]
    journalled = spark.read.format("motemq").option("brokers", url).load()
    assert journalled.filter("path like 'nobody/%'").count() == 1


def test_a_batch_goes_on_without_what_the_broker_discards_when_it_is_repeated(
    spark: SparkSession, tmp_path: Path, running: BrokerProcess, listener: Client
) -> None:
    journal, checkpoint = tmp_path / "journal", tmp_path / "checkpoint"
    _append(journal, 0, 0, 3)
    text = F.col("payload").cast("string")
    emptied = F.when(text == "1", F.lit("")).otherwise(text).alias("payload")
    rows = _alerts(spark, journal).select("path", emptied)
    with pytest.raises(
        StreamingQueryException, match=r"discarded 1 .* an empty payload, .* without"
    ):
        _publish(rows, running, checkpoint)
    assert _heard(listener) == [("alerts/0", b"0"), ("alerts/0", b"2")]
    _append(journal, 0, 3, 1)
    _publish(rows, running, checkpoint)
    assert _heard(listener) == [("alerts/0", b"3")]


@given(
    sizes=st.lists(st.integers(7, 60), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=5),
    data=st.data(),
)
def test_parts_have_the_same_rows_however_a_batch_is_spread_over_tasks(
    sizes: list[int], cuts: list[int], data: st.DataObject
) -> None:
    """And whoever listens: what nobody wants is left out of its part."""
    packets = [bytes([number]) * size for number, size in enumerate(sizes)]
    wanted = data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    ends = [0, *sorted(min(cut, len(sizes)) for cut in cuts), len(sizes)]
    tasks = [
        Prepared(
            array("I", sizes[first:end]),
            bytearray(wanted[first:end]),
            b"".join(packets[row] for row in range(first, end) if wanted[row]),
        )
        for first, end in itertools.pairwise(ends)
    ]
    whole = Prepared(array("I", sizes), bytearray([True] * len(sizes)), b"".join(packets))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink, "_PART_BYTES", 100)
        everything, found = list(_parts([whole])), list(_parts(tasks))
    assert b"".join(everything) == b"".join(packets)
    assert all(len(part) <= 100 for part in everything)
    left_out = {number for number, each in enumerate(wanted) if not each}
    assert found == [bytes(byte for byte in part if byte not in left_out) for part in everything]


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        ("path string", {"brokers": "x"}, r"takes the columns path \(string\)"),
        ("path string, payload int", {"brokers": "x"}, r"there are .* payload \(int\)"),
        ("path string, payload string, qos int", {"brokers": "x"}, "takes the columns"),
        ("path string, payload string", {}, "needs one broker"),
        ("path string, payload string", {"brokers": "a,b"}, "needs one broker"),
        ("path string, payload string", {"brokers": "x", "onDemand": "yes"}, "option onDemand"),
        (
            "path string, payload string",
            {"brokers": "x", "onDemnd": "true"},
            "ondemnd is not known",
        ),
        ("path string, payload string", {"brokers": "x", "caFile": "a"}, "caFile: .* https://"),
    ],
)
def test_what_cannot_be_published_is_refused_in_words(
    spark: SparkSession, schema: str, options: dict[str, str], words: str
) -> None:
    writer = spark.createDataFrame([], schema).write.format("motemq").mode("append")
    with pytest.raises(Exception, match=words):
        writer.options(**options).save()


@pytest.mark.parametrize(
    ("path", "payload", "words"),
    [
        (None, b"", "null"),
        ("a", None, "null"),
        ("", b"", "0 bytes"),
        ("é" * 200, b"", "400 bytes"),
        ("a", b"x" * (2**23 + 1), "'a' has 8388609 bytes; 8388608 are allowed"),
    ],
)
def test_rows_that_are_no_publication(path: str | None, payload: bytes | None, words: str) -> None:
    with pytest.raises(JournalError, match=words):
        _packet(path, payload, False)
