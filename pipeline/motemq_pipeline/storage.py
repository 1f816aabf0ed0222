"""Where tables are: a folder, or a URI that delta-rs knows, such as ``s3://BUCKET/PATH``.

Credentials of an object store come from the environment (``AWS_ACCESS_KEY_ID``, …) and travel to
executors with the tasks; they are in no file of ours, and in no option that Spark shows.
"""

import contextlib
import json
import os
import re
import shutil
import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from motemq_pipeline.errors import PipelineError, StoreUnavailable

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
# What an object store is told by these, as delta-rs names its options.
_FROM_ENVIRONMENT: Final = re.compile(r"(AWS|AZURE|GOOGLE)_[A-Z_0-9]+")
_ONE_SLASH: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_SECRET: Final = re.compile(r"(?i)secret|password|token|(access|account)_?key(?!_id)|sas")
# What is left of an error after delta-rs has tried again for as long as it does.
_NO_ANSWER: Final = re.compile(
    r"Generic \w+ error\b.*(error sending request|status code: 50[0234])", re.DOTALL
)
_HAS_BUCKET: Final = re.compile(r"s3[an]?|gs|az")
_UNKNOWN_SCHEME: Final = re.compile(r"Unknown scheme: [^.]+")
# What alerts or gold have yet to read is kept for so long beyond that, and no longer: a broker that
# alerts are published at may never return.
KEEP_UNREAD_S: Final = 7 * 86_400.0
HISTORY_S: Final = 3600.0  # what is no longer of a table can be read for so long: time travel
_UNKNOWN_USER: Final = re.compile(r"no credentials found|error .* loading credentials")  # of AWS
_NO_CREDENTIALS: Final = "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_LONGEST_WORDS: Final = 300  # characters of what a store says
_SELF_TEST: Final = "_self_test"
_WRITERS: Final = 4  # at once, in the self-test


@dataclass(frozen=True)
class Storage:
    """A place for tables: ``uri`` is an absolute path, or has a scheme.

    ``options`` are delta-rs's storage options. They may hold secrets, so a text of this says none.
    ``given`` are those of them that are not from the environment.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    given: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def at(
        cls, place: str | os.PathLike[str], options: Mapping[str, str] | None = None
    ) -> "Storage":
        """Return the storage of a folder or URI; ``options`` go before the environment's.

        ``s3a://``, as Hadoop writes it, is ``s3://``. Raises ``PipelineError`` for what is neither
        a folder nor a URI.
        """
        text = os.fspath(place)
        match = _SCHEME.match(text)
        if match is None and _ONE_SLASH.match(text):
            raise PipelineError(
                f"'{text}' has one slash; write a URI as s3://BUCKET/PATH, this folder as ./{text}"
            )
        if match is None:
            return cls(os.path.abspath(os.path.expanduser(text)))
        scheme = match[1].lower()
        rest = text[match.end() :].rstrip("/")
        if not rest or (rest.startswith("/") and _HAS_BUCKET.fullmatch(scheme)):
            raise PipelineError(f"'{text}' names no place for tables; write it as s3://BUCKET/PATH")
        if scheme == "file":
            return cls(os.path.abspath("/" + rest.lstrip("/")))
        from_environment = {
            name.lower(): value
            for name, value in os.environ.items()
            if _FROM_ENVIRONMENT.fullmatch(name)
        }
        uri = f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest}"
        return cls(uri, {**from_environment, **(options or {})}, dict(options or {}))

    @property
    def folder(self) -> Path | None:
        """The folder, None of a URI."""
        return None if "://" in self.uri else Path(self.uri)

    def within(self, name: str) -> "Storage":
        """Return the place called ``name`` in this one."""
        return Storage(f"{self.uri}/{name}", self.options, self.given)

    def filesystem(self) -> tuple[Any, str]:
        """Return a pyarrow file system, and the path of this place in it."""
        import pyarrow.fs as pafs

        if self.folder is not None:
            return pafs.LocalFileSystem(), self.uri
        from deltalake.fs import DeltaStorageHandler

        return pafs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options))), ""

    def read_bytes(self, name: str) -> bytes | None:
        """Return a small file, None if there is none."""
        filesystem, root = self.filesystem()
        try:
            with filesystem.open_input_stream(f"{root}/{name}" if root else name) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise refusal(f"{self.uri}/{name}", str(error)) from error

    def write_bytes(self, name: str, data: bytes) -> None:
        """Replace a small file as a whole."""
        if self.folder is not None:
            fresh = self.folder / f".{name}.new"
            fresh.write_bytes(data)
            os.replace(fresh, self.folder / name)
            return
        from deltalake.fs import DeltaStorageHandler

        handler: Any = DeltaStorageHandler(self.uri, dict(self.options))
        file: IO[bytes] = handler._handler.open_output_stream(name, None)
        file.write(data)
        file.close()

    def prove(self) -> None:
        """Prove that tables can be kept here, by one that is made, written to, and deleted.

        Some writers begin at the same version, at the same moment. A store that honours conditional
        writes lets one be first, and the others notice. One that ignores the condition, or looks
        first and writes then, would lose a commit, and is refused.
        Raises ``PipelineError`` with the store's own words.
        """
        with _in_words(self.uri):
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
            place = self.within(f"{_SELF_TEST}_{uuid.uuid4().hex}")
            try:
                kept = _writers_at_once(place)
            finally:
                _delete(place)
        if not kept:
            raise PipelineError(
                f"{self.uri} cannot keep tables: several writers at once wrote an object that was "
                "to be written only if there is none (If-None-Match), so commits would be lost; "
                "use a store that honours conditional writes"
            )


def refuse_secrets(options: Mapping[str, str]) -> str | None:
    """Return why options that stand in a file are refused; None if they hold no secret."""
    for name in options:
        if _SECRET.search(name):
            return f"{name} is a secret: set {name.upper()} in the environment instead"
    return None


def _writers_at_once(place: Storage) -> bool:
    """Let writers add a file each to version 0 of a table; return whether all are there."""
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

    options = dict(place.options) or None
    schema = pa.schema([("number", pa.int64())])
    DeltaTable.create(place.uri, schema, storage_options=options)
    writers = [DeltaTable(place.uri, storage_options=options) for _ in range(_WRITERS)]
    ready = threading.Barrier(_WRITERS)

    def write(number: int) -> None:
        # Files that nobody reads: it is the log that is tried.
        stats = json.dumps({"numRecords": 0})
        action = AddAction(f"{number}.parquet", 0, {}, 0, True, stats)
        ready.wait()
        writers[number].create_write_transaction([action], "append", schema)

    with ThreadPoolExecutor(_WRITERS) as threads:
        list(threads.map(write, range(_WRITERS)))  # raises what one of them does
    return len(DeltaTable(place.uri, storage_options=options).file_uris()) == _WRITERS


def _delete(place: Storage) -> None:
    """Delete a table; whoever cannot, has said so already when it was to be made."""
    import pyarrow.fs as pafs

    if place.folder is not None:
        shutil.rmtree(place.folder, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        filesystem, _ = place.filesystem()
        for info in filesystem.get_file_info(pafs.FileSelector("", recursive=True)):
            if info.is_file:
                filesystem.delete_file(info.path)


@contextlib.contextmanager
def _in_words(uri: str) -> Iterator[None]:
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        raise refusal(f"{uri} cannot keep tables", str(error)) from error


def is_no_answer(text: str) -> bool:
    """Return whether an error of delta-rs says that an object store does not answer."""
    return _NO_ANSWER.search(text) is not None


def refusal(what: str, reason: str) -> PipelineError:
    """Return the error for ``what``, whose ``reason`` are delta-rs's words."""
    kind = StoreUnavailable if is_no_answer(reason) else PipelineError
    return kind(f"{what}: {first_words(reason)}")


def unknown_scheme(reason: str) -> str:
    """Return what to say if delta-rs does not know a URI's scheme, "" if it does."""
    found = _UNKNOWN_SCHEME.match(reason)  # and then fifty others, in no order
    return f"{found[0]}; write a folder, s3://BUCKET/PATH, az://… or gs://…" if found else ""


def first_words(text: str) -> str:
    """Return what an error says in one line: of delta-rs's, the first line and the store's code."""
    return _first_words(text)[:_LONGEST_WORDS]


def _first_words(text: str) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = [line.strip(" ↳\t") for line in plain.splitlines() if line.strip()]
    first = lines[0] if lines else "no reason was given"
    if refused := unknown_scheme(first):
        return refused
    if _UNKNOWN_USER.search(plain):
        return _NO_CREDENTIALS
    code = re.search(r"<Code>(\w+)</Code>", plain)
    message = re.search(r"<Message>([^<]+)</Message>", plain)
    if code:
        return f"{message[1] if message else first} ({code[1]})"
    system = re.search(r'code: \d+, kind: \w+, message: "([^"]+)"', plain)
    if system or ("Generic" in first and len(lines) > 1):
        return f"{first}: {system[1] if system else lines[-1]}"
    return first
