"""Bronze messages to rows of silver, by whole Arrow columns, where Spark's executors run.

This is the one step that decodes, for all encodings. Typical payloads of a rule are read as what
the rule says they are: JSON and MessagePack by msgspec, which makes nothing of fields that nobody
asked for, layouts and numbers as columns. A payload that is not so simple, or has something wrong,
is decoded by itself (``decoding``), which also knows the words for what is wrong. So both must give
the same readings; a test compares them.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from motemq_pipeline.decoding import LAST_US, Refused, decode, fields_decoder, iso_us
from motemq_pipeline.rules import (
    CLOCK_AHEAD_S,
    JSON,
    MAX_PAYLOAD_BYTES,
    MAX_SEQ,
    MAX_TEXT,
    MSGPACK,
    NUMBER,
    STRUCT,
    TELEMETRY,
    TIME_UNITS,
    Field,
    Rule,
    Sensor,
    wanted_fields,
)
from pyspark_motemq.workers import settle

MESSAGE_COLUMNS: Final = ("partition", "seq", "time", "protocol", "connection", "path", "payload")
SILVER_SCHEMA: Final = (
    "board string, sensor string, seq long, t_ms long, unit string, value double, last boolean, "
    "event_time timestamp, clock string, received_at timestamp, path string, protocol string, "
    "connection long, partition int, message_seq long, source string, payload binary, reason string"
)

_Mask = npt.NDArray[np.bool_]
_Places = npt.NDArray[np.int64]
_Doubles = npt.NDArray[np.float64]
# Of a reading: which message it is of (its place in the batch), then what the payload says.
_READING: Final = pa.schema(
    [
        ("message", pa.int64()),
        ("board", pa.string()),
        ("sensor", pa.string()),
        ("seq", pa.int64()),
        ("t_ms", pa.int64()),
        ("unit", pa.string()),
        ("value", pa.float64()),
        ("board_us", pa.int64()),
        ("last", pa.bool_()),
        ("reason", pa.string()),
    ]
)
_TIME: Final = pa.timestamp("us", tz="UTC")
_KINDS: Final = {"string": pa.string(), "long": pa.int64(), "double": pa.float64()}
_MOST_PATHS: Final = 100_000  # whose rule is remembered; a limit, because boards choose them
_NUMBER: Final = r"\A\s*-?\d+(\.\d+)?([eE][+-]?\d+)?\s*\z"
_MICROSECONDS: Final = 10**6


def silver_rows(
    rules: tuple[Rule, ...],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what makes of batches of ``MESSAGE_COLUMNS`` batches of ``SILVER_SCHEMA``.

    A telemetry message has a row for each of its readings, or one with a ``reason`` and its
    payload. Others have none. Rows are in the order of the messages.
    """

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        decoding = _Decoding(rules)
        for batch in batches:
            yield decoding.rows(batch)

    return rows


class _Decoding:
    """The rules of one task, and which rule each path has."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._rules = rules
        self._decoders: dict[int, _RuleDecoder] = {}
        self._known: dict[str, tuple[int, dict[str, str]]] = {}
        self._late_us = np.array([int(rule.max_late_s * 1e6) for rule in rules] or [0], np.int64)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        paths = batch.column("path").dictionary_encode()
        matched = [self._match(path) for path in paths.dictionary.to_pylist()]
        of_path = np.array([number for number, _ in matched] or [-1], np.int64)
        rule_of = of_path[paths.indices.to_numpy()] if len(paths) else np.empty(0, np.int64)
        found = []
        for number in np.unique(rule_of).tolist():
            if number < 0:
                continue
            at = np.flatnonzero(rule_of == number)
            which = pa.array(at)
            part = _Messages(
                at,
                paths.indices.take(which).to_numpy(),
                paths.dictionary,
                [given for _, given in matched],
                batch.column("payload").take(which),
            )
            found += self._decoder(number).readings(part)
        readings = pa.Table.from_batches(found, _READING).combine_chunks()
        if len(found) > 1:
            order = np.argsort(readings.column("message").to_numpy(), kind="stable")
            readings = readings.take(pa.array(order))
        return self._with_messages(readings, batch, rule_of)

    def _match(self, path: str) -> tuple[int, dict[str, str]]:
        """Return the number of the rule that makes readings of a path, -1: none; its columns."""
        found = self._known.get(path)
        if found is None:
            if len(self._known) >= _MOST_PATHS:
                self._known.clear()
            found = self._known[path] = self._first_match(path)
        return found

    def _first_match(self, path: str) -> tuple[int, dict[str, str]]:
        for number, rule in enumerate(self._rules):
            if (given := rule.pattern.match(path)) is not None:
                return (number, given) if rule.kind == TELEMETRY else (-1, {})
        return -1, {}

    def _decoder(self, number: int) -> "_RuleDecoder":
        if number not in self._decoders:
            self._decoders[number] = _RuleDecoder(self._rules[number])
        return self._decoders[number]

    def _with_messages(
        self, readings: pa.Table, batch: pa.RecordBatch, rule_of: _Places
    ) -> pa.RecordBatch:
        """Return the rows of silver: readings, and of their messages what is kept of these.

        The board's clock is believed where it is likely: at most the rule's ``max_late_s`` behind
        the broker's and ``CLOCK_AHEAD_S`` ahead.
        """
        column = {name: _one(readings.column(name)) for name in _READING.names}
        which = column["message"]
        of = {name: batch.column(name).take(which) for name in MESSAGE_COLUMNS if name != "payload"}
        received = of["time"].cast(_TIME)
        arrival_us = received.cast(pa.int64()).to_numpy(zero_copy_only=False)
        board_us = column["board_us"]
        known = board_us.is_valid().to_numpy(zero_copy_only=False)
        said_us = board_us.fill_null(0).to_numpy(zero_copy_only=False)
        late_us = self._late_us[rule_of[which.to_numpy()]] if len(which) else said_us
        likely = known & (said_us >= arrival_us - late_us)
        likely &= said_us <= arrival_us + int(CLOCK_AHEAD_S * _MICROSECONDS)
        event_us = np.where(likely, said_us, arrival_us)
        refused = column["reason"].is_valid()
        payload = pa.nulls(len(which), pa.binary())
        if column["reason"].null_count < len(which):
            kept = batch.column("payload").take(which).cast(pa.binary())
            payload = pc.if_else(refused, kept, payload)
        names = np.array(["broker", "board"])
        columns = {
            **{name: column[name] for name in ("board", "sensor", "seq", "t_ms", "unit", "value")},
            "last": column["last"],
            "event_time": pa.array(event_us, pa.int64()).cast(_TIME),
            "clock": pa.array(names[likely.astype(np.int64)], pa.string()),
            "received_at": received,
            "path": of["path"],
            "protocol": of["protocol"],
            "connection": of["connection"],
            "partition": of["partition"],
            "message_seq": of["seq"],
            "source": pa.repeat(pa.scalar("journal"), len(which)),
            "payload": payload,
            "reason": column["reason"],
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@dataclass(frozen=True, slots=True)
class _Messages:
    """Messages of one rule: their places in the batch, their paths, their payloads."""

    at: _Places
    path: _Places  # places in ``paths`` and ``given``
    paths: pa.Array
    given: list[dict[str, str]]  # by path: the columns that it gives
    payloads: pa.Array

    def chosen(self, which: _Mask | _Places) -> "_Messages":
        """Return some of them."""
        places = np.flatnonzero(which) if which.dtype == np.bool_ else which
        payloads = self.payloads.take(pa.array(places))
        return _Messages(self.at[places], self.path[places], self.paths, self.given, payloads)

    def column(self, name: str) -> pa.Array:
        """Return what their paths give for a column."""
        each = pa.array([given.get(name) for given in self.given], pa.string())
        return each.take(pa.array(self.path))


class _RuleDecoder:
    """Decodes the messages of one rule."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._by_itself = decode(rule)
        self._columns = _columns_decoder(rule)

    def readings(self, messages: _Messages) -> list[pa.RecordBatch]:
        """Return the readings, or reasons, of messages; those of one message in their order."""
        lengths = pc.binary_length(messages.payloads).to_numpy(zero_copy_only=False)
        simple = (lengths > 0) & (lengths <= MAX_PAYLOAD_BYTES)
        found: list[pa.RecordBatch] = []
        if self._columns is not None and simple.any():
            chosen = messages.chosen(simple)
            columns, read = self._columns(chosen.payloads)
            decoded = chosen.chosen(read)
            rows = _Rows(self._rule, decoded, columns)
            good = rows.good()
            found = rows.readings(good)
            simple[np.flatnonzero(simple)[~read]] = False
            simple[np.flatnonzero(simple)[~good]] = False
        else:
            simple[:] = False
        if not simple.all():
            found.append(self._one_by_one(messages.chosen(~simple)))
        return found

    def _one_by_one(self, messages: _Messages) -> pa.RecordBatch:
        end = self._rule.end
        rows: list[tuple[Any, ...]] = []
        paths = messages.paths.take(pa.array(messages.path)).to_pylist()
        each = zip(messages.at.tolist(), paths, messages.payloads.to_pylist(), strict=True)
        for at, path, payload in each:
            try:
                for reading in self._by_itself(path, payload or b""):
                    last = None if end is None else reading[1] == end
                    rows.append((at, *reading, last, None))
            except Refused as refused:
                rows.append((at, *[None] * 8, str(refused)))
        columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(_READING)
        arrays = [pa.array(of, field.type) for of, field in zip(columns, _READING, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_READING)


class _Rows:
    """Messages whose fields were read as columns, to readings."""

    def __init__(self, rule: Rule, messages: _Messages, fields: Mapping[str, pa.Array]) -> None:
        self._rule = rule
        self._messages = messages
        self._fields = fields
        self._count = len(messages.at)
        self._times = np.ones(self._count, np.bool_)  # which have a time, where it must be one
        self._board_us = self._clock()

    def good(self) -> _Mask:
        """Return which have nothing wrong."""
        rule = self._rule
        good = self._times.copy()
        wanted = [*map(Field, rule.expect), *rule.fields.values()]
        wanted += [sensor.field for sensor in rule.sensors.values() if sensor.field]
        for field in wanted:
            if field.required:
                good &= _valid(self._fields[field.name])
        for name in ("seq", "t_ms"):
            if (column := self._column(name)) is not None:
                numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
                good &= (numbers >= 0) & ((numbers <= MAX_SEQ) | (name == "t_ms"))
        for name in ("board", "unit") if rule.wide else ("board", "sensor", "unit"):
            if (column := self._column(name)) is not None:
                lengths = pc.utf8_length(column).fill_null(0).to_numpy(zero_copy_only=False)
                good &= (lengths <= MAX_TEXT) & ((lengths > 0) | (name == "unit"))
        if not rule.wide:
            value = self._narrow()[1]
            good &= np.isfinite(value)
            return good
        some = np.zeros(self._count, np.bool_)
        for sensor, value in self._wide():
            there = _valid(self._fields[str(sensor.field and sensor.field.name)])
            some |= there
            good &= np.isfinite(value) | ~there
        return good & some

    def readings(self, good: _Mask) -> list[pa.RecordBatch]:
        """Return the readings of what is ``good``; of a wide rule a batch a sensor."""
        if not self._rule.wide:
            names, values, units = self._narrow()
            return [self._batch(good, names, values, units)]
        found = []
        for sensor, value in self._wide():
            names = pa.repeat(pa.scalar(sensor.name), self._count)
            unit = pa.repeat(pa.scalar(sensor.unit, pa.string()), self._count)
            found.append(self._batch(good & np.isfinite(value), names, value, unit))
        return found

    def _batch(
        self, which: _Mask, sensor: pa.Array, value: _Doubles, own_unit: pa.Array
    ) -> pa.RecordBatch:
        none = {kind: pa.nulls(self._count, of) for kind, of in _KINDS.items()}
        unit, end = self._column("unit"), self._rule.end
        last = pa.nulls(self._count, pa.bool_()) if end is None else pc.equal(sensor, end)
        seq, t_ms = self._column("seq"), self._column("t_ms")
        arrays = [
            pa.array(self._messages.at),
            self._column("board"),
            sensor,
            none["long"] if seq is None else seq,
            none["long"] if t_ms is None else t_ms,
            own_unit if unit is None else pc.coalesce(unit, own_unit),
            pa.array(value),
            self._board_us,
            last,
            none["string"],
        ]
        found = pa.RecordBatch.from_arrays(arrays, schema=_READING)
        return found if which.all() else found.filter(pa.array(which))

    def _column(self, name: str) -> pa.Array | None:
        """Return a column of text or integers; None if nothing gives it."""
        rule = self._rule
        if name in rule.constants:
            return pa.repeat(pa.scalar(rule.constants[name]), self._count)
        if name in rule.pattern.names:
            return self._messages.column(name)
        return self._fields[rule.fields[name].name] if name in rule.fields else None

    def _narrow(self) -> tuple[pa.Array, _Doubles, pa.Array]:
        """Return the sensor of each message, its value and the unit that the rule knows."""
        names: Any = self._column("sensor")
        values = _doubles(self._fields[self._rule.fields["value"].name])
        sensors = self._rule.sensors
        if not sensors:
            return names, values, pa.nulls(self._count, pa.string())
        coded = names.dictionary_encode()
        known = [sensors.get(name) or Sensor("") for name in coded.dictionary.to_pylist()]
        at = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        units = pa.array([sensor.unit for sensor in known], pa.string()).take(pa.array(at))
        scale = np.array([sensor.scale for sensor in known] or [1.0])[at]
        offset = np.array([sensor.offset for sensor in known] or [0.0])[at]
        with np.errstate(over="ignore", invalid="ignore"):
            return names, values * scale + offset, units

    def _wide(self) -> Iterator[tuple[Sensor, _Doubles]]:
        """Yield each sensor and its values, NaN where it has none."""
        for sensor in self._rule.sensors.values():
            if sensor.field is not None:
                values = _doubles(self._fields[sensor.field.name])
                with np.errstate(over="ignore", invalid="ignore"):
                    yield sensor, values * sensor.scale + sensor.offset

    def _clock(self) -> pa.Array:
        """Return the board's time of each message in microseconds; notes which cannot be read."""
        rule = self._rule
        if "time" not in rule.fields:
            return pa.nulls(self._count, pa.int64())
        field = rule.fields["time"]
        column = self._fields[field.name]
        if not TIME_UNITS[rule.time_unit]:
            found: list[int | None] = [None] * self._count
            for at, text in enumerate(column.to_pylist()):
                if text is not None:
                    try:
                        found[at] = iso_us(text)
                    except ValueError:
                        self._times[at] = False
            return pa.array(found, pa.int64())
        with np.errstate(over="ignore", invalid="ignore"):
            us = _doubles(column) * (1e6 / TIME_UNITS[rule.time_unit])
            known = (us >= 0) & (us <= LAST_US)
        floored = np.floor(np.where(known, us, 0.0)).astype(np.int64)
        return pa.array(floored, mask=~known)


_Columns = tuple[dict[str, pa.Array], _Mask]  # fields of what could be read, and what that is
_ColumnsDecoder = Callable[[pa.Array], _Columns]


def _columns_decoder(rule: Rule) -> _ColumnsDecoder | None:
    """Return what reads the fields of payloads as columns; None: each is to be looked at alone.

    Of what it cannot read it says so, never why.
    """
    wanted = _wanted(rule)
    if wanted is None:
        return None
    if rule.encoding == NUMBER:
        return _numbers
    if rule.encoding == STRUCT:
        return _layout(rule, wanted)
    return _typed(rule, wanted)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A field that a rule reads: its type, and the value that it must have."""

    field: Field
    kind: str
    value: int | str | None = None


def _wanted(rule: Rule) -> list[_Wanted] | None:
    """Return the fields of a rule, each once; None if one is wanted as two things."""
    found: dict[str, _Wanted] = {}
    for field, kind in wanted_fields(rule):
        value = rule.expect.get(field.name)
        known = found.setdefault(field.name, _Wanted(field, kind, value))
        if known.kind != kind:
            return None
        if known.field.required and not field.required:
            found[field.name] = _Wanted(field, kind, value)
    return list(found.values())


def _numbers(payloads: pa.Array) -> _Columns:
    none = np.zeros(len(payloads), np.bool_)
    try:
        texts = payloads.cast(pa.string())
        matched = pc.match_substring_regex(texts, _NUMBER)
        values = pc.ascii_trim_whitespace(texts.filter(matched)).cast(pa.float64())
    except pa.ArrowInvalid:  # one that is no text, or too large
        return {"": pa.array([], pa.float64())}, none
    return {"": values}, matched.to_numpy(zero_copy_only=False)


def _layout(rule: Rule, wanted: Sequence[_Wanted]) -> _ColumnsDecoder | None:
    dtype = layout_dtype(rule.layout, rule.names)
    kinds = {each.field.name: each.kind for each in wanted}
    if any(dtype[name].kind not in _LAYOUT_KINDS[kind] for name, kind in kinds.items()):
        return None
    # Texts must be UTF-8, also those that nobody asked for.
    others = [name for name in rule.names if dtype[name].kind == "S" and name not in kinds]

    def columns(payloads: pa.Array) -> _Columns:
        right = pc.equal(pc.binary_length(payloads), dtype.itemsize)
        read: _Mask = right.to_numpy(zero_copy_only=False)
        chosen = payloads if read.all() else payloads.filter(right)
        rows = np.frombuffer(_contiguous(chosen), dtype, len(chosen))
        try:
            for name in others:
                _of_layout(rows[name], "string")
            found = {name: _of_layout(rows[name], kind) for name, kind in kinds.items()}
        except pa.ArrowInvalid:  # one is not UTF-8
            return _nothing(wanted, payloads)
        good = np.ones(len(rows), np.bool_)
        for each in wanted:
            values = rows[each.field.name]
            if values.dtype.kind == "u" and each.kind == "long":
                good &= values <= np.uint64(2**63 - 1)
            if each.value is not None:
                same = pc.equal(found[each.field.name], each.value).fill_null(False)
                good &= same.to_numpy(zero_copy_only=False)
        read = read.copy()
        read[np.flatnonzero(read)[~good]] = False
        return {name: column.filter(pa.array(good)) for name, column in found.items()}, read

    return columns


# What a value of a layout may be for a field to be read as a column: numpy's kinds.
_LAYOUT_KINDS: Final = {"string": "Siu", "long": "iu", "double": "iuf"}


def layout_dtype(layout: str, names: Sequence[str]) -> np.dtype[Any]:
    """Return a layout of Python's ``struct`` as numpy has it."""
    order, formats, offsets, at = layout[0], [], [], 0
    digits = ""
    for char in layout[1:]:
        if char.isdigit():
            digits += char
            continue
        if char.isspace():
            continue
        count = int(digits or 1)
        digits = ""
        if char == "x":
            at += count
        elif char == "s":
            formats.append(np.dtype(f"S{count}"))
            offsets.append(at)
            at += count
        else:
            kind = np.dtype(order + _NUMPY[char])
            for _ in range(count):
                formats.append(kind)
                offsets.append(at)
                at += kind.itemsize
    return np.dtype({"names": list(names), "formats": formats, "offsets": offsets, "itemsize": at})


_NUMPY: Final = {
    "b": "i1", "B": "u1", "h": "i2", "H": "u2", "i": "i4", "I": "u4", "q": "i8", "Q": "u8",
    "e": "f2", "f": "f4", "d": "f8",
}  # fmt: skip


def _contiguous(column: pa.Array) -> memoryview:
    """Return the bytes of all values of a binary column, one behind the other."""
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return memoryview(b"")
    at = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)
    return memoryview(data)[int(at[0]) : int(at[-1])]


def _of_layout(values: npt.NDArray[Any], kind: str) -> pa.Array:
    if kind == "double":
        with np.errstate(invalid="ignore"):
            return _finite(values.astype(np.float64))
    if kind == "long":
        return pa.array(values.astype(np.int64))
    if values.dtype.kind == "S":
        return pa.array(values.tolist(), pa.binary()).cast(pa.string())
    return pa.array(np.ascontiguousarray(values.astype(values.dtype.newbyteorder("=")))).cast(
        pa.string()
    )


def _typed(rule: Rule, wanted: Sequence[_Wanted]) -> _ColumnsDecoder | None:
    """Return what reads JSON, MessagePack and CBOR: each payload as a struct of what is wanted.

    None if a field's name is one that msgspec's structs cannot have.
    """
    if any(_NO_STRUCT_HAS.search(each.field.name) for each in wanted):
        return None
    shape, getters = _struct_of(wanted)
    one = _payload_decoder(rule, shape)

    def columns(payloads: pa.Array) -> _Columns:
        if rule.encoding == JSON:
            try:
                payloads.cast(pa.string())
            except pa.ArrowInvalid:  # some payload is not UTF-8; msgspec looks at what is wanted
                return _nothing(wanted, payloads)
        found = []
        read = np.ones(len(payloads), np.bool_)
        for at, payload in enumerate(payloads.to_pylist()):
            try:
                found.append(one(payload))
            except (msgspec.MsgspecError, ValueError, RecursionError, Refused):
                read[at] = False
        return {
            each.field.name: _of_objects([get(row) for row in found], each.kind)
            for each, get in zip(wanted, getters, strict=True)
        }, read

    return columns


def _payload_decoder(rule: Rule, shape: Any) -> Callable[[bytes], Any]:
    if rule.encoding == JSON:
        return msgspec.json.Decoder(shape).decode
    if rule.encoding == MSGPACK:
        return msgspec.msgpack.Decoder(shape).decode
    fields = fields_decoder(rule)
    return lambda payload: msgspec.convert(fields(payload), shape)


_NO_STRUCT_HAS: Final = re.compile(r'["\\\x00-\x1f]')
_LONG: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_PYTHON: Final[dict[str, Any]] = {
    "string": str | _LONG,  # boards with numbers for names are many
    "long": _LONG,
    "double": float,
}


def _struct_of(wanted: Sequence[_Wanted]) -> tuple[Any, list[Callable[[Any], Any]]]:
    """Return the type of a payload with these fields, and what gets each of them of one."""
    getters: list[Callable[[Any], Any]] = []
    tree: dict[str, Any] = {}
    attributes = []
    for each in wanted:
        inner = tree
        path = []
        for key in each.field.keys[:-1]:
            inner = inner.setdefault(key, {})
            path.append(key)
        inner[each.field.keys[-1]] = each
        attributes.append([*path, each.field.keys[-1]])
    names: dict[int, dict[str, str]] = {}
    shape = _shape(tree, names)
    for keys in attributes:
        inner, steps = tree, []
        for key in keys:
            steps.append(names[id(inner)][key])
            inner = inner[key]
        getters.append(_getter(steps))
    return shape, getters


def _shape(tree: dict[str, Any], names: dict[int, dict[str, str]]) -> Any:
    """Return a struct type; ``names`` is told the attribute of each key of each table."""
    names[id(tree)] = {key: f"f{at}" for at, key in enumerate(tree)}
    fields: list[Any] = []
    for key, attribute in names[id(tree)].items():
        each = tree[key]
        if isinstance(each, dict):
            fields.append((attribute, _shape(each, names) | None, None))
            continue
        kind = _PYTHON[each.kind] if each.value is None else Literal[each.value]
        if each.field.required:
            fields.append((attribute, kind))
        else:
            fields.append((attribute, kind | None, None))
    renamed = {attribute: key for key, attribute in names[id(tree)].items()}
    return msgspec.defstruct("Payload", fields, rename=renamed, kw_only=True, gc=False)


def _getter(steps: Sequence[str]) -> Callable[[Any], Any]:
    first, *deeper = steps

    def get(row: Any) -> Any:
        found = getattr(row, first)
        for step in deeper:
            if found is None:
                return None
            found = getattr(found, step)
        return found

    return get


def _of_objects(values: list[Any], kind: str) -> pa.Array:
    if kind == "double":
        return _finite(np.array(values, np.float64))
    try:
        return pa.array(values, _KINDS[kind])
    except pa.ArrowTypeError:  # names that are numbers
        texts = [value if value is None else str(value) for value in values]
        return pa.array(texts, pa.string())


def _nothing(wanted: Sequence[_Wanted], payloads: pa.Array) -> _Columns:
    none = {each.field.name: pa.array([], _KINDS[each.kind]) for each in wanted}
    return none, np.zeros(len(payloads), np.bool_)


def _finite(values: _Doubles) -> pa.Array:
    """Return doubles; one that is not finite is none."""
    return pa.array(values, mask=~np.isfinite(values))


def _doubles(column: pa.Array) -> _Doubles:
    """Return a column of doubles, NaN for none."""
    found: _Doubles = column.to_numpy(zero_copy_only=False)
    return found


def _valid(column: pa.Array) -> _Mask:
    found: _Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _one(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
