"""The options of the source, read once and refused in words."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark_motemq.blocks import JournalError
from pyspark_motemq.columns import COLUMNS, KAFKA_COLUMNS, check_columns
from pyspark_motemq.folder import Folder
from pyspark_motemq.journal import PARTITIONS, JournalClient
from pyspark_motemq.offsets import Limits, Offsets
from pyspark_motemq.remote import Broker, Brokers, brokers_at
from pyspark_motemq.topics import anywhere, pattern

_KNOWN = {
    name.lower(): name
    for name in (
        "path",
        "brokers",
        "brokerTimeout",
        "tokenFile",
        "caFile",
        "topics",
        "subscribe",
        "subscribePattern",
        "echoes",
        "columns",
        "startingOffsets",
        "startingTimestamp",
        "endingOffsets",
        "endingTimestamp",
        "maxRowsPerTrigger",
        "maxOffsetsPerTrigger",
        "maxBytesPerTrigger",
        "minRowsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "minPartitions",
        "failOnDataLoss",
        "group",
    )
}
# What Kafka's source calls it: what ours does.
_SAME_AS = {
    "subscribe": "topics",
    "maxOffsetsPerTrigger": "maxRowsPerTrigger",
    "minOffsetsPerTrigger": "minRowsPerTrigger",
}
_DELAY = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_DIGITS = 14  # of a number: of milliseconds, until the year 5138
_MOST_TASKS = 100_000  # that may be asked for: Spark's driver holds them all
_MOST_PATTERNS = 100  # that a broker takes (docs/journal.md); more are sorted out here


@dataclass(frozen=True)
class Options:
    """What was asked for; Spark gives names in lower case.

    ``topics``: a regular expression; ``patterns``: the same as brokers take them, if they do.
    ``min_partitions``: how many tasks a read has at least.
    """

    path: str
    brokers: tuple[Broker, ...]
    columns: tuple[str, ...]
    topics: str
    patterns: tuple[str, ...]
    limits: Limits
    min_partitions: int
    fail_on_data_loss: bool
    group: str
    echoes: bool  # also those by which clients see that the broker is there
    starting_offsets: str
    ending_offsets: str

    @classmethod
    def read(cls, given: Mapping[str, str]) -> "Options":
        """Read and check all options. Raises ``JournalError``."""
        values = {name.lower(): value for name, value in given.items()}
        for name in given:
            if name.lower() not in _KNOWN:
                known = ", ".join(_KNOWN.values())
                raise JournalError(f"option {name} is not known; there are: {known}")
        written: dict[str, str] = {}  # how who gave it calls an option that has two names
        for theirs, ours in _SAME_AS.items():
            if theirs.lower() in values:
                if ours.lower() in values:
                    raise JournalError(f"options {theirs} and {ours} are the same: give one")
                values[ours.lower()] = values.pop(theirs.lower())
                written[ours] = theirs
        path = values.get("path", "")
        urls = [url.strip() for url in values.get("brokers", "").split(",") if url.strip()]
        if "://" in path:
            raise JournalError(
                f"option path: '{path}' is a URI; a journal is read from a disk, or by HTTP from "
                'its broker: .option("brokers", "http://HOST:8765")'
            )
        if bool(path) == bool(urls):
            raise JournalError(
                "the data source 'motemq' needs the journal folder or its broker: "
                '.option("path", "DATA/journal") or .option("brokers", "http://HOST:8765")'
            )
        tokens, authority = values.get("tokenfile", ""), values.get("cafile", "")
        patience_s = _duration_s(values, "brokerTimeout", "") if "brokertimeout" in values else None
        patterns = tuple(
            each.strip() for each in values.get("topics", "").split(",") if each.strip()
        )
        topics = _topics(values, written.get("topics", "topics"))
        found = cls(
            path,
            brokers_at(urls, tokens, authority, patience_s),
            columns_of(values),
            topics,
            patterns if len(patterns) <= _MOST_PATTERNS else (),
            Limits(
                _number(values, "maxRowsPerTrigger", written),
                _number(values, "maxBytesPerTrigger"),
                _number(values, "minRowsPerTrigger", written),
                _duration_s(values, "maxTriggerDelay", "15m"),
            ),
            _number(values, "minPartitions"),
            _boolean(values, "failOnDataLoss", "true"),
            values.get("group", ""),
            bool(topics) or _boolean(values, "echoes", "false"),
            _offsets(values, "startingOffsets", "startingTimestamp"),
            _offsets(values, "endingOffsets", "endingTimestamp"),
        )
        if found.min_partitions > _MOST_TASKS:
            raise JournalError(
                f"option minPartitions: at most {_MOST_TASKS} tasks can be asked for"
            )
        found.starting("earliest")
        found.ending()
        return found

    def journal(self) -> JournalClient:
        """Return the journal that was named."""
        return Brokers(self.brokers, self.patterns) if self.brokers else Folder(Path(self.path))

    def names(self) -> dict[int, str]:
        """Return how to call the journals, by partition number // ``PARTITIONS``."""
        if not self.brokers:
            return {0: f"the journal folder {self.path}"}
        return {
            number: f"broker {number + 1} ({broker.url})"
            for number, broker in enumerate(self.brokers)
        }

    def name(self, partition: int) -> str:
        """Return how to call a partition: which one, of which journal."""
        number = partition // PARTITIONS
        return f"partition {partition} of {self.names().get(number, f'broker {number + 1}')}"

    def beyond(self, partition: int, start: int, following: int) -> str:
        """Return what is wrong with a message number to begin with that has yet to come."""
        return (
            f"option startingOffsets: {self.name(partition)} has no message {start} yet, its next "
            f"is {following}: the number is of another journal, or this one was begun anew"
        )

    def starting(self, usual: str) -> Offsets:
        """Return where to begin. Raises ``JournalError``."""
        return Offsets("startingOffsets", self.starting_offsets or usual)

    def ending(self) -> Offsets:
        """Return where a batch read ends. Raises ``JournalError``."""
        return Offsets("endingOffsets", self.ending_offsets or "latest", unnamed="latest")

    def everything(self) -> bool:
        """Whether it is the whole of a folder that is asked for."""
        some = self.starting_offsets or self.ending_offsets or self.min_partitions
        return bool(self.path) and not some


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that options ask for. Raises ``JournalError``."""
    text = next((value for name, value in given.items() if name.lower() == "columns"), "").strip()
    if not text:
        return COLUMNS
    if text.lower() == "kafka":
        return KAFKA_COLUMNS
    found = tuple(each.strip() for each in text.split(","))
    try:
        check_columns(found)
    except ValueError as error:
        raise JournalError(f"option columns: {error}") from None
    return found


def _topics(values: Mapping[str, str], name: str) -> str:
    """Return the regular expression of the topics that are wanted, "" for all.

    ``name``: how the option ``topics`` was written.
    """
    regex = values.get("subscribepattern", "")
    if regex and values.get("topics"):
        raise JournalError(f"give {name} or subscribePattern, not both")
    try:
        if regex:
            return anywhere(regex)
        return pattern(values["topics"]) if values.get("topics") else ""
    except ValueError as error:
        raise JournalError(f"option {'subscribePattern' if regex else name}: {error}") from None


def _offsets(values: Mapping[str, str], offsets: str, timestamp: str) -> str:
    """Return what one of two options says, as the first of them does."""
    text = values.get(timestamp.lower(), "").strip()
    if not text:
        return values.get(offsets.lower(), "")
    if values.get(offsets.lower()):
        raise JournalError(f"give {offsets} or {timestamp}, not both")
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise JournalError(
            f"option {timestamp}: '{text}' must be a time in milliseconds since 1970, as Kafka has "
            f"it; {offsets} takes times as text"
        )
    return (_EPOCH + timedelta(milliseconds=int(text))).isoformat()


def _duration_s(values: Mapping[str, str], name: str, usual: str) -> float:
    text = values.get(name.lower(), usual).strip()
    match = _DELAY.fullmatch(text)
    if match is None:
        raise JournalError(f"option {name}: '{text}' must be a time such as 30s or 15m")
    return float(match[1]) * _UNITS_S[match[2]]


def _number(values: Mapping[str, str], name: str, written: Mapping[str, str] | None = None) -> int:
    text = values.get(name.lower(), "0").strip()
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        said = (written or {}).get(name, name)
        raise JournalError(f"option {said}: '{text}' must be a whole number; 0 is no limit")
    return int(text)


def _boolean(values: Mapping[str, str], name: str, usual: str) -> bool:
    text = values.get(name.lower(), usual).strip().lower()
    if text not in ("true", "false"):
        raise JournalError(f"option {name}: '{text}' must be true or false")
    return text == "true"
