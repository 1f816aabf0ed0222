"""The rules without Spark: events a second of one core, and what a shard's text takes."""

import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from motemq_pipeline.alerts.fleet import Fleet
from motemq_pipeline.alerts.limits import Rules
from motemq_pipeline.alerts.settings import AlertSettings
from motemq_pipeline.alerts.signals import events
from motemq_pipeline.registry import load_registry

_READINGS = 50_000
_NOW_MS = 1_767_225_600_000
REGISTRY = """
[[rule]]
path = "bench/{board}/{sensor}"
is = "telemetry"
encoding = "json"
silent_after_s = 600
fields = { seq = "n", value = "v" }

[rule.sensors.temperature]
min = 0
max = 40
hysteresis = 1
"""


@dataclass(frozen=True, slots=True)
class Rates:
    """Rows a second to events and through the rules; ms of a batch for state; bytes a board."""

    boards: int
    to_events: float
    judged: float
    state_ms: float
    board_bytes: float


def measure(folder: Path, boards: int) -> Rates:
    """Judge readings of ``boards`` in one shard; CPU time, so that others' work counts less."""
    file = folder / "registry.toml"
    file.write_text(REGISTRY)
    settings = AlertSettings(shards=1)
    rules = Rules(load_registry(file), settings)
    numbers = range(_READINGS)
    frame = pd.DataFrame(
        {
            "shard": 0,
            "board": [f"board-{number % boards}" for number in numbers],
            "kind": 0,
            "at_ms": _NOW_MS,
            "path": [f"bench/board-{number % boards}/temperature" for number in numbers],
            "sensor": "temperature",
            "number": [number // boards for number in numbers],
            "value": 20.0,
            "connection": 1,
            "partition": 0,
            "message_seq": numbers,
        }
    )
    fleet = Fleet(0, rules, settings)
    began = time.process_time()
    happened = list(events([frame]))
    there = time.process_time()
    list(fleet.handle(happened, _NOW_MS))
    judged = time.process_time()
    text = fleet.to_text()
    Fleet(0, rules, settings).from_text(text)
    ended = time.process_time()
    return Rates(
        boards,
        _READINGS / (there - began),
        _READINGS / (judged - there),
        (ended - judged) * 1000,
        len(text) / boards,
    )
