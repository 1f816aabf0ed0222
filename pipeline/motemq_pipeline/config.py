"""The file that ``motemq pipeline run`` is given: read once, all mistakes told with their lines."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from motemq_pipeline.alerts.settings import AlertSettings
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.registry import BUILT_IN
from motemq_pipeline.schemas import DATED_BY, TABLES
from motemq_pipeline.storage import HISTORY_S, KEEP_UNREAD_S, Storage, refuse_secrets
from motemq_pipeline.toml_tables import Mistake, TomlFile, TomlTable, fault, must_be, wrong
from pyspark_motemq.blocks import JournalError
from pyspark_motemq.offsets import Offsets
from pyspark_motemq.remote import Broker
from pyspark_motemq.topics import pattern

_UNITS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|h|d)")
_LONGEST_S: Final = 36_500 * 86_400.0  # a hundred years: what is older has a date
_CHECKPOINT: Final = (
    'tables at a URI need checkpoint = "FOLDER": a folder that driver and executors share'
)


def _duration(value: Any) -> float:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise wrong('a time such as "500ms", "10s"')
    seconds = float(match[1]) * _UNITS[match[2]]
    if seconds > _LONGEST_S:
        raise wrong(f'a time of at most "{_LONGEST_S / _UNITS["d"]:.0f}d"')
    return seconds


def _texts(value: Any) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise wrong("a text or a list of texts")
    return tuple(found)


def _joined(value: Any) -> str:
    return ",".join(_texts(value))


def _brokers(value: tuple[str, ...]) -> tuple[str, ...]:
    for number, url in enumerate(value):
        with _as_fault():
            Broker.at(url)
        if url in value[:number]:
            raise fault(f"'brokers' has {url} twice")
    return value


def _topics(value: str) -> str:
    try:
        pattern(value)
    except ValueError as error:
        raise fault(f"'topics': {error}") from None
    return value


def _starting(value: str) -> str:
    with _as_fault():
        Offsets("starting", value)
    return value


@contextmanager
def _as_fault() -> Iterator[None]:
    try:
        yield
    except JournalError as error:
        raise fault(str(error).removeprefix("option ")) from None


def _path(value: Any, info: ValidationInfo) -> Path | None:
    """Return an absolute path; the file's own folder is the validation's context."""
    if not isinstance(value, str):
        raise wrong("a text")
    if "://" in value:
        raise wrong("a file or folder of this machine")
    return (
        (Path(str(info.context)) / Path(_known_home(value)).expanduser()).absolute()
        if value
        else None
    )


def _known_home(value: str) -> str:
    try:
        Path(value).expanduser()
    except RuntimeError:  # of ~NAME
        raise wrong("a folder of a user whom this machine knows") from None
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise wrong("a number from 1")
    return value


def _dated(table: str) -> str:
    if table not in DATED_BY:
        what = f"{table} keeps all its rows" if table in TABLES else f"there is no table {table!r}"
        raise fault(f"{what}; keep is of {', '.join(DATED_BY)}")
    return table


_DurationS = Annotated[float, BeforeValidator(_duration)]
_Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]
_Brokers = Annotated[_Texts, AfterValidator(_brokers)]
_Topics = Annotated[str, BeforeValidator(_joined), AfterValidator(_topics)]
_Starting = Annotated[str, AfterValidator(_starting)]
_Path = Annotated[Path | None, BeforeValidator(_path)]
_Folder = Annotated[str, Field(min_length=1), AfterValidator(_known_home)]
_Count = Annotated[int, BeforeValidator(_count)]
_Dated = Annotated[str, AfterValidator(_dated)]


class Source(TomlTable):
    """Where messages come from: ``brokers`` by HTTP, or a ``journal`` folder."""

    title: ClassVar[str] = "[source]"
    brokers: _Brokers = ()
    journal: _Path = None
    token_env: str = ""
    token_file: _Path = None
    ca_file: _Path = None
    topics: _Topics = ""
    starting: _Starting = "earliest"
    max_rows: _Count = 200_000
    group: str = ""
    fail_on_data_loss: bool = True

    @classmethod
    def between(cls, table: Mapping[str, Any], context: Any) -> Iterator[Mistake]:
        """One of brokers and journal; what is for brokers only, without a journal."""
        brokers, journal = table.get("brokers"), table.get("journal")
        if bool(brokers) == bool(journal):
            yield (
                ("journal",) if brokers else (),
                '[source] needs one of brokers = "http://127.0.0.1:8765" and journal = '
                '"DATA/journal"',
            )
        if "token_env" in table and "token_file" in table:
            yield ("token_env",), "give token_env or token_file, not both"
        for key in ("token_env", "token_file", "ca_file", "group"):
            if journal and not brokers and key in table:
                yield (key,), f"{key} is for brokers; a journal folder has none"
        urls = brokers if isinstance(brokers, list) else [brokers] if brokers else []
        secure = [url for url in urls if str(url).lower().startswith("https:")]
        if urls and not secure and "ca_file" in table:
            yield ("ca_file",), "ca_file is for https://, and no broker has such an address"


class _Tables(TomlTable):
    title: ClassVar[str] = "[tables]"
    folder: _Folder
    checkpoint: _Path = None
    registry: _Path = None
    rig: _Path = None
    history: _DurationS = HISTORY_S
    keep_unread: _DurationS = KEEP_UNREAD_S
    keep: dict[_Dated, _DurationS] = Field(default_factory=dict)
    options: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def missing(cls, key: str) -> str:
        """Only the folder is needed."""
        return '[tables] needs folder = "…", where the tables are kept'

    @classmethod
    def between(cls, table: Mapping[str, Any], context: Any) -> Iterator[Mistake]:
        """The place of the tables, and what it needs."""
        folder, checkpoint = table.get("folder"), table.get("checkpoint")
        if isinstance(folder, str):
            try:
                if Storage.at(folder).folder is None and not checkpoint:
                    yield ("folder",), _CHECKPOINT
            except PipelineError as error:
                yield ("folder",), str(error)
        if isinstance(checkpoint, str) and "://" in checkpoint:
            yield ("checkpoint",), _CHECKPOINT
        options = table.get("options")
        if isinstance(options, dict) and (refused := refuse_secrets(options)):
            yield ("options",), refused

    def place(self, file: Path) -> Storage:
        """Return where the tables are."""
        if "://" in self.folder:
            return Storage.at(self.folder, self.options)
        return Storage.at(file.parent / Path(self.folder).expanduser())


class _Run(TomlTable):
    title: ClassVar[str] = "[run]"
    trigger: _DurationS = 0.0
    gold_every: _DurationS = 10.0
    compact_every: _DurationS = 60.0


class _File(TomlTable):
    source: Source
    tables: _Tables
    run: _Run
    spark: dict[str, Any] = Field(default_factory=dict)
    alerts: dict[str, Any] | None = None

    @classmethod
    def unknown(cls, key: str) -> str:
        """Sections are written in brackets."""
        known = ", ".join(f"[{name}]" for name in cls.model_fields)
        return f"[{key}] is not known; there are {known}"

    @classmethod
    def between(cls, table: Mapping[str, Any], context: Any) -> Iterator[Mistake]:
        """The sections whose keys are others' business: Spark's, the alerts'."""
        for key, value in _flat(table.get("spark"), ""):
            if not isinstance(value, str | int | float):
                yield ("spark", key), must_be(key, "a text, a number, true or false", value)
        alerts = table.get("alerts")
        for key, value in alerts.items() if isinstance(alerts, dict) else ():
            try:
                AlertSettings.read({key: value})
            except PipelineError as error:
                yield ("alerts", key), str(error)


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
    keep_unread_s: float = KEEP_UNREAD_S
    keep_s: Mapping[str, float] = field(default_factory=dict)  # of tables whose rows are to go
    spark: Mapping[str, str] = field(default_factory=dict)
    alerts: Mapping[str, Any] | None = None  # None: no alerts


def load_config(file: Path) -> RunConfig:
    """Read and check a run's TOML file.

    Raises ``PipelineError`` with a line ``FILE:LINE: what`` for everything that is wrong.
    """
    file = file.absolute()
    try:
        toml = TomlFile.parsed(file, file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise PipelineError(f"{file} cannot be read: {error}") from error
    # Of a section that is not there, the keys that it must have are missing.
    table = {"source": {}, "tables": {}, "run": {}, **toml.table}
    found = TomlFile(file, table, toml.lines).read(
        _File, lambda mistakes: PipelineError("\n".join(mistakes)), file.parent
    )
    tables, run = found.tables, found.run
    place = tables.place(file)
    return RunConfig(
        file=file,
        source=found.source,
        place=place,
        checkpoint=tables.checkpoint or Path(place.uri) / ".checkpoint",
        registry=tables.registry or BUILT_IN,
        rig=tables.rig,
        trigger_s=run.trigger,
        gold_every_s=run.gold_every,
        compact_every_s=run.compact_every,
        history_s=tables.history,
        keep_unread_s=tables.keep_unread,
        keep_s=tables.keep,
        spark={
            f"spark.{key.removeprefix('spark.')}": _spark_text(value)
            for key, value in _flat(found.spark, "")
        },
        alerts=found.alerts,
    )


def _spark_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _flat(table: Any, before: str) -> list[tuple[str, Any]]:
    """Return keys and values of a table within tables as ``a.b.c``: TOML splits keys at dots."""
    found: list[tuple[str, Any]] = []
    for key, value in table.items() if isinstance(table, dict) else ():
        name = f"{before}{key}"
        found += _flat(value, f"{name}.") if isinstance(value, dict) else [(name, value)]
    return found
