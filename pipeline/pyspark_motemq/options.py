"""The options of the source, read once and refused in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark_motemq.blocks import JournalError
from pyspark_motemq.brokers import Brokers
from pyspark_motemq.folder import Folder
from pyspark_motemq.journal import JournalClient
from pyspark_motemq.limits import Limits
from pyspark_motemq.offsets import Offsets
from pyspark_motemq.remote import Broker
from pyspark_motemq.topics import pattern

_KNOWN = {
    name.lower(): name
    for name in (
        "path",
        "brokers",
        "tokenFile",
        "caFile",
        "topics",
        "echoes",
        "startingOffsets",
        "endingOffsets",
        "maxRowsPerTrigger",
        "maxBytesPerTrigger",
        "minRowsPerTrigger",
        "failOnDataLoss",
        "group",
    )
}
_MOST_PATTERNS = 100  # that a broker takes (docs/journal.md); more are sorted out here


@dataclass(frozen=True)
class Options:
    """What was asked for; Spark gives names in lower case.

    ``topics``: a regular expression; ``patterns``: the same as brokers take them, if they do.
    """

    path: str
    brokers: tuple[Broker, ...]
    topics: str
    patterns: tuple[str, ...]
    limits: Limits
    fail_on_data_loss: bool
    group: str
    echoes: bool  # also those by which clients see that the broker is there
    starting_offsets: str
    ending_offsets: str

    @classmethod
    def read(cls, given: Mapping[str, str]) -> "Options":
        """Read and check all options. Raises ``JournalError``."""
        said = {name.lower(): value for name, value in given.items()}
        for name in given:
            if name.lower() not in _KNOWN:
                known = ", ".join(_KNOWN.values())
                raise JournalError(f"option {name} is not known; there are: {known}")
        path = said.get("path", "")
        urls = [url.strip() for url in said.get("brokers", "").split(",") if url.strip()]
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
        tokens, authority = said.get("tokenfile", ""), said.get("cafile", "")
        patterns = tuple(each.strip() for each in said.get("topics", "").split(",") if each.strip())
        try:
            topics = pattern(said["topics"]) if said.get("topics") else ""
        except ValueError as error:
            raise JournalError(f"option topics: {error}") from None
        found = cls(
            path,
            tuple(
                Broker(url if "://" in url else f"http://{url}", tokens, authority) for url in urls
            ),
            topics,
            patterns if len(patterns) <= _MOST_PATTERNS else (),
            Limits(
                _number(said, "maxRowsPerTrigger"),
                _number(said, "maxBytesPerTrigger"),
                _number(said, "minRowsPerTrigger"),
            ),
            _boolean(said, "failOnDataLoss", "true"),
            said.get("group", ""),
            bool(patterns) or _boolean(said, "echoes", "false"),
            said.get("startingoffsets", ""),
            said.get("endingoffsets", ""),
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

    def starting(self, usual: str) -> Offsets:
        """Return where to begin. Raises ``JournalError``."""
        return Offsets("startingOffsets", self.starting_offsets or usual)

    def ending(self) -> Offsets:
        """Return where a batch read ends. Raises ``JournalError``."""
        return Offsets("endingOffsets", self.ending_offsets or "latest")

    def everything(self) -> bool:
        """Whether it is the whole of a folder that is asked for."""
        return bool(self.path) and not (self.starting_offsets or self.ending_offsets)


def _number(said: Mapping[str, str], name: str) -> int:
    text = said.get(name.lower(), "0").strip()
    if not text.isdecimal():
        raise JournalError(f"option {name}: '{text}' must be a whole number; 0 is no limit")
    return int(text)


def _boolean(said: Mapping[str, str], name: str, usual: str) -> bool:
    text = said.get(name.lower(), usual).strip().lower()
    if text not in ("true", "false"):
        raise JournalError(f"option {name}: '{text}' must be true or false")
    return text == "true"
