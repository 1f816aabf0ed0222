"""Rows that are put into order by way of files, against Python's own order."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motemq_pipeline import sorting
from motemq_pipeline.sorting import Runs

_SCHEMA = pa.schema([("name", pa.string()), ("number", pa.int64()), ("other", pa.float64())])
_KEY = ("name", "number")
_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.none() | st.sampled_from(["", "a", "ab", "ä", "\U0001f600", "\uffff"]),
            "number": st.none() | st.integers(-3, 3) | st.just(-(2**63)) | st.just(2**63 - 1),
            "other": st.floats(allow_nan=False),
        }
    ),
    max_size=40,
)


def _key(row: dict[str, Any]) -> tuple[tuple[bool, Any], ...]:
    name, number = row["name"], row["number"]
    return (name is None, (name or "").encode()), (number is None, number or 0)


@given(st.lists(_ROWS, max_size=8), st.integers(40, 60), st.integers(2, 5))
def test_pieces_follow_each_other_and_have_all_rows(
    parts: list[list[dict[str, Any]]], most: int, runs_at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "MOST_RUNS", runs_at_once)
        with Runs(_KEY, most) as runs:
            for part in parts:
                runs.add(pa.Table.from_pylist(part, _SCHEMA))
            pieces = [piece.to_pylist() for piece in runs.pieces()]
    found = [sorted(map(_key, piece)) for piece in pieces]
    assert [key for piece in found for key in piece] == sorted(
        _key(row) for part in parts for row in part
    )
    assert all(1 <= len(piece) <= most for piece in pieces)
    whole = sorted(repr(sorted(row.items())) for part in parts for row in part)
    assert sorted(repr(sorted(row.items())) for piece in pieces for row in piece) == whole


def test_files_are_where_spark_keeps_its_own_and_go_with_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    with Runs(_KEY, 10) as runs:
        for number in range(3):
            runs.add(pa.table({"name": ["a"], "number": [number]}))
        assert _open_below(tmp_path) == 3
        assert list(tmp_path.iterdir()) == []  # they have no name: nobody must clear them away
    assert _open_below(tmp_path) == 0
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "gone"))
    assert sorting.scratch() is None


def _open_below(folder: Path) -> int:
    """Return how many files below a folder this process has open."""
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    found = [os.readlink(link) for link in links if os.path.islink(link)]
    return sum(name.startswith(str(folder)) for name in found)
