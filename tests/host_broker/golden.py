"""The golden vectors of ``tests/vectors``."""

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parents[1] / "vectors"


def vectors(protocol: str) -> list[dict[str, Any]]:
    return list(json.loads((_FOLDER / f"{protocol}.json").read_text())["vectors"])


def spelled(vector: dict[str, Any], name: str = "hex") -> bytes:
    """The bytes under ``name``, or its ``_repeat`` form."""
    if name in vector:
        return bytes.fromhex(vector[name])
    return b"".join(bytes.fromhex(text) * times for text, times in vector[f"{name}_repeat"])


def label(vector: dict[str, Any]) -> str:
    return "-".join([vector["name"], *vector["requirements"]])
