"""Options and columns by the names of Spark's Kafka source, and columns that are left out."""

import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_motemq import stream
from pyspark_motemq.blocks import JournalError
from pyspark_motemq.columns import COLUMNS, KAFKA_COLUMNS
from pyspark_motemq.options import Options
from pyspark_motemq.source import JournalReader
from pyspark_motemq.stream import StreamReader
from tests.journal_segment import JOURNAL, START_NS, Record, Segment, Sender, packet

_TIME = datetime.fromtimestamp(START_NS // 10**9, UTC).replace(microsecond=123_456)
_MINUTE_NS = 60 * 10**9


def _with_properties(properties: dict[str, bytes], message: bytes) -> bytes:
    said = b"".join(
        struct.pack(">BI", len(name.encode()), len(value)) + name.encode() + value
        for name, value in properties.items()
    )
    return struct.pack(">I", len(said)) + said + message


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Six messages, a minute apart, in two partitions."""
    for partition in (0, 1):
        segment = Segment(partition)
        for number in range(3):
            path, payload = f"home/{partition}/lamp", b"%d" % number
            plain = Record(Sender(1, 2, f"c{partition}" if number else ""), [packet(path, payload)])
            rich = _with_properties({"unit": b"C", "ü": b"\xff"}, packet(path, payload))
            time_ns = START_NS + number * _MINUTE_NS
            segment.block(
                Record(Sender(1, 1, "c1"), [rich], time_ns, encoding=2)
                if (partition, number) == (1, 2)
                else Record(plain.sender, plain.messages, time_ns)
            )
        segment.write(tmp_path)
    return tmp_path


def _rows(journal: Path, **options: str) -> list[dict[str, Any]]:
    reader = JournalReader(Options.read({"path": str(journal), **options}))
    found: list[dict[str, Any]] = []
    for task in reader.partitions():
        for batch in reader.read(task):
            found += batch.to_pylist()
    return found


def test_columns_as_kafkas_source_has_them(journal: Path) -> None:
    first, *_, last = _rows(journal, columns="kafka")
    assert tuple(first) == KAFKA_COLUMNS
    assert first == {
        "key": None,
        "value": b"0",
        "topic": "home/0/lamp",
        "partition": 0,
        "offset": 0,
        "timestamp": _TIME,
        "headers": None,
        "broker": str(JOURNAL),
        "client": "",
        "protocol": "lightmq",
    }
    assert (last["key"], last["client"], last["offset"]) == (b"c1", "c1", 2)
    assert last["headers"] == [{"key": "unit", "value": b"C"}, {"key": "ü", "value": b"\xff"}]


def test_what_nobody_asks_for_is_left_out(journal: Path) -> None:
    everything = _rows(journal)
    assert tuple(everything[0]) == COLUMNS
    some = _rows(journal, columns="payload, seq")
    assert some == [{"payload": row["payload"], "seq": row["seq"]} for row in everything]
    # Topics choose, also where they are no column.
    few = _rows(journal, columns="seq", topics="home/1/lamp")
    assert few == [{"seq": number} for number in range(3)]


def test_topics_by_kafkas_names(journal: Path) -> None:
    assert _rows(journal, subscribe="home/1/lamp") == _rows(journal, topics="home/1/lamp")
    for regex, partitions in (("home/[01]/.*", {0, 1}), ("home/1/lamp|x", {1}), ("home/1", set())):
        assert {row["partition"] for row in _rows(journal, subscribePattern=regex)} == partitions


def test_a_time_in_milliseconds(journal: Path) -> None:
    second_ms = START_NS // 10**6 + 60_000
    rows = _rows(journal, startingTimestamp=str(second_ms))
    assert [row["seq"] for row in rows] == [1, 2, 1, 2]
    rows = _rows(journal, startingTimestamp=str(second_ms), endingTimestamp=str(second_ms + 1000))
    assert [row["seq"] for row in rows] == [1, 1]


def test_a_partition_that_ending_offsets_do_not_name_is_read_to_its_end(journal: Path) -> None:
    rows = _rows(journal, endingOffsets='{"0": 1}')
    assert [(row["partition"], row["seq"]) for row in rows] == [(0, 0), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("least", [1, 2, 4, 6, 100, 100_000])
def test_tasks_are_no_fewer_than_asked_for(journal: Path, least: int) -> None:
    options = Options.read({"path": str(journal), "minPartitions": str(least)})
    tasks = JournalReader(options).partitions()
    assert len(tasks) >= min(least, 6)
    assert _rows(journal, minPartitions=str(least)) == _rows(journal)
    reader = StreamReader(Options.read({**_earliest(journal), "minPartitions": str(least)}))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    planned = reader.partitions(start, end)
    assert len(planned) >= min(least, 6)
    assert sum(batch.num_rows for task in planned for batch in reader.read(task)) == 6


def test_no_driver_has_room_for_more_tasks(journal: Path) -> None:
    with pytest.raises(JournalError, match="minPartitions: at most 100000 tasks"):
        Options.read({"path": str(journal), "minPartitions": "100001"})


def _earliest(journal: Path) -> dict[str, str]:
    return {"path": str(journal), "startingOffsets": "earliest"}


def test_limits_by_kafkas_names(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Options.read({"path": "x", "maxOffsetsPerTrigger": "7"}).limits
    assert (limits.max_rows, limits.max_delay_s) == (7, 900.0)
    now = [1000.0]
    monkeypatch.setattr(stream.time, "monotonic", lambda: now[0])
    options = {**_earliest(journal), "minOffsetsPerTrigger": "10", "maxTriggerDelay": "30s"}
    reader = StreamReader(Options.read(options))
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    for _ in range(2):
        assert reader.latestOffset(start, limit) == start
        now[0] += 29.0
    end = reader.latestOffset(start, limit)  # 58 s after the first of them was seen
    assert (end["0"], end["1"]) == (3, 3)
    assert reader.latestOffset(end, limit) == end


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topics": "a", "subscribe": "a"}, "options subscribe and topics are the same"),
        ({"subscribe": "home/#"}, "option subscribe: '#' is no wildcard here but a name; "),
        ({"topics": "home/#"}, "option topics: '#' is no wildcard here but a name; "),
        ({"subscribe": "a", "subscribePattern": "a"}, "give subscribe or subscribePattern, not"),
        ({"maxOffsetsPerTrigger": "1e3"}, "option maxOffsetsPerTrigger: '1e3' must be a whole"),
        ({"minOffsetsPerTrigger": "-1"}, "option minOffsetsPerTrigger: '-1' must be a whole"),
        ({"minPartitions": "9" * 5000}, "option minPartitions: '9+' must be a whole number"),
        ({"maxRowsPerTrigger": "x"}, "option maxRowsPerTrigger: 'x' must be a whole number"),
        ({"topics": "a", "subscribePattern": "a"}, "give topics or subscribePattern, not both"),
        ({"subscribePattern": "(a"}, r"option subscribePattern: '\(a' is no regular expression"),
        (
            {"maxRowsPerTrigger": "1", "maxOffsetsPerTrigger": "1"},
            "options maxOffsetsPerTrigger and maxRowsPerTrigger are the same",
        ),
        ({"startingTimestamp": "noon"}, "option startingTimestamp: 'noon' must be a time in milli"),
        ({"endingTimestamp": "9" * 20}, "option endingTimestamp: '9+' must be a time in milli"),
        (
            {"startingTimestamp": "1", "startingOffsets": "latest"},
            "give startingOffsets or startingTimestamp, not both",
        ),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay: 'soon' must be a time such as 30s"),
        ({"minPartitions": "-1"}, "option minPartitions: '-1' must be a whole number"),
        ({"columns": "path,pyload"}, "option columns: there is no column pyload; there are part"),
        ({"columns": "path,path"}, "option columns: the column path is named twice"),
    ],
)
def test_mistakes_are_told_in_words(given: dict[str, str], words: str) -> None:
    with pytest.raises(JournalError, match=words):
        Options.read({"path": "x", **given})


def test_an_authority_is_for_brokers_that_speak_tls() -> None:
    """Who gives one expects TLS, so that nothing goes out without it."""
    with pytest.raises(JournalError, match="option caFile: it is for https://, and no broker has"):
        Options.read({"brokers": "a:1,http://b:1", "caFile": "ca.pem"})
    assert len(Options.read({"brokers": "a:1,https://b:1", "caFile": "ca.pem"}).brokers) == 2


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    options = Options.read({"path": "x", name: "7" if name == "endingTimestamp" else "latest"})
    with pytest.raises(JournalError, match="a stream has no endingOffsets"):
        StreamReader(options)


def test_spark_has_the_columns_that_were_asked_for(spark: SparkSession, journal: Path) -> None:
    read = spark.read.format("motemq").option("path", str(journal))
    kafka = read.option("columns", "kafka").load()
    assert tuple(kafka.columns) == KAFKA_COLUMNS
    assert [field.name for field in kafka.schema if field.nullable] == ["key", "headers"]
    assert kafka.where("headers[0].key = 'unit'").count() == 1
    two = read.option("columns", "topic,timestamp").load()
    assert two.groupBy("topic").count().sort("topic").collect() == [
        ("home/0/lamp", 3),
        ("home/1/lamp", 3),
    ]
