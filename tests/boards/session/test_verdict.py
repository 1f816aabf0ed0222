"""From outcomes to an exit code."""

from typing import Any

import pytest

from boards.reports.board_state import BoardState
from boards.session.plan import STEP_LIMITS_S, BoardPlan, Job
from boards.session.run import unmet, verdict


def _board(id: str, steps: dict[str, str], checks: dict[str, str], **more: Any) -> BoardState:
    job = Job(
        board=BoardPlan(id, "virtual-rp2040", "fmqp"),
        **dict.fromkeys(["image", "node_dir", "state_dir", "log_dir", "fmqp", "lightmq"], ""),
        rig_dir="",
        keep_flash=False,
        force=False,
        trust_ledger=False,
        flash_parallel=1,
        retries=1,
        fw_sha="",
        client_sha="",
        limits_s=STEP_LIMITS_S,
        checks=tuple(checks),
    )
    return BoardState(job, "virtual-rp2040", True, steps=steps, checks=checks, **more)


_PASSED = ({"flash": "passed"}, {"ping": "passed"})


@pytest.mark.parametrize(
    ("boards", "code"),
    [
        ([_PASSED], 0),
        ([_PASSED, ({"check": "failed"}, {"ping": "failed"})], 1),
        ([_PASSED, ({"telemetry": "failed"}, {"ping": "passed"})], 1),
        ([_PASSED, ({"flash": "error"}, {})], 3),
        ([({"flash": "error"}, {}), ({"check": "failed"}, {"ping": "failed"})], 1),
        ([_PASSED, ({"check": "passed"}, {"ping": "quarantined"})], 0),
        ([], 4),
        ([({"flash": "passed"}, {})], 4),
        ([({"check": "passed"}, {"ping": "skipped"})], 4),
        ([_PASSED, ({"check": "passed"}, {"ping": "skipped"})], 0),
    ],
)
def test_verdict(boards: list[tuple[dict[str, str], dict[str, str]]], code: int) -> None:
    states = {f"b{number}": _board(f"b{number}", *board) for number, board in enumerate(boards)}
    assert verdict(states) == code


@pytest.mark.parametrize(
    ("one", "two", "absent", "code"),
    [
        ("skipped", "skipped", "", 3),  # both came, too late for each other
        ("passed", "passed", "", 0),
        ("failed", "skipped", "", 1),
        ("skipped", "skipped", "it is not plugged in", 0),  # there was nobody to be met
    ],
)
def test_boards_that_were_there_and_did_not_meet_have_not_passed(
    one: str, two: str, absent: str, code: int
) -> None:
    states = {
        "b1": _board("b1", {}, {"ping": "passed", "boards_together": one}),
        "b2": _board("b2", {}, {"boards_together": two}, absent=absent),
    }
    assert verdict(states, ["boards_together"]) == code
    assert unmet(states, ["boards_together"]) == (["boards_together"] if code == 3 else [])
