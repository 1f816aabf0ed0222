"""The same check many times: judged by all of them, and what was done is not done again."""

from collections.abc import Callable
from pathlib import Path

from boards.checks.declared import Measurement, Samples
from boards.session.verdicts import Repeated, Result, attempted
from tests.boards.rig_process import Broker, outcomes, rows, run_rig

_DELAY = Measurement("delay", "ms", "lower")


def _good(value: float) -> Result:
    return Result("passed", "", [Samples(_DELAY, [value])])


def _script(*results: Result) -> Callable[[], Result]:
    left = list(results)
    return lambda: left.pop(0)


def _nothing(*_said: str) -> None:
    pass


def test_one_time_is_as_it_was() -> None:
    once = Result("failed", "too late", [])
    assert Repeated(1).run(lambda: once, _nothing, _nothing) is once


def test_all_of_them_are_measured_and_told() -> None:
    said: list[str] = []
    result = Repeated(3).run(_script(_good(5), _good(1), _good(9)), _nothing, said.append)
    assert result.outcome == "passed"
    assert result.message == "3 times; delay 1 ms to 9 ms, median 5 ms"
    assert [(each.of, list(each.values)) for each in result.samples] == [(_DELAY, [5, 1, 9])]
    assert said == ["1/3", "2/3", "3/3"]


def test_a_failure_fails_all_and_the_rest_is_done() -> None:
    recovered: list[int] = []
    bad = Result("failed", "nothing came", [])
    once = _script(_good(5), bad, _good(9), bad)
    result = Repeated(4).run(once, lambda: recovered.append(1), _nothing)
    assert result.outcome == "failed"
    assert result.message == (
        "2 of 4 failed; time 2: nothing came; time 4: nothing came; delay 5 ms to 9 ms, median 7 ms"
    )
    assert recovered == [1]  # after the last one whoever asked does it


def test_after_an_error_only_the_rest_is_done() -> None:
    fault = OSError("the port is gone")
    once = _script(_good(5), Result("error", "no port", [], fault), _good(7), _good(9))
    repeated = Repeated(3)
    results: list[Result] = []

    def attempt(_number: int) -> str:
        results.append(repeated.run(once, _nothing, _nothing))
        return results[-1].outcome

    assert attempted(attempt, _nothing, tries=3) == "passed"
    assert results[0].message == "time 2 of 3: no port" and results[0].fault is fault
    assert list(results[1].samples[0].values) == [5, 7, 9]


def test_a_run_repeats_its_checks_and_says_what_came_of_them(
    broker: Broker, tmp_path: Path
) -> None:
    checks = "will_fin,reconnect_rst,heap_free"
    command = ["--virtual", "esp32:1", "--checks", checks, "--repeat", "4"]
    result = run_rig(tmp_path, broker, *command)
    assert result.returncode == 0, result.stdout
    assert "vesp32-1 will_fin: 4 times; will_delay " in result.stdout
    found = outcomes(tmp_path, "vesp32-1", "check_finished", "check")
    assert found == dict.fromkeys(checks.split(","), "passed")
    counts: dict[str, int] = {}
    for row in rows(tmp_path, "samples.jsonl"):
        counts[row["metric"]] = counts.get(row["metric"], 0) + 1
        assert row["attempt"] == 1
    assert counts == dict.fromkeys(
        ("will_delay", "will_earliest", "will_latest", "reconnect", "heap_free"), 4
    )
