"""Tables in the Delta format: batches once, replaced as a whole, compacted, forgotten, of old."""

import json
import os
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from motemq_pipeline import delta
from motemq_pipeline.delta import LEAST_LOG_S, Conflict, Table, present
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.parquet_files import File, Target, file_from_json, file_to_json, written_by
from motemq_pipeline.schemas import DATE, VERSIONS, arrow_schema
from motemq_pipeline.storage import Storage

_PLAIN = "gold_board_health"
_DATED = "gold_rollup_hour"
_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def place(tmp_path: Path) -> Storage:
    return Storage.at(tmp_path)


def _files(place: Storage, table: str, rows: list[dict[str, object]]) -> list[File]:
    schema = arrow_schema(table)
    if DATE in schema.names:
        schema = schema.remove(schema.get_field_index(DATE))
    batches = iter([pa.RecordBatch.from_pylist(rows, schema=schema)])
    return written_by(place, Target(table), batches)


def _boards(place: Storage, *boards: str) -> list[File]:
    return _files(place, _PLAIN, [{"board": board} for board in boards])


def _hours(place: Storage, *hours: int) -> list[File]:
    rows: list[dict[str, object]] = [
        {"board": f"b{hour}", "window_start": _NOON + timedelta(hours=hour)} for hour in hours
    ]
    return _files(place, _DATED, rows)


def _told(place: Storage, table: str = _PLAIN) -> list[str]:
    """Return the boards as a stranger reads them."""
    found = DeltaTable(place.within(table).uri).to_pyarrow_table()
    return sorted(found["board"].to_pylist())


def test_a_batch_that_comes_again_adds_nothing(place: Storage) -> None:
    table = Table(place, _PLAIN)
    table.create()
    assert table.add(_boards(place, "a", "b"), "query", 0)
    assert table.add(_boards(place, "c"), "query", 2)
    for number in (0, 1, 2):  # as after a crash, by a program that knows nothing yet
        assert not Table(place, _PLAIN).add(_boards(place, "again"), "query", number)
    assert Table(place, _PLAIN).add(_boards(place, "d"), "another query", 0)
    table.compact()
    assert not table.add(_boards(place, "again"), "query", 2)
    assert _told(place) == ["a", "b", "c", "d"]
    assert table.count() == 4


def test_a_commit_whose_answer_was_lost_is_looked_for(
    place: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(place, _PLAIN)
    table.create()
    really, failures = DeltaTable.create_write_transaction, ["the connection was reset"]

    def committing(handle: DeltaTable, *args: object, **options: object) -> None:
        really(handle, *args, **options)  # type: ignore[arg-type]
        if failures:
            raise CommitFailedError(failures.pop())

    monkeypatch.setattr(DeltaTable, "create_write_transaction", committing)
    assert not table.add(_boards(place, "a"), "query", 0)  # it is there
    assert _told(place) == ["a"]


@pytest.mark.parametrize("version", ["of before", "ours"])
def test_a_table_whose_replacement_got_no_answer_is_replaced_once(
    place: Storage, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Again would be to remove the files that it is made of: Delta knows no such commit."""
    table = Table(place, _PLAIN)
    table.create()
    if version != "ours":
        table.handle().alter.set_table_properties(
            {"motemq.version": version}, raise_if_not_exists=False
        )
    failures = ["the connection was reset"]

    def without_an_answer(committing: Callable[..., None]) -> Callable[..., None]:
        def found(*args: object, **options: object) -> None:
            committing(*args, **options)
            if failures:
                raise CommitFailedError(failures.pop())

        return found

    for of, name in (
        (DeltaTable, "create_write_transaction"),
        (delta, "create_table_with_add_actions"),
    ):
        monkeypatch.setattr(of, name, without_an_answer(getattr(of, name)))
    table.replace(_boards(place, "a"), "source", 1)
    assert not failures and table.is_ours() and table.has("source", 1)
    for entry in Path(table.storage.uri).glob("_delta_log/*.json"):
        changes = [json.loads(line) for line in entry.read_text().splitlines()]
        removed = {change["remove"]["path"] for change in changes if "remove" in change}
        assert not any(change["add"]["path"] in removed for change in changes if "add" in change)
    assert _told(place) == ["a"]


def test_a_batch_is_committed_behind_the_one_that_it_follows_only(place: Storage) -> None:
    """What it adds is what came since; a writer that another one has overtaken has another part."""
    table, late = Table(place, _PLAIN), Table(place, _PLAIN)
    table.create()
    assert table.add(_boards(place, "a"), "query", 3)
    assert table.change(_boards(place, "b"), [], "query", 5, after=3)
    assert not late.change(_boards(place, "again"), [], "query", 5, after=3)
    with pytest.raises(Conflict):
        late.change(_boards(place, "and more"), [], "query", 6, after=3)
    assert _told(place) == ["a", "b"]


def test_two_writers_lose_nothing(place: Storage) -> None:
    tables = [Table(place, _PLAIN), Table(place, _PLAIN)]
    tables[0].create()
    for number in range(10):
        for which, table in enumerate(tables):
            assert table.add(_boards(place, f"{which}-{number}"), f"query {which}", number)
    assert len(_told(place)) == 20


def _pass(instant: datetime, folder: Path) -> None:
    """Return when a file that is written now is younger than this instant.

    A file system dates files by a clock that may stand for ten milliseconds, and a table knows
    by the dates of its log's files what was when.
    """
    probe = folder / "probe"
    while True:
        probe.write_bytes(b"")
        if datetime.fromtimestamp(probe.stat().st_mtime, UTC) > instant + timedelta(milliseconds=1):
            return


def test_a_table_of_another_version_is_replaced_with_its_rows_or_not_at_all(
    place: Storage,
) -> None:
    """Whatever commit is its last one: the next program sees old rows, or that it is to replace."""
    schema = arrow_schema(_DATED)
    old = schema.remove(schema.get_field_index("sketch"))
    rows = [{"board": "old", "window_start": _NOON, DATE: _NOON.date()}]
    made = DeltaTable.create(
        place.within(_DATED).uri,
        old,
        configuration={"motemq.version": "1"},  # without partitions
        raise_if_key_not_exists=False,
    )
    noted = CommitProperties(app_transactions=[Transaction("source", 3)])
    write_deltalake(
        made, pa.Table.from_pylist(rows, schema=old), mode="append", commit_properties=noted
    )
    table = Table(place, _DATED)
    before = table.handle().version()
    table.replace(_hours(place, 1, 2), "source", 4)
    assert table.is_ours()
    for version in range(before, table.handle().version() + 1):
        past = table.handle(version)
        boards = sorted(past.to_pyarrow_table()["board"].to_pylist())
        is_ours = past.metadata().configuration.get("motemq.version") == str(VERSIONS[_DATED])
        assert boards == ["b1", "b2"] or (boards == ["old"] and not is_ours), version
    assert table.has("source", 4)
    assert table.handle().metadata().partition_columns == [DATE]
    columns = pa.schema(table.handle().schema().to_arrow()).names
    assert columns == arrow_schema(_DATED).names
    properties = table.handle().metadata().configuration
    Table(place, "gold_rollup_minute").create()
    assert properties == Table(place, "gold_rollup_minute").handle().metadata().configuration


def test_a_table_is_replaced_as_a_whole_and_its_past_can_be_read(
    place: Storage, tmp_path: Path
) -> None:
    table = Table(place, _PLAIN)
    table.replace(_boards(place, "old"))
    before, version = table.dataset(), table.handle().version()
    at = datetime.now(UTC) + timedelta(milliseconds=5)
    _pass(at, tmp_path)
    table.replace(_boards(place, "new", "too"))
    assert _told(place) == ["new", "too"]
    assert before.to_table()["board"].to_pylist() == ["old"]
    with pytest.raises(PipelineError, match=rf"has no version 99; the latest is {version + 1}$"):
        table.files(99)
    for past in (version, at):
        assert table.dataset(past).to_table()["board"].to_pylist() == ["old"]
    table.replace([])
    assert _told(place) == []
    with pytest.raises(PipelineError, match=_PLAIN):
        table.dataset(1000)


def test_some_files_are_replaced_in_one_commit(place: Storage) -> None:
    table = Table(place, _DATED)
    table.create()
    table.add(_hours(place, 0, 1), "a", 0)
    table.add(_hours(place, 2), "a", 1)
    (replaced,) = [file for file in table.files() if file.rows == 2]
    assert table.change(_hours(place, 5), [replaced], "refresh", 7)
    assert _told(place, _DATED) == ["b2", "b5"]
    assert not table.change(_hours(place, 6), [replaced], "refresh", 7)
    with pytest.raises(Conflict):
        table.change([], [replaced], "refresh", 8)
    assert table.change([], [], "refresh", 9)
    assert table.has("refresh", 9)
    assert _told(place, _DATED) == ["b2", "b5"]


def test_days_are_partitions_and_bounds_are_noted(place: Storage) -> None:
    table = Table(place, _DATED)
    table.create()
    odd = _NOON + timedelta(microseconds=1500)
    written = _files(
        place,
        _DATED,
        [
            {"board": "a", "window_start": odd, "count": 3},
            {"board": "b", "window_start": _NOON + timedelta(days=1), "count": 5},
            {"board": "c", "window_start": None},
            {"board": "d", "window_start": _NOON, "count": -2},
        ],
    )
    assert [file_from_json(file_to_json(file)) for file in written] == written
    table.add(written, "a", 0)
    found = {file.day: file for file in table.files()}
    assert sorted(found, key=str) == [date(2026, 1, 1), date(2026, 1, 2), None]
    first = found[date(2026, 1, 1)]
    noon_us = round(_NOON.timestamp()) * 10**6
    assert (first.rows, first.low["count"], first.high["count"]) == (2, -2, 3)
    # Delta has milliseconds: never narrower than the rows.
    assert (first.low["window_start"], first.high["window_start"]) == (noon_us, noon_us + 2000)
    days = DeltaTable(place.within(_DATED).uri).to_pyarrow_table().to_pylist()
    assert {row["board"]: row["date"] for row in days} == {
        "a": date(2026, 1, 1), "b": date(2026, 1, 2), "c": None, "d": date(2026, 1, 1),
    }  # fmt: skip
    news = table.added(-1, table.handle().version())
    assert news is not None
    assert [file.path for file in news] == [file.path for file in written]
    dataset = DeltaTable(place.within(_DATED).uri).to_pyarrow_dataset()
    for wanted, rows in (
        (pc.field("window_start") == odd, 1),
        (pc.field("window_start").is_null(), 1),
        (pc.field("board") == "b", 1),  # no bounds are noted of texts
        (pc.field("count") >= 5, 1),
        (pc.field("mean").is_null(), 4),
    ):
        assert dataset.to_table(filter=wanted).num_rows == rows, wanted


def test_compaction_disturbs_no_reader_and_is_no_news(place: Storage) -> None:
    table = Table(place, _DATED)
    table.create()
    for number in range(20):
        table.add(_hours(place, number), "a", number)
    reader, before = table.dataset(), table.handle().version()
    assert table.compact() == (20, 2)  # a day each
    assert sorted(reader.to_table()["board"].to_pylist()) == _told(place, _DATED)
    assert len(_told(place, _DATED)) == 20
    assert table.added(before, table.handle().version()) == []
    assert {file.low["window_start"] for file in table.files()} == {
        round(_NOON.timestamp() + hours * 3600) * 10**6 for hours in (0, 12)
    }


def _on_disk(place: Storage, table: str) -> list[Path]:
    folder = place.within(table).folder
    assert folder is not None
    return list(folder.glob("date=*/*.parquet"))


def test_what_was_replaced_goes_when_its_time_is_over(place: Storage) -> None:
    """And a file that no commit mentions, of a task that was killed; the present stays."""
    table = Table(place, _DATED, history_s=1.0)
    table.create()
    for number in range(3):
        table.add(_hours(place, number), "a", number)
    table.compact()
    (orphan,) = _hours(place, 9)
    assert len(_on_disk(place, _DATED)) == 5
    folder = place.within(_DATED).folder
    assert folder is not None
    log = folder / "_delta_log"
    for entry in log.glob("*.json"):  # as if all of it had happened two hours ago
        lines = [json.loads(line) for line in entry.read_text().splitlines()]
        for line in lines:
            if "remove" in line:
                line["remove"]["deletionTimestamp"] -= 7_200_000
        entry.write_text("\n".join(map(json.dumps, lines)))
    table = Table(place, _DATED, history_s=1.0)
    table.vacuum(orphans_after_s=86_400.0)
    assert len(_on_disk(place, _DATED)) == 2
    assert (folder / orphan.path).exists()
    assert table.count() == 3
    assert (log / f"{0:020d}.json").exists()  # of now by the clock of its file
    for entry in log.glob("*.json"):
        os.utime(entry, (0, 0))
    table.vacuum()
    assert not (log / f"{0:020d}.json").exists()
    assert Table(place, _DATED).count() == 3
    assert table.added(0, 1) is None  # nobody knows any more


@pytest.mark.parametrize(
    ("history_s", "age_s", "is_kept"),
    [
        (1.0, LEAST_LOG_S - 60, True),  # a stream that reads by the log may need them
        (1.0, LEAST_LOG_S + 60, False),
        (5400.0, 5300.0, True),
        (5400.0, 5500.0, False),
    ],
)
def test_a_history_is_no_matter_of_whole_hours(
    place: Storage, history_s: float, age_s: float, is_kept: bool
) -> None:
    """What is kept for now must be known the next time, too, when a checkpoint is all there is."""
    table = Table(place, _DATED, history_s)
    table.create()
    for number in range(4):
        table.add(_hours(place, number), "a", number)
    table.compact()
    folder = place.within(_DATED).folder
    assert folder is not None
    log = folder / "_delta_log"
    for entry in log.glob("*.json"):
        lines = [json.loads(line) for line in entry.read_text().splitlines()]
        for line in lines:
            if "remove" in line:
                line["remove"]["deletionTimestamp"] -= int(1000 * age_s)
        entry.write_text("\n".join(map(json.dumps, lines)))
    Table(place, _DATED, history_s).vacuum()
    assert len(_on_disk(place, _DATED)) == (5 if is_kept else 1)
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    removed = pq.read_table(checkpoint).column("remove").to_pylist()
    assert len([one for one in removed if one and one["path"]]) == (4 if is_kept else 0)


def test_a_log_is_kept_as_long_as_was_said_last_and_for_some_minutes(place: Storage) -> None:
    def kept(history_s: float) -> str:
        table = Table(place, _DATED, history_s)
        table.create()
        table.vacuum()
        return str(table.handle().metadata().configuration["delta.logRetentionDuration"])

    assert kept(1.0) == f"interval {LEAST_LOG_S:.0f} seconds"
    assert kept(7200.0) == "interval 7200 seconds"


def test_a_past_that_is_not_kept_is_told_and_no_other_is_given(place: Storage) -> None:
    table = Table(place, _DATED, history_s=1.0)
    before = datetime.now(UTC) - timedelta(seconds=1)  # times of commits are of whole ms
    table.create()
    for number in range(2):
        table.add(_hours(place, number), "a", number)
    then = datetime.now(UTC)
    folder = place.within(_DATED).folder
    assert folder is not None
    for entry in (folder / "_delta_log").glob("*.json"):
        os.utime(entry, (then.timestamp(), then.timestamp()))
    words = r"known from 2\S+Z on, not as it was at 2\S+Z: it was not there, or what it was is no"
    for at in (before, before.replace(tzinfo=None), datetime(2020, 1, 1)):
        with pytest.raises(PipelineError, match=words):
            table.files(at=at)
    assert len(table.files(at=datetime.now(UTC))) == 2
    assert len(table.files(at=1)) == 1
    table.add(_hours(place, 9), "a", 9)
    for entry in (folder / "_delta_log").glob("*.json"):
        os.utime(entry, (0, 0))
    table.vacuum()
    words = r"version 1 of the table \w+ in \S+ is no longer kept .* the latest is 3"
    with pytest.raises(PipelineError, match=words):
        table.files(at=1)
    # Before the oldest entry of the log.
    (newest,) = (folder / "_delta_log").glob("*.json")
    os.utime(newest)
    with pytest.raises(PipelineError, match="known from"):
        table.files(at=then)
    assert len(table.files(at=datetime.now(UTC))) == 3


def test_only_vacuum_takes_entries_from_the_log(place: Storage) -> None:
    """A stream that has yet to read them would have to begin anew."""
    table = Table(place, _DATED, history_s=1.0)
    table.create()
    # A checkpoint of the log is when delta-rs takes old entries away by itself.
    table.handle().alter.set_table_properties(
        # As a table of before has it.
        {"delta.checkpointInterval": "1", "delta.enableExpiredLogCleanup": "true"}
    )
    for number in range(3):
        table.add(_hours(place, number, 48), "a", number)
    folder = place.within(_DATED).folder
    assert folder is not None
    entries = list((folder / "_delta_log").glob("*.json"))
    for entry in entries:
        os.utime(entry, (0, 0))
    table.own("query")
    table.compact()
    table.expire(date(2026, 1, 2))
    assert all(entry.exists() for entry in entries)
    assert table.added(0, len(entries)) is not None


def test_days_that_are_too_old_go(place: Storage) -> None:
    table = Table(place, _DATED)
    table.create()
    table.add(_hours(place, 0, 24, 48), "a", 0)
    before = table.handle().version()
    table.expire(date(2026, 1, 2))
    assert _told(place, _DATED) == ["b24", "b48"]
    assert table.added(before, table.handle().version()) == []
    assert Table(place, _DATED).expired() == date(2026, 1, 2)
    # Nothing is noted where nothing went.
    latest = table.handle().version()
    for day in (1, 2):
        table.expire(date(2026, 1, day))
    assert (table.handle().version(), table.expired()) == (latest, date(2026, 1, 2))


def test_a_table_that_was_never_written_is_told(place: Storage) -> None:
    for name in (_PLAIN, _DATED):
        with pytest.raises(PipelineError, match=f"there is no table {name} in"):
            Table(place, name).count()
    with pytest.raises(PipelineError, match="there is no table 'x'; there are bronze"):
        Table(place, "x")
    assert present(place) == []
    Table(place, _PLAIN).create()
    assert present(place) == [_PLAIN]
    assert (Table(place, _PLAIN).count(), _told(place)) == (0, [])


def test_tables_of_other_versions_are_refused_and_made_anew(place: Storage) -> None:
    folder = place.within(_PLAIN).folder
    assert folder is not None
    DeltaTable.create(folder, pa.schema([("board", pa.string())]))
    with pytest.raises(PipelineError, match="has version None, this MoteMQ reads version 4"):
        Table(place, _PLAIN).create()
    Table(place, _PLAIN).replace(_boards(place, "a"))
    assert _told(place) == ["a"]
    assert DeltaTable(folder).to_pyarrow_dataset().schema == arrow_schema(_PLAIN)
    old = place.within(_DATED).folder
    assert old is not None
    (old / ".d-000000000000-000000000003").mkdir(parents=True)
    with pytest.raises(PipelineError, match="older MoteMQ"):
        Table(place, _DATED).create()


def test_the_owner_is_noted(place: Storage) -> None:
    table = Table(place, _PLAIN)
    table.create()
    assert table.owner() == ""
    for _ in range(2):
        table.own("query")
        assert Table(place, _PLAIN).owner() == "query"
    assert table.handle().version() == 1


def test_a_long_log_is_not_read_as_a_whole_for_what_is_unread(
    place: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(place, _PLAIN)
    table.create()
    for number in range(40):
        table.add(_boards(place, "b"), "q", number)
    log = place.within(_PLAIN).folder
    assert log is not None
    times = [
        json.loads(line)["commitInfo"]["timestamp"] / 1000
        for version in (1, 36)
        for line in (log / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
        if "commitInfo" in line
    ]
    read: list[str] = []
    really = Storage.read_bytes
    monkeypatch.setattr(
        Storage, "read_bytes", lambda of, name: (read.append(name), really(of, name))[1]
    )
    first = table.unread_since(0)
    assert first is not None
    assert first.timestamp() == pytest.approx(times[0])
    table.handle().create_checkpoint()
    for version in range(36):
        (log / "_delta_log" / f"{version:020d}.json").unlink()
    read.clear()
    found = table.unread_since(0)
    assert found is not None
    assert found.timestamp() == pytest.approx(times[1])
    assert len(read) <= 8
    read.clear()
    assert table.unread_since(40) is None
    assert not read
