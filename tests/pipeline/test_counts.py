"""What boards lost, over connections that break and restarts, of which every number is known."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from host_broker.client.unconfirmed import MOST_MESSAGES
from motemq_pipeline.counts import (
    FEW_RESENT,
    MOST_LOST_FIRST,
    MOST_RESENT,
    Counts,
    _counted,
    board_counts,
)
from motemq_pipeline.rules import MAX_SEQ
from motemq_pipeline.schemas import TABLES
from motemq_pipeline.sequence_numbers import Numbers, ranges_of
from umotemq.micromsg2 import MicroMsg2Client


def _stream(arrivals: Iterable[int]) -> Numbers:
    came = np.array(list(arrivals), np.int64)
    ranges, _ = ranges_of(np.zeros_like(came), came)
    numbers = Numbers()
    numbers.take([(first, last) for first, last in ranges.tolist()])
    return numbers


def _told(*streams: Iterable[int]) -> tuple[int, int, int]:
    """Return how many counts, gaps and duplicates a board with these streams has."""
    counts = Counts()
    for arrivals in map(list, streams):
        counts.take(_stream(arrivals), len(arrivals), None)
    return len(counts.all), counts.gaps, counts.arrivals - (counts.numbers - counts.gaps)


def test_a_board_that_reconnects_and_goes_on_counting_has_lost_nothing() -> None:
    assert _told(range(500), range(500, 900), range(900, 901)) == (1, 0, 0)


def test_what_is_lost_between_two_connections_is_seen() -> None:
    assert _told(range(500), range(505, 900)) == (1, 5, 0)


def test_what_is_sent_again_after_a_reconnection_is_a_copy_and_may_fill_a_gap() -> None:
    assert _told(range(500), range(490, 900)) == (1, 0, 10)
    assert _told(range(500), range(500 - MicroMsg2Client.window, 900)) == (1, 0, 100)
    assert _told(range(1000), range(700, 1500)) == (1, 0, 300)
    assert _told(range(5000), range(5000 - MOST_MESSAGES, 5100)) == (1, 0, MOST_MESSAGES)
    assert _told([*range(50), *range(51, 5000)], [50, *range(5000, 5100)]) == (1, 0, 0)
    assert _told([*range(50), *range(51, 5000)], [49, 50, *range(5000, 5100)]) == (1, 0, 1)
    assert _told(range(0, 200, 2), range(1, 200, 2)) == (1, 0, 0)  # two ways at once


def test_a_board_that_begins_anew_hides_no_loss_behind_what_came_before() -> None:
    assert _told(range(500), range(300)) == (2, 0, 0)
    assert _told(range(500), [*range(100), *range(110, 600)]) == (2, 10, 0)
    assert _told(range(500), range(3, 300)) == (2, 3, 0)  # the first three were lost
    assert _told(range(500), range(200, 300)) == (2, 200, 0)  # more would have come twice
    assert _told(range(5000), range(900, 1000)) == (2, 900, 0)
    assert _told(range(3, 500), range(1, 300)) == (2, 3 + 1, 0)
    # It passes the end of the count before it, and has lost what was last there.
    assert _told(range(10), [*range(8), *range(10, 30)]) == (2, 2, 0)
    assert _told(*[range(10)] * 20) == (20, 0, 0)


def test_of_a_board_that_is_older_than_the_tables_nothing_before_them_is_lost() -> None:
    assert _told(range(MOST_LOST_FIRST, 1200)) == (1, MOST_LOST_FIRST, 0)
    assert _told(range(MOST_LOST_FIRST + 1, 1200)) == (1, 0, 0)
    assert _told(range(70_000, 70_500), range(70_502, 71_000)) == (1, 2, 0)


_CONNECTIONS = st.lists(
    st.tuples(
        st.integers(0, 20),  # numbers that are lost while there is no connection
        st.integers(0, MOST_RESENT),  # that are sent again, but for most of what came if it is much
        st.lists(st.booleans(), min_size=1, max_size=80),  # what is sent: whether it comes
    ),
    min_size=1,
    max_size=5,
)


@given(st.integers(70, 2500), _CONNECTIONS)
def test_over_any_connections_of_one_count_the_gaps_are_what_never_came(
    following: int, connections: list[tuple[int, int, list[bool]]]
) -> None:
    streams, came = [list(range(following))], set(range(following))
    for lost, again, sent in connections:
        before = max(came) + 1
        first = max(before - min(again, max(FEW_RESENT, before // 2)), 1)
        numbers = list(range(first, following)) if again else []
        following += lost
        comes = [*sent[:-1], True]
        numbers += [following + at for at, arrives in enumerate(comes) if arrives]
        following += len(sent)
        streams.append(numbers)
        came |= set(numbers)
    missing = max(came) + 1 - len(came)
    assert _told(*streams) == (1, missing, sum(map(len, streams)) - len(came))


# No two in a row, and not the first: such a board looks like one that sends old numbers again.
_LOST = st.sets(st.sampled_from(range(2, 90, 2)))


@given(st.lists(st.tuples(st.integers(1, 90), _LOST), min_size=1, max_size=8))
def test_over_any_restarts_each_count_has_its_own_gaps(
    lives: list[tuple[int, set[int]]],
) -> None:
    streams = [[n for n in range(size + 1) if n not in lost or n == size] for size, lost in lives]
    lost = sum(max(stream) + 1 - len(stream) for stream in streams)
    counts, gaps, duplicates = _told(*streams)
    assert (gaps, duplicates) == (lost, 0)
    assert counts == len(lives)


def test_a_board_that_leaps_stops_no_table() -> None:
    """Its sums are more than a table holds; others' rows are in the same table."""
    numbers = {"first": 0, "expected": MAX_SEQ + 1, "missing": f"1-{MAX_SEQ - 1}"}
    stream = {"board": "x", "connection": 1, "numbered": 2, "complete": None, **numbers}
    batch = pa.RecordBatch.from_pylist([stream] * 1100)
    (row,) = next(_counted([batch])).to_pylist()
    assert (row["counts"], row["gaps"], row["duplicates"]) == (1100, 2**63 - 1, 0)


def test_a_row_a_board(spark: SparkSession) -> None:
    def row(board: str, connection: int, numbers: Numbers, complete: bool | None) -> tuple:  # type: ignore[type-arg]
        known = numbers.first is not None
        return (
            board, connection, "fmqp", "p", 10, numbers.different, numbers.first,
            numbers.expected if known else None, numbers.gaps, 0, numbers.to_text(), complete,
            None, None,
        )  # fmt: skip

    streams = spark.createDataFrame(
        [
            row("a", 2, _stream(range(503, 700)), True),
            row("a", 1, _stream([*range(100), *range(101, 500)]), False),
            row("b", 3, Numbers(), None),
            row("c", 4, _stream(range(5)), True),
            row("c", 5, _stream(range(5)), False),
        ],
        TABLES["gold_streams"],
    )
    found = {each["board"]: tuple(each)[1:] for each in board_counts(streams).collect()}
    assert found == {
        "a": (1, 700, 4, 0, True),  # the end message of its second connection
        "b": (None, None, None, None, None),
        "c": (2, 10, 0, 0, False),
    }
