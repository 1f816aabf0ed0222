"""Write ``events.jsonl`` and ``samples.jsonl`` as docs/rig-events.md says.

Every line has every column and is flushed at once: a run killed at any time leaves whole lines.
"""

import datetime
import json
import secrets
import time
from pathlib import Path
from typing import Any, TextIO

_SCHEMA_VERSION = 1
_BOARD_COLUMNS: dict[str, Any] = {
    "board_id": "",
    "model": "",
    "port": "",
    "virtual": False,
    "firmware": "",
    "fw_sha": "",
    "client_sha": "",
}
_EVENT_COLUMNS: dict[str, Any] = {
    "event": "",
    "step": "",
    "check": "",
    "attempt": 1,
    "outcome": "",
    "duration_s": None,
    "message": "",
}
_SAMPLE_COLUMNS: dict[str, Any] = {
    "check": "",
    "attempt": 1,
    "metric": "",
    "unit": "",
    "value": None,
    "seq": 0,
    "outcome": "",
    "better": "",
    "limit": None,
}


def stamp() -> dict[str, Any]:
    """Return the columns ``ts`` and ``mono_ns`` for now."""
    now = datetime.datetime.now(datetime.UTC)
    return {
        "ts": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "mono_ns": time.monotonic_ns(),
    }


class RunFiles:
    """The two files of one run, made in ``OUT/rig/date=…/rig=NAME/run=RUN_ID/``."""

    def __init__(self, out: Path, rig: str) -> None:
        now = datetime.datetime.now(datetime.UTC)
        self.run_id = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        self.folder = out / "rig" / f"date={now:%Y-%m-%d}" / f"rig={rig}" / f"run={self.run_id}"
        self.folder.mkdir(parents=True)
        self._lead = {"schema_version": _SCHEMA_VERSION, "run_id": self.run_id, "rig": rig}
        self._events = (self.folder / "events.jsonl").open("w", encoding="utf-8")
        self._samples = (self.folder / "samples.jsonl").open("w", encoding="utf-8")

    def event(self, **columns: Any) -> None:
        """Append one event; unknown columns raise ``TypeError``."""
        self._write(self._events, _EVENT_COLUMNS, columns)

    def sample(self, **columns: Any) -> None:
        """Append one sample; unknown columns raise ``TypeError``."""
        self._write(self._samples, _SAMPLE_COLUMNS, columns)

    def close(self) -> None:
        """Close both files."""
        self._events.close()
        self._samples.close()

    def _write(self, file: TextIO, known: dict[str, Any], columns: dict[str, Any]) -> None:
        row = {**self._lead, **stamp(), **_BOARD_COLUMNS, **known}
        if unknown := columns.keys() - row.keys():
            raise TypeError(f"no such columns: {sorted(unknown)}")
        row.update(columns)
        file.write(json.dumps(row) + "\n")
        file.flush()
