"""Lines that break, on emulated boards behind both kinds of bridge: every cause is proven."""

import json
from pathlib import Path

from tests.boards.rig_process import Broker, outcomes, rows, run_rig

_CHECKS = ["baseline", "ping_lost", "reconnect_rst", "will_rst", "will_power"]


def test_boards_behind_bridges_come_back_and_leave_wills(broker: Broker, tmp_path: Path) -> None:
    checks = ",".join(_CHECKS)
    result = run_rig(tmp_path, broker, "--virtual", "rp2040:2", "--checks", checks)
    assert result.returncode == 0, result.stdout
    samples = rows(tmp_path, "samples.jsonl")
    for board in ("vpico-1", "vpico-2"):  # raw, reliable
        found = outcomes(tmp_path, board, "check_finished", "check")
        assert found == dict.fromkeys(_CHECKS, "passed")
        metrics = {row["metric"] for row in samples if row["board_id"] == board}
        assert metrics == {
            *("baseline_rtt", "baseline_rate", "ping_noticed", "reconnect"),
            *("will_delay", "will_earliest", "will_latest"),
        }
    log = (tmp_path / "logs" / "proxy.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in log]
    assert {row["route"] for row in events} == {"vpico-1", "vpico-2"}
    assert [row["how"] for row in events if row["event"] == "cut" and row["count"]]
