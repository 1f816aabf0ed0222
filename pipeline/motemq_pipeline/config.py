"""The file that ``motemq pipeline run`` is given: read once, all mistakes told with their lines."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motemq_pipeline.alerts.settings import AlertSettings
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.registry import BUILT_IN
from motemq_pipeline.schemas import DATED_BY
from motemq_pipeline.storage import HISTORY_S, Storage, refuse_secrets
from motemq_pipeline.toml_lines import fault_line, lines_of, nearest

_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|h|d)")
_CHECKPOINT = 'tables at a URI need checkpoint = "FOLDER": a folder that driver and executors share'
_TEXT, _TEXTS, _PATH, _DURATION_S, _COUNT = "a text", "a text or texts", "a path", "a time", "count"
_KINDS: dict[str, dict[str, str]] = {
    "source": {
        "brokers": _TEXTS,
        "journal": _PATH,
        "token_env": _TEXT,
        "token_file": _PATH,
        "ca_file": _PATH,
        "topics": _TEXTS,
        "starting": _TEXT,
        "max_rows": _COUNT,
        "group": _TEXT,
    },
    "tables": {
        "folder": _PATH,
        "checkpoint": _PATH,
        "registry": _PATH,
        "rig": _PATH,
        "history": _DURATION_S,
        "keep": "a table",
        "options": "a table",
    },
    "run": {"trigger": _DURATION_S, "gold_every": _DURATION_S, "compact_every": _DURATION_S},
}
_FREE = {"spark", "alerts"}  # their keys are checked by those who use them


@dataclass(frozen=True, slots=True)
class Source:
    """Where messages come from: ``brokers`` by HTTP, or a ``journal`` folder."""

    brokers: tuple[str, ...]
    journal: Path | None
    token_env: str
    token_file: Path | None
    ca_file: Path | None
    topics: str
    starting: str
    max_rows: int
    group: str


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What a continuous run does; all paths are absolute, times in seconds."""

    file: Path
    source: Source
    place: Storage  # of the tables
    checkpoint: Path
    registry: Path
    rig: Path | None
    trigger_s: float
    gold_every_s: float
    compact_every_s: float
    history_s: float = HISTORY_S
    keep_s: Mapping[str, float] = field(default_factory=dict)  # of tables whose rows are to go
    spark: Mapping[str, str] = field(default_factory=dict)
    alerts: Mapping[str, Any] | None = None  # None: no alerts


def load_config(file: Path) -> RunConfig:
    """Read and check a run's TOML file.

    Raises ``PipelineError`` with a line ``FILE:LINE: what`` for everything that is wrong.
    """
    return _Reader(file.absolute()).config()


class _Reader:
    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise PipelineError(f"{file} cannot be read: {error}") from error
        try:
            self._said = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise PipelineError(f"{file}:{fault_line(error, text)}: {error}") from error
        self._lines = lines_of(text)
        self._wrong: list[tuple[int, str]] = []

    def config(self) -> RunConfig:
        for section, keys in self._said.items():
            self._check(section, keys)
        source = self._source()
        place = self._place()
        if place is None and "folder" not in self._section("tables"):
            self._error("tables", "", '[tables] needs folder = "…", where the tables are kept')
        config = RunConfig(
            file=self._file,
            source=source,
            place=place or Storage(""),
            checkpoint=self._checkpoint(place),
            registry=self._path("tables", "registry") or BUILT_IN,
            rig=self._path("tables", "rig"),
            trigger_s=self._duration("run", "trigger", 0.0),
            gold_every_s=self._duration("run", "gold_every", 10.0),
            compact_every_s=self._duration("run", "compact_every", 60.0),
            history_s=self._duration("tables", "history", HISTORY_S),
            keep_s=self._keep(),
            spark=self._spark(),
            alerts=self._alerts(),
        )
        if self._wrong:
            raise PipelineError("\n".join(text for _, text in sorted(self._wrong)))
        return config

    def _place(self) -> Storage | None:
        text = self._text("tables", "folder")
        if not text:
            return None
        options = self._section("tables").get("options", {})
        if not isinstance(options, dict) or not all(isinstance(o, str) for o in options.values()):
            self._error("tables", "options", "options must be a table of texts")
            options = {}
        if refused := refuse_secrets(options):
            self._error("tables", "options", refused)
        try:
            if "://" in text:
                return Storage.at(text, options)
            return Storage.at(self._file.parent / Path(text).expanduser())
        except PipelineError as error:
            self._error("tables", "folder", str(error))
            return None

    def _checkpoint(self, place: Storage | None) -> Path:
        text = self._text("tables", "checkpoint")
        if "://" in text:
            self._error("tables", "checkpoint", _CHECKPOINT)
            return Path()
        found = self._path("tables", "checkpoint")
        if found is not None or place is None:
            return found or Path()
        if place.folder is None:
            self._error("tables", "folder", _CHECKPOINT)
            return Path()
        return place.folder / ".checkpoint"

    def _keep(self) -> dict[str, float]:
        said = self._section("tables").get("keep", {})
        if not isinstance(said, dict):
            self._error(
                "tables", "keep", 'keep must be a table such as { bronze_messages = "30d" }'
            )
            return {}
        found = {}
        for name, value in said.items():
            match = _DURATION.fullmatch(value) if isinstance(value, str) else None
            if name not in DATED_BY:
                known = ", ".join(DATED_BY)
                self._error("tables", "keep", f"{name} keeps all its rows; keep is of {known}")
            elif match is None:
                self._error("tables", "keep", f'{name} must be a time such as "30d", not {value!r}')
            else:
                found[name] = float(match[1]) * _UNITS[match[2]]
        return found

    def _source(self) -> Source:
        brokers = self._texts("source", "brokers")
        journal = self._path("source", "journal")
        if bool(brokers) == bool(journal):
            self._error(
                "source",
                "journal" if brokers else "",
                '[source] needs one of brokers = "http://127.0.0.1:8765" and journal = '
                '"DATA/journal"',
            )
        said = self._section("source")
        if "token_env" in said and "token_file" in said:
            self._error("source", "token_env", "give token_env or token_file, not both")
        for key in ("token_env", "token_file", "ca_file", "group"):
            if journal and not brokers and key in said:
                self._error("source", key, f"{key} is for brokers; a journal folder has none")
        return Source(
            brokers=tuple(brokers),
            journal=journal,
            token_env=self._text("source", "token_env"),
            token_file=self._path("source", "token_file"),
            ca_file=self._path("source", "ca_file"),
            topics=",".join(self._texts("source", "topics")),
            starting=self._text("source", "starting") or "earliest",
            max_rows=self._count("source", "max_rows", 200_000),
            group=self._text("source", "group"),
        )

    def _check(self, section: str, keys: Any) -> None:
        if section in _FREE and isinstance(keys, dict):
            return
        if section not in _KINDS or not isinstance(keys, dict):
            known = ", ".join(f"[{name}]" for name in (*_KINDS, *sorted(_FREE)))
            self._error(section, "", f"[{section}] is not known; there are {known}")
            return
        for key in keys:
            if key not in _KINDS[section]:
                known = ", ".join(_KINDS[section])
                self._error(section, key, f"{key} is not known in [{section}]; there are {known}")

    def _spark(self) -> dict[str, str]:
        found = {}
        for key, value in _flat(self._section("spark"), ""):
            if isinstance(value, str | int | float):
                text = str(value).lower() if isinstance(value, bool) else str(value)
                found[f"spark.{key.removeprefix('spark.')}"] = text
            else:
                self._error("spark", key, f"{key} must be a text, a number, true or false")
        return found

    def _alerts(self) -> Mapping[str, Any] | None:
        if "alerts" not in self._said:
            return None
        said = self._section("alerts")
        for key, value in said.items():
            try:
                AlertSettings.read({key: value})
            except PipelineError as error:
                self._error("alerts", key, str(error))
        return said

    def _section(self, section: str) -> dict[str, Any]:
        found = self._said.get(section, {})
        return found if isinstance(found, dict) else {}

    def _text(self, section: str, key: str) -> str:
        value = self._section(section).get(key, "")
        if not isinstance(value, str):
            self._error(section, key, f"{key} must be a text, not {value!r}")
            return ""
        return value

    def _texts(self, section: str, key: str) -> list[str]:
        value = self._section(section).get(key, [])
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
            self._error(section, key, f"{key} must be a text or a list of texts, not {value!r}")
            return []
        return found

    def _path(self, section: str, key: str) -> Path | None:
        text = self._text(section, key)
        if "://" in text:
            self._error(section, key, f"{key} must be a file or folder of this machine, not {text}")
            return None
        return (self._file.parent / Path(text).expanduser()).absolute() if text else None

    def _count(self, section: str, key: str, usual: int) -> int:
        value = self._section(section).get(key, usual)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self._error(section, key, f"{key} must be a number from 1, not {value!r}")
            return usual
        return value

    def _duration(self, section: str, key: str, usual: float) -> float:
        value = self._section(section).get(key)
        if value is None:
            return usual
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            self._error(section, key, f'{key} must be a time such as "500ms", "10s", not {value!r}')
            return usual
        return float(match[1]) * _UNITS[match[2]]

    def _error(self, section: str, key: str, text: str) -> None:
        line = nearest(self._lines, (section, key) if key else (section,))
        self._wrong.append((line, f"{self._file}:{line}: {text}"))


def _flat(table: Mapping[str, Any], before: str) -> list[tuple[str, Any]]:
    """Return keys and values of a table within tables as ``a.b.c``: TOML splits keys at dots."""
    found: list[tuple[str, Any]] = []
    for key, value in table.items():
        name = f"{before}{key}"
        found += _flat(value, f"{name}.") if isinstance(value, dict) else [(name, value)]
    return found
