"""A board's limits."""

from dataclasses import replace
from pathlib import Path

from boards.checks.limits import HEAP_FREE, RTT_P99, beyond
from boards.virtual.board import VirtualBoard
from tests.boards.desk_files import running_esp32, write_rig, write_virtual
from tests.boards.rig_process import Broker, outcomes, rows, run_rig

_RTT = [1000.0] * 98 + [50_000.0] * 2  # µs


def test_the_slowest_of_a_hundred_counts() -> None:
    assert beyond(RTT_P99, {}, _RTT) == ""
    assert beyond(RTT_P99, {"rtt_p99_ms": 60.0}, _RTT) == ""
    said = beyond(RTT_P99, {"rtt_p99_ms": 10.0}, _RTT)
    assert said == "RTT p99 is 50 ms, rtt_p99_ms says at most 10"
    assert beyond(RTT_P99, {"rtt_p99_ms": 0.0}, []) == ""
    assert beyond(None, {"rtt_p99_ms": 0.0}, _RTT) == ""


def test_free_heap_has_a_least() -> None:
    assert beyond(HEAP_FREE, {}, [0.0]) == ""
    assert beyond(HEAP_FREE, {"heap_free_min": 100.0}, [100.0]) == ""
    said = beyond(HEAP_FREE, {"heap_free_min": 100.0}, [120.0, 99.0])
    assert said == "free heap is 99 bytes, heap_free_min says at least 100"


def test_a_check_has_a_limit_of_its_own_that_a_board_may_widen() -> None:
    limit = replace(RTT_P99, default=5.0)
    assert "at most 5" in beyond(limit, {}, _RTT)
    assert beyond(limit, {"rtt_p99_ms": 50.0}, _RTT) == ""


def test_a_board_beyond_its_limits_fails(broker: Broker, tmp_path: Path) -> None:
    rig = write_rig(tmp_path)
    board: VirtualBoard
    with running_esp32(tmp_path / "e1", "e1") as board:
        path = write_virtual(tmp_path, board)
        limits = "[limits]\nrtt_p99_ms = 0.000001\nheap_free_min = 1000000000\n"
        path.write_text(path.read_text() + limits)
        out = tmp_path / "out"
        checks = ("--checks", "pubsub_up,ping,heap*")
        result = run_rig(out, broker, "--rig", str(rig), *checks)
    assert result.returncode == 1, result.stdout
    checks = outcomes(out, "e1", "check_finished", "check")
    assert checks == {"pubsub_up": "passed", "ping": "failed", "heap_free": "failed"}
    assert "rtt_p99_ms says at most 1e-06" in result.stdout
    assert "bytes, heap_free_min says at least 1e+09" in result.stdout
    limits = {row["metric"]: row["limit"] for row in rows(out, "samples.jsonl")}
    assert limits == {"rtt": 0.001, "heap_free": 1e9}  # in the samples' own units
    assert outcomes(out, "e1", "step_finished", "step")["telemetry"] == "passed"
