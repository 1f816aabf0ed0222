"""What stands out is flagged, what varies as ever is not, and one run changes nothing."""

from pathlib import Path

import pytest

from boards.reports.change import FEWEST, Comparison, compare
from boards.reports.history import (
    NoRun,
    all_runs,
    find_run,
    read_runs,
    runs_before,
    usual_seconds,
)
from boards.reports.record import RunRecord, read_run
from tests.boards.reports.made_run import MadeRun, passing_board

_NOISE = (0, 30, -20, 10, -30, 20, -10, 5, -15, 25)


def _runs(out: Path, medians: list[float], **board: object) -> list[RunRecord]:
    for number, center in enumerate(medians):
        made = MadeRun(out, run_id=f"20260101T0000{number:02}Z-aaaaaa")
        passing_board(made, "b1", rtt_us=[center - 100, center, center + 100])
        made.end(13)
    return read_runs(all_runs(out))


def _rtt(runs: list[RunRecord]) -> Comparison:
    (found,) = [one for one in compare(runs[-1], runs[:-1]) if one.metric == "rtt"]
    return found


def test_the_usual_variation_is_not_flagged(tmp_path: Path) -> None:
    found = _rtt(_runs(tmp_path, [1000.0 + noise for noise in _NOISE]))
    assert found.beyond == 0
    assert found.center == 1000
    assert found.spread == 15
    assert len(found.former) == 9


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_one_run_that_differs_is_unusual_once(tmp_path: Path, factor: float) -> None:
    runs = _runs(tmp_path, [1000.0 + noise for noise in _NOISE] + [factor * 1000])
    found = _rtt(runs)
    assert found.beyond == 1
    assert found.share == pytest.approx(factor - 1, abs=0.02)
    assert compare(runs[-1], runs[:-1])[0] == found  # what stands out comes first


def test_several_in_a_row_are_a_change(tmp_path: Path) -> None:
    assert _rtt(_runs(tmp_path, [1000.0 + noise for noise in _NOISE] + [2000.0] * 3)).beyond == 3


def test_a_few_percent_are_no_news_however_steady_it_was(tmp_path: Path) -> None:
    assert _rtt(_runs(tmp_path, [1000.0] * 10 + [1090.0])).beyond == 0
    assert _rtt(_runs(tmp_path / "more", [1000.0] * 10 + [1110.0])).beyond == 1


def test_few_former_runs_flag_nothing(tmp_path: Path) -> None:
    assert _rtt(_runs(tmp_path, [1000.0] * (FEWEST - 1) + [9000.0])).beyond == 0
    assert _rtt(_runs(tmp_path / "more", [1000.0] * FEWEST + [9000.0])).beyond == 1


def test_another_board_of_the_same_name_is_not_compared(tmp_path: Path) -> None:
    first = MadeRun(tmp_path, run_id="1")
    passing_board(first, "b1", rtt_us=[1, 2, 3])
    first.end(13)
    second = MadeRun(tmp_path, run_id="2")
    second.board("b1", virtual=False, model="RPI_PICO")
    second.check("ping", 1, 1)
    second.samples("ping", "rtt", "us", [7], 2)
    second.end(3)
    before, now = read_runs(all_runs(tmp_path))
    assert [one.former for one in compare(now, [before])] == [(), ()]


def test_a_failed_check_has_no_figure(tmp_path: Path) -> None:
    made = MadeRun(tmp_path)
    made.board("b1")
    made.check("ping", 1, 1, "failed", "lost")
    made.samples("ping", "rtt", "us", [7], 2, outcome="failed")
    assert compare(read_run(made.end(3)), []) == []


def test_former_runs_are_those_of_the_same_rig_before_this_one(tmp_path: Path) -> None:
    for rig, id in (("a", "1"), ("b", "2"), ("a", "3"), ("a", "4"), ("a", "5")):
        MadeRun(tmp_path, rig, id).end(1)
    folders = {folder.name[-1]: folder for folder in all_runs(tmp_path)}
    assert [folder.name[-1] for folder in runs_before(folders["4"], 9)] == ["1", "3"]
    assert [folder.name[-1] for folder in runs_before(folders["5"], 1)] == ["4"]
    assert runs_before(folders["5"], 0) == []
    assert runs_before(tmp_path, 9) == []
    assert find_run(tmp_path) == folders["5"]
    assert find_run(folders["1"]) == folders["1"]
    with pytest.raises(NoRun, match="neither a run's folder"):
        find_run(tmp_path / "rig")


def test_the_usual_time_is_the_median_of_what_passed(tmp_path: Path) -> None:
    for number, (took, outcome) in enumerate(
        [(1, "passed"), (2, "passed"), (9, "passed"), (99, "error")]
    ):
        made = MadeRun(tmp_path, run_id=str(number))
        made.board("b1")
        made.step("flash", 0, took, outcome)
        made.end(100)
    assert usual_seconds(read_runs(all_runs(tmp_path))) == {("b1", "flash"): 2}
