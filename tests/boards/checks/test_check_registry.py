"""Which checks there are, for whom, and how they are chosen."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from boards.checks.limits import LIMITS
from boards.checks.registry import CHECKS, NoSuchCheck, choose
from boards.inventory.models import virtual_models
from boards.session.plan import Need, plan_boards

_DOCS = Path(__file__).parents[3] / "docs"


def test_patterns_choose_in_the_order_of_a_run() -> None:
    chosen, files = choose(["ping", "pubsub_d*, pubsub_up"])
    assert files == []
    assert [check.name for check in chosen] == [
        "pubsub_up",
        "pubsub_down",
        "ping",
    ]
    assert [check.name for check in choose([])[0]] == list(CHECKS)


def test_a_pattern_that_chooses_nothing_is_told_with_what_there_is() -> None:
    with pytest.raises(NoSuchCheck, match=r"no check fits 'pong'; there are pubsub_up, "):
        choose(["ping,pong"])


def test_every_check_says_what_must_be_true_and_what_it_measures() -> None:
    for name, check in CHECKS.items():
        assert re.fullmatch("[a-z][a-z0-9_]*", name)
        assert check.about.endswith("."), name
        assert check.deadline_s >= 10, name
        metrics = [measured.metric for measured in check.measures]
        assert len(metrics) == len(set(metrics)), name


def test_checks_and_limits_are_documented() -> None:
    rig, events = ((_DOCS / name).read_text() for name in ("rig.md", "rig-events.md"))
    assert [name for name in CHECKS if f"`{name}`" not in rig] == []
    metrics = {measured.metric for check in CHECKS.values() for measured in check.measures}
    assert [metric for metric in sorted(metrics) if f"`{metric}`" not in events] == []
    assert [key for key in LIMITS if f"{key} = " not in rig] == []


def test_a_check_goes_where_it_makes_sense_only() -> None:
    pico, other, esp32 = plan_boards(["rp2040:2", "esp32"], virtual_models())
    both: frozenset[Need] = frozenset({"serial", "buttons", "reset", "power", "peer"})
    assert (pico.has - both, pico.protocol) == ({"raw"}, "fmqp")
    assert (other.has - both, other.protocol) == ({"reliable", "lossless"}, "lightmq")
    assert esp32.has == frozenset({"network", "lossless", "buttons", "reset", "power", "peer"})
    (alone,) = plan_boards(["esp32"], virtual_models())
    assert "peer" not in alone.has


def test_a_person_can_ask_which_there_are() -> None:
    command = [sys.executable, "-m", "motemq", "rig", "run", "--list-checks"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(CHECKS)
