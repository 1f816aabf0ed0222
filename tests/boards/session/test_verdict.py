"""From outcomes to an exit code."""

import pytest

from boards.reports.board_state import BoardState
from boards.session.plan import STEP_LIMITS_S, BoardPlan, Job
from boards.session.run import verdict


def _board(id: str, steps: dict[str, str], checks: dict[str, str]) -> BoardState:
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
    )
    return BoardState(job, "virtual-rp2040", True, steps=steps, checks=checks)


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
    ],
)
def test_verdict(boards: list[tuple[dict[str, str], dict[str, str]]], code: int) -> None:
    states = {f"b{number}": _board(f"b{number}", *board) for number, board in enumerate(boards)}
    assert verdict(states) == code
