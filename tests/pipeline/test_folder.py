"""A journal folder by message number and by time, as it grows; what the options say of it."""

import datetime
import errno
import http.client
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_motemq.blocks import JournalError
from pyspark_motemq.columns import batches
from pyspark_motemq.folder import Folder
from pyspark_motemq.journal import PartitionState
from pyspark_motemq.offsets import Limits, Offsets
from pyspark_motemq.options import Options
from pyspark_motemq.remote import Broker, BrokerUnavailable, Remote
from pyspark_motemq.topics import matching, pattern, without_echoes
from tests.journal_segment import START_NS, Segment, Sender, packet


def _append(journal: Path, counts: list[int], first: int, segment: Segment | None = None) -> int:
    """Append blocks of so many messages, one second apart; returns the next number."""
    segment = segment or Segment(0, first)
    for count in counts:
        packets = [packet(f"t/{n % 3}", b"%d" % n) for n in range(first, first + count)]
        segment.record(Sender(1, 1), packets, START_NS + first * 10**9)
        first += count
    segment.write(journal)
    return first


def _numbers(folder: Folder, start: int, end: int) -> list[int]:
    found: list[int] = []
    for part in folder.split(0, start, end):
        for data, slice in part.slices():
            for batch in batches(data, slice):
                found += batch.column("seq").to_pylist()
    return found


@settings(deadline=None)  # files
@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=20), min_size=1, max_size=4),
    st.data(),
)
def test_any_part_is_read_exactly(
    tmp_path_factory: pytest.TempPathFactory, segments: list[list[int]], draw: st.DataObject
) -> None:
    journal, following = tmp_path_factory.mktemp("journal"), 0
    folder = Folder(journal)
    for counts in segments:
        following = _append(journal, counts, following)
        assert folder.partitions()[0].next == following
    start = draw.draw(st.integers(0, following - 1))
    end = draw.draw(st.integers(start + 1, following))
    assert _numbers(folder, start, end) == list(range(start, end))


def test_large_parts_are_cut_for_many_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_motemq.folder.SLICE_BYTES", 3000)
    monkeypatch.setattr("pyspark_motemq.folder._REMEMBERED_BYTES", 500)
    following = _append(tmp_path, [7] * 300, 0)
    folder = Folder(tmp_path)
    folder.partitions()
    assert len(folder.split(0, 100, 2000)) > 5
    assert _numbers(folder, 100, 2000) == list(range(100, 2000))
    assert _numbers(folder, 0, following) == list(range(following))


def test_a_segment_that_grows_is_looked_at_only_where_it_grew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_motemq.folder._REMEMBERED_BYTES", 1)
    segment = Segment()
    following = _append(tmp_path, [5], 0, segment)
    folder = Folder(tmp_path)
    assert folder.partitions()[0].next == 5
    path = segment.path(tmp_path)
    whole = path.read_bytes()
    following = _append(tmp_path, [3], following, segment)
    # What was looked at is not looked at again: damage there is for those who read it.
    path.write_bytes(b"\xff" * len(whole) + path.read_bytes()[len(whole) :])
    assert folder.partitions()[0].next == following
    assert _numbers(folder, 5, 8) == [5, 6, 7]


def test_a_block_torn_within_gives_its_number_to_the_next_start(tmp_path: Path) -> None:
    _append(tmp_path, [2, 3], 0)
    path = Segment().path(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    folder = Folder(tmp_path)
    assert folder.partitions()[0].next == 2
    following = _append(tmp_path, [4], 2)  # a broker that found the second block torn
    assert folder.partitions()[0].next == following == 6
    assert _numbers(folder, 2, 6) == [2, 3, 4, 5]


def test_a_hole_between_segments_is_corruption(tmp_path: Path) -> None:
    _append(tmp_path, [2], 0)
    _append(tmp_path, [2], 3)
    with pytest.raises(JournalError, match=r"ends before message 2, .* begins with 3"):
        Folder(tmp_path).partitions()


_SECOND_5 = "2026-01-01T00:00:05Z"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", 0),
        ("latest", 12),
        ('{"0": 7}', 7),
        ('{"0": "latest"}', 12),
        ('{"1": 7}', 0),
        (_SECOND_5, 6),  # the record of second 4 began before it, that of 6 did not
        ("2026-01-01T02:00:05+02:00", 6),
        ("2026-01-01", 0),
        ("2027-01-01", 12),
        ("-10min", 0),
        ("-4s", 10),  # it is second 12
        ("- 0.5 h", 0),
        ("-99999d", 0),  # before 1970
        (f"-{'9' * 400}d", 0),
        ("0001-01-01T00:00:00Z", 0),
        ("9999-12-31T23:59:59Z", 12),
        ('{"0": -2}', 0),  # as Kafka has them
        ('{"0": -1}', 12),
    ],
)
def test_offsets(tmp_path: Path, text: str, expected: int) -> None:
    _append(tmp_path, [2] * 3, 0)
    _append(tmp_path, [2] * 3, 6)
    folder = Folder(tmp_path)
    now_ns = START_NS + 12 * 10**9 + 1
    found = Offsets("startingOffsets", text).resolve(folder, folder.partitions(), now_ns)
    assert found == {0: expected}


def test_a_partition_may_be_named_that_has_nothing_yet(tmp_path: Path) -> None:
    """A journal says of none of its partitions that it will be, before its first message."""
    _append(tmp_path, [2] * 3, 0)
    folder = Folder(tmp_path)
    offsets = Offsets("startingOffsets", '{"0": 1, "1": 4}')
    assert offsets.resolve(folder, folder.partitions(), 0) == {0: 1}


_UNREADABLE = ("soon", "{", '{"a": 1}', '{"0": true}', '{"0": -3}', "-5 weeks", "{1: 2}")


@pytest.mark.parametrize("text", _UNREADABLE)
def test_offsets_that_cannot_be_read(text: str) -> None:
    with pytest.raises(JournalError, match=r"option startingOffsets: .* write earliest, latest"):
        Offsets("startingOffsets", text)


def test_times_are_exact() -> None:
    offsets = Offsets("startingOffsets", "2026-01-01T00:00:00.123456Z")
    time = datetime.datetime(2026, 1, 1, 0, 0, 0, 123456, datetime.UTC)
    microseconds = (time - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)).total_seconds()
    assert offsets._time_ns("2026-01-01T00:00:00.123456Z", 0) == round(microseconds * 1e6) * 1000


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 1000), st.integers(0, 10**6))),
    st.integers(0, 2000),
    st.integers(0, 10**6),
)
def test_limits_hold_and_nothing_waits_for_ever(
    found: dict[int, tuple[int, int]], max_rows: int, max_bytes: int
) -> None:
    partitions = {number: PartitionState(0, rows, size) for number, (rows, size) in found.items()}
    limits = Limits(max_rows=max_rows, max_bytes=max_bytes)
    at = dict.fromkeys(partitions, 0)
    for _ in range(3):
        end = limits.end(at, partitions)
        taken = sum(end.values()) - sum(at.values())
        assert all(at[number] <= end[number] <= partitions[number].next for number in partitions)
        assert not max_rows or taken <= max_rows
        waiting = sum(state.next for state in partitions.values()) - sum(at.values())
        assert bool(taken) == bool(waiting)
        at = end


def test_a_minimum_waits() -> None:
    partitions = {0: PartitionState(0, 9, 100), 1: PartitionState(0, 0, 0)}
    limits = Limits(min_rows=10)
    assert limits.end({0: 0, 1: 0}, partitions) == {0: 0, 1: 0}
    assert limits.without_minimum().end({0: 0, 1: 0}, partitions) == {0: 9, 1: 0}


@pytest.mark.parametrize(
    ("topics", "path", "hit"),
    [
        ("a/b", "a/b", True),
        ("a/b", "/a/b/", True),
        ("a/b", "a/b/c", False),
        ("a/*", "a/b", True),
        ("a/*", "a", False),
        ("a/b", "a/*", True),
        ("x, a/*/c", "a/b/c", True),
        ("a.b", "axb", False),
        ("a*", "ab", False),
        ("a*", "a*", True),
        ("a/*", "b\na/b", False),
    ],
)
def test_topics(topics: str, path: str, hit: bool) -> None:
    import pyarrow as pa

    batch = pa.RecordBatch.from_pydict({"path": [path]})
    assert matching(batch, pattern(topics)).num_rows == hit


def test_echoes_of_clients_are_rows_only_if_they_are_asked_for() -> None:
    import pyarrow as pa

    batch = pa.RecordBatch.from_pydict({"path": ["a", "motemq/echo/7f", "motemq/echoes"]})
    assert without_echoes(batch).column("path").to_pylist() == ["a", "motemq/echoes"]
    assert without_echoes(batch.slice(0, 1)) == batch.slice(0, 1)
    assert not Options.read({"path": "x"}).echoes
    assert Options.read({"path": "x", "echoes": "true"}).echoes
    assert Options.read({"path": "x", "topics": "motemq/echo/*"}).echoes


def test_a_broker_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_motemq.remote._RETRY_S", 0.1)
    with pytest.raises(JournalError, match=r"broker at https://127\.0\.0\.1:1 cannot be reached"):
        Remote(Broker("https://127.0.0.1:1")).partitions()


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError(errno.EHOSTUNREACH, "No route to host"), True),  # of a cable that is out
        (OSError(errno.ENETUNREACH, "Network is unreachable"), True),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), True),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), False),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), False),
    ],
)
def test_what_passes_by_itself_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, error: OSError, passes: bool
) -> None:
    tried: list[None] = []

    def connect(connection: http.client.HTTPConnection) -> None:
        tried.append(None)
        raise error

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    monkeypatch.setattr("pyspark_motemq.remote._RETRY_EVERY_S", 0.001)
    with pytest.raises(JournalError, match="cannot be reached") as caught:
        Remote(Broker("http://127.0.0.1:1", patience_s=0.05)).partitions()
    assert isinstance(caught.value, BrokerUnavailable) == passes
    assert (len(tried) > 1) == passes


def test_the_folder_around_a_journal_is_not_taken_for_one_that_is_empty(tmp_path: Path) -> None:
    """Whoever gives DATA instead of DATA/journal would wait for ever."""
    assert Folder(tmp_path).partitions() == {}  # of a broker that has yet to start
    journal = tmp_path / "journal"
    journal.mkdir()
    (journal / "journal.json").write_text('{"format": 2, "id": "x"}')
    with pytest.raises(JournalError, match=rf"the DATA of a broker, .* is in {journal}; give that"):
        Folder(tmp_path).partitions()
    _append(journal, [3], 0)
    assert Folder(journal).partitions()[0].next == 3


def test_an_authority_that_is_none_is_named(tmp_path: Path) -> None:
    missing, no_pem = tmp_path / "missing.pem", tmp_path / "no.pem"
    no_pem.write_text("no certificate")
    for file, why in ((missing, "No such file or directory"), (no_pem, "has no certificate")):
        words = rf"option caFile: {file} cannot be read here \({why}\); it is a PEM file"
        with pytest.raises(JournalError, match=words):
            Remote(Broker("https://127.0.0.1:1", ca_file=str(file))).partitions()


@pytest.mark.parametrize("content", [b"", b"\n", "é€".encode(), b"\xff", b"first\nsecond"])
def test_a_token_file_without_a_token_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    broker = Broker("http://127.0.0.1:1", token_file=str(tmp_path / "token"))
    with pytest.raises(JournalError, match=r"option tokenFile: .* has no token"):
        Remote(broker).partitions(0.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "needs the journal folder or its broker"),
        ({"path": "x", "brokers": "y"}, "needs the journal folder or its broker"),
        ({"path": "x", "startOffset": "1"}, "option startOffset is not known"),
        ({"path": "x", "maxRowsPerTrigger": "many"}, "option maxRowsPerTrigger"),
        ({"path": "x", "failOnDataLoss": "perhaps"}, "option failOnDataLoss"),
        ({"path": "x", "topics": "a,,b"}, "empty topic"),
        ({"path": "s3a://bucket/journal"}, "option path: 's3a://bucket/journal' is a URI"),
        ({"path": "x", "echoes": "some"}, "option echoes: 'some' must be true or false"),
        ({"path": "x", "endingOffsets": "soon"}, "option endingOffsets"),
        ({"brokers": "ftp://x"}, "is no address"),
        ({"brokers": "http://x:99999"}, "'http://x:99999' is no address"),
        ({"brokers": "x:87a"}, "'http://x:87a' is no address"),
        ({"brokers": "http://[::1"}, "is no address"),
        ({"brokers": f"http://{'x' * 64}.de"}, "is no address"),
        ({"brokers": "http://a..b"}, "is no address"),
    ],
)
def test_wrong_options_are_refused_in_words(given: dict[str, Any], words: str) -> None:
    with pytest.raises(JournalError, match=words):
        Options.read(given)
