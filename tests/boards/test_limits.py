"""A board's limits."""

from pathlib import Path

from boards.rig.checks import Samples
from boards.rig.limits import beyond, short_of_heap
from boards.virtual.board import VirtualBoard
from tests.boards.desk_files import running_esp32, write_rig, write_virtual
from tests.boards.rig_process import Broker, outcomes, run_rig

_RTT = [Samples("rtt", "us", [1000.0] * 98 + [50_000.0] * 2)]


def test_the_slowest_of_a_hundred_counts() -> None:
    assert beyond({}, _RTT) == ""
    assert beyond({"rtt_p99_ms": 60.0}, _RTT) == ""
    assert beyond({"rtt_p99_ms": 10.0}, _RTT) == "RTT p99 is 50.0 ms, the board's limit is 10 ms"
    assert beyond({"rtt_p99_ms": 0.0}, [Samples("will_delay", "ms", [5.0])]) == ""


def test_free_heap_has_a_least() -> None:
    assert short_of_heap({}, 0) == ""
    assert short_of_heap({"heap_free_min": 100.0}, 100) == ""
    assert "99 bytes of heap are free" in short_of_heap({"heap_free_min": 100.0}, 99)


def test_a_board_beyond_its_limits_fails(broker: Broker, tmp_path: Path) -> None:
    rig = write_rig(tmp_path)
    board: VirtualBoard
    with running_esp32(tmp_path / "e1", "e1") as board:
        path = write_virtual(tmp_path, board)
        limits = "[limits]\nrtt_p99_ms = 0.000001\nheap_free_min = 1000000000\n"
        path.write_text(path.read_text() + limits)
        out = tmp_path / "out"
        result = run_rig(out, broker, "--rig", str(rig))
    assert result.returncode == 1, result.stdout
    checks = outcomes(out, "e1", "check_finished", "check")
    assert checks.pop("ping") == "failed"
    assert set(checks.values()) == {"passed"}
    assert "the board's limit is 1e-06 ms" in result.stdout
    assert "bytes of heap are free after the checks, the board's limit is 1e+09" in result.stdout
    assert outcomes(out, "e1", "step_finished", "step")["telemetry"] == "passed"
