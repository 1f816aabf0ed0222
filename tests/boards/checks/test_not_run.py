"""A check that was chosen and not run is a cell with its reason, in every report."""

from pathlib import Path
from typing import get_args
from xml.etree import ElementTree as ET

import pytest

from boards.checks.declared import _LACKS
from boards.checks.registry import CHECKS
from boards.reports.markdown import markdown
from boards.reports.page import html_page
from boards.reports.record import read_run
from boards.session.plan import Need, Protocol
from tests.boards.rig_process import Broker, outcomes, run_rig


@pytest.mark.parametrize(
    ("check", "protocol", "has", "why"),
    [
        ("ping", "fmqp", set(), ""),
        ("request_up", "fmqp", set(), "it speaks FMQP"),
        ("topics_cache", "lightmq", {"network"}, "it speaks LightMQ"),
        (
            "noise_reliable",
            "fmqp",
            {"serial", "raw"},
            "it is not behind the reliable link of a line of its own",
        ),
        ("boards_together", "fmqp", set(), _LACKS["peer"]),
        ("will_power", "fmqp", {"proxy"}, _LACKS["power"]),
        ("will_power", "fmqp", set(), f"{_LACKS['power']}, {_LACKS['proxy']}"),
    ],
)
def test_why_a_check_makes_no_sense_on_a_board(
    check: str, protocol: Protocol, has: set[Need], why: str
) -> None:
    assert CHECKS[check].why_not(protocol, frozenset(has)) == why


def test_of_every_need_there_is_a_reason() -> None:
    assert set(_LACKS) == set(get_args(Need))


def test_every_report_of_a_run_says_what_was_not_run(broker: Broker, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    chosen = {
        "pubsub_up": "passed",
        "boards_together": "skipped",
        "request_up": "skipped",
        "noise_reliable": "skipped",
    }
    words = ["--virtual", "esp32:1", "--junit", str(junit), "--checks", ",".join(chosen)]
    result = run_rig(tmp_path / "out", broker, *words)
    assert result.returncode == 0, result.stdout
    assert outcomes(tmp_path / "out", "vesp32-1", "check_finished", "check") == chosen
    assert "vesp32-1 did not run request_up: it speaks FMQP" in result.stdout
    assert f"vesp32-1 did not run boards_together: {_LACKS['peer']}" in result.stdout
    (suite,) = ET.parse(junit).getroot()
    skipped = {
        case.get("name"): one.get("message")
        for case in suite.iter("testcase")
        for one in case.iter("skipped")
    }
    assert set(skipped) == {"boards_together", "request_up", "noise_reliable"}
    assert skipped["request_up"] == "it speaks FMQP"
    assert suite.get("skipped") == "3"
    (events,) = (tmp_path / "out").rglob("events.jsonl")
    run = read_run(events.parent)
    assert "- vesp32-1 \\(virtual\\) did not run request\\_up: `it speaks FMQP`" in markdown(run)
    page = html_page(run)
    assert "What was not run" in page
    assert page.count('<span class="tag o-not-run">not run</span>') == 3
    # Nothing of it counts as a failure.
    assert "What did not pass" not in page
