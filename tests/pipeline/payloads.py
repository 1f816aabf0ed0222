"""A registry with every encoding, and one reading said in each of them."""

import json
import struct
from pathlib import Path
from typing import Any

import cbor2
import msgspec

NAMES = ("json", "cbor", "msgpack", "struct")
_STRUCT = {"layout": "<Iqdhh8s", "names": ["n", "ts", "t", "h", "p", "id"]}
RULE = """
[[rule]]
path = "{encoding}/{{sensor}}"
is = "telemetry"
encoding = "{encoding}"
time_unit = "ms"
max_late_s = 3600
{more}
[rule.fields]
board = "id"
seq = "n"
time = "ts?"
value = "t"

[rule.sensors.air]
unit = "C"
scale = 0.5
offset = -10
min = -40
max = 60

[[rule]]
path = "wide/{encoding}/{{board}}"
is = "telemetry"
encoding = "{encoding}"
{more}
[rule.fields]
seq = "n"

[rule.sensors.temperature]
field = "t"
unit = "C"

[rule.sensors.humidity]
field = "h?"
scale = 0.01
"""


def write_registry(file: Path) -> Path:
    texts = []
    for encoding in NAMES:
        more = f"layout = '{_STRUCT['layout']}'\nnames = {_STRUCT['names']}\n"
        texts.append(RULE.format(encoding=encoding, more=more if encoding == "struct" else ""))
    texts.append(
        '[[rule]]\npath = "home/{board}/{sensor}"\nis = "telemetry"\nencoding = "number"\n'
    )
    file.write_text("".join(texts))
    return file


def encoded(encoding: str, fields: dict[str, Any]) -> bytes:
    if encoding == "json":
        return json.dumps(fields).encode()
    if encoding == "cbor":
        return cbor2.dumps(fields)
    if encoding == "msgpack":
        return msgspec.msgpack.encode(fields)
    whole = {"n": 0, "ts": 0, "t": 0.0, "h": 0, "p": 0, "id": "", **fields}
    *numbers, name = (whole[key] for key in _STRUCT["names"])
    return struct.pack(str(_STRUCT["layout"]), *numbers, str(name).encode())
