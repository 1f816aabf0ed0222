"""The decoders of ``decoding`` over Arrow columns, where Spark's executors run them."""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from motemq_pipeline.decoding import decode
from motemq_pipeline.reading import Reading, Refused
from motemq_pipeline.rules import Rule

READINGS_SCHEMA: Final = (
    "array<struct<board:string, sensor:string, seq:long, t_ms:long, unit:string, value:double, "
    "board_us:long>>"
)
DECODED_SCHEMA: Final = f"readings {READINGS_SCHEMA}, reason string"

_READING: Final = [
    pa.field("board", pa.string()),
    pa.field("sensor", pa.string()),
    pa.field("seq", pa.int64()),
    pa.field("t_ms", pa.int64()),
    pa.field("unit", pa.string()),
    pa.field("value", pa.float64()),
    pa.field("board_us", pa.int64()),
]
_TYPE: Final = pa.struct(
    [pa.field("readings", pa.list_(pa.struct(_READING))), pa.field("reason", pa.string())]
)


def decode_columns(rules: tuple[Rule, ...], wanted: frozenset[int]) -> Callable[..., pa.Array]:
    """Return a function of three columns: a rule's number, the path, the payload.

    It gives structs of ``DECODED_SCHEMA``; rows whose rule is not ``wanted`` give nulls. A row has
    readings or a reason, never both.
    """

    def decoded(numbers: pa.Array, paths: pa.Array, payloads: pa.Array) -> pa.Array:
        decoders = {number: decode(rules[number]) for number in wanted}
        readings: list[Reading] = []
        ends, reasons = [0], []
        for number, path, payload in zip(
            numbers.to_pylist(), paths.to_pylist(), payloads.to_pylist(), strict=True
        ):
            reason = None
            if (decoder := decoders.get(number)) is not None:
                try:
                    readings += decoder(path, payload or b"")
                except Refused as refused:
                    reason = str(refused)
            ends.append(len(readings))
            reasons.append(reason)
        return _structs(readings, ends, reasons)

    return decoded


def _structs(readings: list[Reading], ends: list[int], reasons: list[str | None]) -> pa.Array:
    columns: list[Any] = list(zip(*readings, strict=True)) or [()] * len(_READING)
    values = pa.StructArray.from_arrays(
        [pa.array(column, of.type) for column, of in zip(columns, _READING, strict=True)],
        fields=_READING,
    )
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)
    return pa.StructArray.from_arrays([lists, pa.array(reasons, pa.string())], fields=list(_TYPE))
