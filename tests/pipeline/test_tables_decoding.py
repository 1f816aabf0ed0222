"""Payloads of every encoding to the same readings, or to a reason; never to an exception."""

import json
import math
import random
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import cbor2
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from motemq_pipeline import silver
from motemq_pipeline.decoding import Refused, decode
from motemq_pipeline.decoding_arrow import layout_dtype, silver_rows
from motemq_pipeline.registry import load_registry
from motemq_pipeline.rules import Registry
from tests.pipeline.payloads import NAMES, encoded, write_registry

_ARRIVAL_US = 1_767_225_600_000_000  # 2026-01-01 00:00:00 UTC
_GOOD = {"n": 7, "ts": _ARRIVAL_US // 1000 - 5000, "t": 60.0, "h": 55, "id": "vpico-1"}
_LONG = 2**63 - 1

# path, fields, and the readings (sensor, seq, unit, value) or the reason; in every encoding.
_EVERYWHERE: list[tuple[str, dict[str, Any], Any]] = [
    ("{}/air", _GOOD, [("air", 7, "C", 20.0)]),
    ("{}/soil", _GOOD, [("soil", 7, None, 60.0)]),
    ("{}/air", {**_GOOD, "n": _LONG // 2**33}, [("air", _LONG // 2**33, "C", 20.0)]),
    ("{}/" + "s" * 201, _GOOD, "'sensor' is empty or longer than 200 characters"),
    ("{}/air", {**_GOOD, "id": ""}, "'board' is empty or longer than 200 characters"),
    ("wide/{}/b-1", _GOOD, [("temperature", 7, "C", 60.0), ("humidity", 7, None, 0.55)]),
]  # fmt: skip
# The same, in encodings that carry names.
_NAMED: list[tuple[str, dict[str, Any], Any]] = [
    ("{}/air", {**_GOOD, "new": {"deep": [1]}}, [("air", 7, "C", 20.0)]),
    ("{}/air", {**_GOOD, "id": "x" * 201}, "'board' is empty or longer than 200 characters"),
    ("{}/air", {**_GOOD, "id": 17}, [("air", 7, "C", 20.0)]),
    ("{}/air", {**_GOOD, "t": 60}, [("air", 7, "C", 20.0)]),
    ("{}/air", {**_GOOD, "ts": None}, [("air", 7, "C", 20.0)]),
    ("{}/air", {**_GOOD, "ts": "noon"}, "the field 'ts' is not a double"),
    ("{}/air", {**_GOOD, "t": "60"}, "the field 't' is missing or not a double"),
    ("{}/air", {**_GOOD, "t": True}, "the field 't' is missing or not a double"),
    ("{}/air", {**_GOOD, "t": None}, "the field 't' is missing or not a double"),
    ("{}/air", {**_GOOD, "n": 1.5}, "the field 'n' is missing or not a long"),
    ("{}/air", {**_GOOD, "n": _LONG + 1}, "the field 'n' is missing or not a long"),
    ("{}/air", {**_GOOD, "n": -1}, "'seq' is negative"),
    ("{}/air", {**_GOOD, "n": 2**53 - 1}, [("air", 2**53 - 1, "C", 20.0)]),
    ("{}/air", {**_GOOD, "n": 2**53}, "'seq' is above 9007199254740991"),
    ("{}/air", {**_GOOD, "n": _LONG}, "'seq' is above 9007199254740991"),
    ("{}/air", {"n": 1, "t": 1.0}, "the field 'id' is missing or not a string"),
    ("{}/air", {}, "the field 'id' is missing or not a string"),
    ("wide/{}/b-1", {"n": 1, "t": 2.0}, [("temperature", 1, "C", 2.0)]),
    ("wide/{}/b-1", {"n": 1, "h": 2}, "the field 't' is missing or not a double"),
    ("wide/{}/b-1", {"n": 1, "t": 2.0, "h": "x"}, "the field 'h' is not a double"),
]  # fmt: skip
_NUMBERS: list[tuple[bytes, Any]] = [
    (b" 21.5\n", [("kitchen", None, None, 21.5)]),
    (b"-1e3", [("kitchen", None, None, -1000.0)]),
    (b"1d", "the payload is not a number"),
    (b"NaN", "the payload is not a number"),
    (b"1e999", "the payload is not a number"),
    (b"21.5 C", "the payload is not a number"),
    (b"", "the payload is empty"),
    (b"\xff", "the payload is not UTF-8"),
    (b"1" * 65_537, "the payload is longer than 65536 bytes"),
]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    return load_registry(write_registry(tmp_path_factory.mktemp("registry") / "registry.toml"))


def _batch(messages: list[tuple[str, bytes]]) -> pa.RecordBatch:
    """Return messages as they are in bronze."""
    count = len(messages)
    arrival = pa.array([_ARRIVAL_US] * count, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    columns = {
        "partition": pa.array([0] * count, pa.int32()),
        "seq": pa.array(range(count), pa.int64()),
        "time": arrival,
        "protocol": pa.array(["fmqp"] * count, pa.string()),
        "connection": pa.array([1] * count, pa.int64()),
        "path": pa.array([path for path, _ in messages], pa.string()),
        "payload": pa.array([payload for _, payload in messages], pa.binary()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _found(rows: list[dict[str, Any]]) -> dict[int, Any]:
    """Return by a message's number its readings, in order, or its reason."""
    found: dict[int, Any] = {}
    for row in rows:
        number = row["message_seq"]
        assert (row["reason"] is None) == (row["payload"] is None) == (row["value"] is not None)
        if row["reason"] is not None:
            assert number not in found
            found[number] = row["reason"]
        else:
            reading = (row["sensor"], row["seq"], row["unit"], row["value"])
            found.setdefault(number, []).append(reading)
    return found


def _decoded(
    spark: SparkSession, registry: Registry, messages: list[tuple[str, bytes]]
) -> dict[int, Any]:
    bronze = spark.createDataFrame(pa.Table.from_batches([_batch(messages)]))
    return _found([row.asDict() for row in silver.decoded(bronze, registry).collect()])


def _messages() -> Iterator[tuple[str, bytes, Any]]:
    for path, fields, expected in _EVERYWHERE:
        for name in NAMES:
            yield path.format(name), encoded(name, fields), expected
    for path, fields, expected in _NAMED:
        for name in ("json", "cbor", "msgpack"):
            if not (name == "msgpack" and fields.get("n") == _LONG + 1):
                yield path.format(name), encoded(name, fields), expected
    for payload, expected in _NUMBERS:
        yield "home/b/kitchen", payload, expected


def test_every_encoding_gives_the_same_readings_and_reasons(
    spark: SparkSession, registry: Registry
) -> None:
    messages = list(_messages())
    found = _decoded(spark, registry, [(path, payload) for path, payload, _ in messages])
    wrong = [
        (path, payload[:80], found.get(number), expected)
        for number, (path, payload, expected) in enumerate(messages)
        if found.get(number) != expected
    ]
    assert wrong == []


def test_spark_refuses_garbage_with_a_reason(spark: SparkSession, registry: Registry) -> None:
    chance = random.Random(7)
    messages = [("json/air", payload) for payload in _TRICKY_JSON]
    for name in NAMES:
        whole = encoded(name, _GOOD)
        for _ in range(150):
            broken = bytearray(whole)
            for _ in range(chance.randint(1, 3)):
                broken[chance.randrange(len(broken))] = chance.randrange(256)
            messages.append((f"{name}/air", bytes(broken[: chance.randint(0, len(broken))])))
            messages.append((f"wide/{name}/b", chance.randbytes(chance.randint(0, 40))))
    messages += [("home/b/s", chance.randbytes(chance.randint(0, 6))) for _ in range(100)]
    found = _decoded(spark, registry, messages)
    assert len(found) == len(messages)
    assert [found[number] for number in range(len(_TRICKY_JSON))] == list(_TRICKY_JSON.values())


_OBJECT = "the payload is not a JSON object"
_AIR = [("air", 7, "C", 20.0)]
_TRICKY_JSON: dict[bytes, Any] = {
    b"[" * 60_000: _OBJECT,
    b'{"a":' * 10_000 + b"1" + b"}" * 10_000: _OBJECT,
    b'{"n": 7, "t": 60, "id": "b"} {"n": 8}': _OBJECT,
    b'{"n": 7, "t": 60, "id": "b"}\n{"n": 8, "t": 60, "id": "b"}': _OBJECT,
    b'{"n": 7, "t": 60, "id": "b"},{"n": 8, "t": 60, "id": "b"}': _OBJECT,
    b'{"n": 7, "t": 60, "id": "b"}, null': _OBJECT,
    b'{"n": 7, "t": 60, "id": "b"} x': _OBJECT,
    b"{'n': 7, 't': 60, 'id': 'b'}": _OBJECT,
    b'{"n": 7, "t": 60, "id": "b",}': _OBJECT,
    b'{"n": 7, "t": NaN, "id": "b"}': _OBJECT,
    b'{"n": 7, "t": 1e999, "id": "b"}': "the field 't' is missing or not a double",
    b'\n {"n": 7, "t": 60, "id": "b"}\r\n': _AIR,
    b'{"N": 7, "t": 60, "id": "b"}': "the field 'n' is missing or not a long",
    b'{"n": 7, "t": 60, "id": "b", "pad": "' + b"x" * 65_536 + b'"}': (
        "the payload is longer than 65536 bytes"
    ),
}


_SCALAR = st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.floats() | st.text()
_FIELDS = st.dictionaries(
    st.sampled_from(["n", "ts", "t", "h", "id", "x"]), _SCALAR | st.lists(_SCALAR, max_size=2)
)


@st.composite
def _payloads(draw: st.DrawFn) -> tuple[str, bytes]:
    """Return an encoding and a payload: any bytes, or what is nearly right."""
    name = draw(st.sampled_from(NAMES))
    if draw(st.booleans()):
        return name, draw(st.binary(max_size=40))
    if name == "struct":
        return name, draw(st.binary(min_size=32, max_size=32))
    try:
        return name, encoded(name, {**_GOOD, **draw(_FIELDS)})
    except OverflowError:  # MessagePack has integers of 64 bits only
        return name, b""


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(["{}/air", "wide/{}/b"]), _payloads())
def test_no_bytes_make_a_decoder_raise_anything_but_refused(
    registry: Registry, where: str, of: tuple[str, bytes]
) -> None:
    name, payload = of
    path = where.format(name)
    rule = registry.rule_for(path)
    assert rule is not None
    try:
        readings = decode(rule)(path, payload)
    except Refused as refused:
        assert str(refused)
        return
    for board, sensor, seq, _, _, value, _ in readings:
        assert board
        assert sensor
        assert seq is None or 0 <= seq < 2**53
        assert abs(value) < float("inf")
    assert readings


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["{}/air", "{}/soil", "wide/{}/b"]), _payloads())))
def test_columns_are_decoded_as_messages_are_one_by_one(
    registry: Registry, messages: list[tuple[str, tuple[str, bytes]]]
) -> None:
    sent = [(where.format(name), payload) for where, (name, payload) in messages]
    sent += [("home/b/kitchen", payload) for _, (_, payload) in messages]
    (batch,) = silver_rows(registry.rules)(iter([_batch(sent)]))
    wanted: dict[int, Any] = {}
    for number, (path, payload) in enumerate(sent):
        rule = registry.rule_for(path)
        assert rule is not None
        try:
            wanted[number] = [(r[1], r[2], r[4], r[5]) for r in decode(rule)(path, payload)]
        except Refused as refused:
            wanted[number] = str(refused)
    assert _found(batch.to_pylist()) == wanted
    assert batch.column("message_seq").to_pylist() == sorted(
        batch.column("message_seq").to_pylist()
    )


@pytest.mark.parametrize("encoding", ["json", "cbor", "msgpack"])
@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\tb", "é", "a b", "__proto__", "end", "self"])
def test_a_field_may_have_any_name(tmp_path: Path, encoding: str, name: str) -> None:
    (tmp_path / "registry.toml").write_text(
        f"[[rule]]\npath = '{{board}}/{{sensor}}'\nis = 'telemetry'\nencoding = '{encoding}'\n"
        f"fields = {{ value = {json.dumps(name)} }}\n"
    )
    rules = load_registry(tmp_path / "registry.toml").rules
    (batch,) = silver_rows(rules)(iter([_batch([("b/s", encoded(encoding, {name: 21.5}))])]))
    assert _found(batch.to_pylist()) == {0: [("s", None, None, 21.5)]}


@given(
    st.sampled_from("<>"),
    st.lists(st.tuples(st.sampled_from(["", "2", "3 "]), st.sampled_from("xbBhHiIqQefds"))),
    st.randoms(use_true_random=False),
)
def test_a_layout_is_the_same_for_numpy(
    order: str, items: list[tuple[str, str]], chance: random.Random
) -> None:
    layout = order + "".join(count.strip() + kind for count, kind in items)
    data = chance.randbytes(struct.calcsize(layout))
    wanted = struct.unpack(layout, data)
    dtype = layout_dtype(layout, [str(at) for at in range(len(wanted))])
    assert dtype.itemsize == len(data)
    for value, found in zip(wanted, np.frombuffer(data, dtype)[0] if wanted else (), strict=True):
        if isinstance(value, bytes):
            assert found == value.rstrip(b"\0")
        else:
            assert found == value or (math.isnan(found) and math.isnan(value))


@pytest.mark.parametrize(
    ("name", "payload", "reason"),
    [
        ("cbor", b"", "the payload is empty"),
        ("cbor", b"\x81" * 33 + b"\x00", "the payload is not CBOR"),
        ("cbor", b"\xa1\x61t\xc2\x59\x10\x00" + b"\xff" * 4096, "the field 'id' is missing"),
        ("cbor", cbor2.dumps(_GOOD) + b"\x00", "the payload is not CBOR"),
        ("cbor", b"\xa2\x61t\x01\x61t\x02", "the payload is not CBOR"),
        ("cbor", b"\x9b\x00\x00\x00\xff\xff\xff\xff\xff", "the payload is not CBOR"),
        ("cbor", cbor2.dumps([1]), "the payload is not a CBOR map"),
        ("msgpack", b"\x91" * 2000 + b"\x00", "the payload is not MessagePack"),
        ("msgpack", b"\xdf\xff\xff\xff\xff", "the payload is not MessagePack"),
        ("msgpack", msgspec.msgpack.encode(_GOOD) + b"\x00", "the payload is not MessagePack"),
        ("msgpack", msgspec.msgpack.encode(1), "the payload is not a MessagePack map"),
        ("msgpack", b"\0" * 65_537, "the payload is longer than 65536 bytes"),
        ("struct", b"\0" * 5, "the payload has 5 bytes, the layout <Iqdhh8s 32"),
        ("struct", b"\0" * 24 + b"\xff" * 8, "the field 'id' is not UTF-8"),
    ],
)
def test_a_hostile_payload_is_refused(
    registry: Registry, name: str, payload: bytes, reason: str
) -> None:
    rule = registry.rule_for(f"{name}/air")
    assert rule is not None
    with pytest.raises(Refused, match=f"^{reason}"):
        decode(rule)(f"{name}/air", payload)


@pytest.mark.parametrize(
    ("unit", "given", "us"),
    [
        ("s", 1.5, 1_500_000), ("ms", 1500, 1_500_000), ("us", 7, 7), ("ns", 7999, 7),
        ("s", -1, None), ("s", 1e300, None),
        ("iso8601", "1970-01-01T01:00:01.5+01:00", 1_500_000),
        ("iso8601", "1970-01-01 00:00:01Z", 1_000_000),
        ("iso8601", "1969-12-31T00:00:00Z", None),
        ("iso8601", "1970-01-01T00:00:00", Refused),
        ("iso8601", "1970-13-01T00:00:00Z", Refused),
        ("iso8601", "noon", Refused),
    ],
)  # fmt: skip
def test_a_boards_clock_is_read_in_its_unit(
    spark: SparkSession, tmp_path: Path, unit: str, given: Any, us: Any
) -> None:
    rules = "".join(
        f"[[rule]]\npath = '{name}/{{board}}/{{sensor}}'\nis = 'telemetry'\nencoding = '{name}'\n"
        f"time_unit = '{unit}'\nmax_late_s = 1e12\nfields = {{ value = 'v', time = 'ts' }}\n"
        for name in ("json", "cbor")
    )
    (tmp_path / "registry.toml").write_text(rules)
    registry = load_registry(tmp_path / "registry.toml")
    payloads = {name: encoded(name, {"v": 1.0, "ts": given}) for name in ("json", "cbor")}
    messages = [(f"{name}/b/s", body) for name, body in payloads.items()]
    bronze = spark.createDataFrame(pa.Table.from_batches([_batch(messages)]))
    rows = silver.decoded(bronze, registry).collect()
    assert len(rows) == len(messages)
    for row in rows:
        if us is Refused:
            assert row["reason"] == "the field 'ts' is not an ISO 8601 time with its zone"
        elif us is None:
            assert (row["clock"], row["event_time"]) == ("broker", row["received_at"])
        else:
            since_1970 = row["event_time"].replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
            assert (row["clock"], since_1970 / timedelta(microseconds=1)) == ("board", us)
