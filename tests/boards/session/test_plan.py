"""Which boards a run takes."""

import pytest

from boards.inventory.models import virtual_models
from boards.session.plan import STEP_LIMITS_S, STEPS, BoardPlan, Job, PlanError, plan_boards


def test_boards_get_ids_and_protocols_alternate_within_a_kind() -> None:
    plans = plan_boards(["rp2040:2", "esp32:1"], virtual_models())
    assert [(plan.id, plan.model, plan.protocol) for plan in plans] == [
        ("vpico-1", "virtual-rp2040", "fmqp"),
        ("vpico-2", "virtual-rp2040", "lightmq"),
        ("vesp32-1", "virtual-esp32", "fmqp"),
    ]


def test_boards_on_a_uart_have_every_pair_of_protocol_and_mode() -> None:
    plans = plan_boards(["rp2040:4"], virtual_models())
    pairs = {(plan.protocol, "reliable" in plan.has, "raw" in plan.has) for plan in plans}
    assert pairs == {
        ("fmqp", False, True),
        ("lightmq", True, False),
        ("fmqp", True, False),
        ("lightmq", False, True),
    }


def test_a_kind_named_twice_goes_on_counting() -> None:
    plans = plan_boards(["rp2040", "rp2040:2"], virtual_models())
    assert [plan.id for plan in plans] == ["vpico-1", "vpico-2", "vpico-3"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("avr:1", "no virtual board 'avr'; there are esp32, rp2040"),
        ("rp2040:0", "COUNT from 1 to 64"),
        ("rp2040:many", "KIND:COUNT"),
        ("rp2040:-1", "KIND:COUNT"),
        ("rp2040:65", "COUNT from 1 to 64"),
    ],
)
def test_nonsense_is_refused_with_what_would_do(text: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        plan_boards([text], virtual_models())


def test_the_total_is_bounded() -> None:
    with pytest.raises(PlanError, match="66 boards"):
        plan_boards(["rp2040:33", "esp32:33"], virtual_models())


def test_a_job_survives_its_journey_as_a_line() -> None:
    job = Job(
        board=BoardPlan("vpico-1", "virtual-rp2040", "fmqp", has=frozenset({"serial", "raw"})),
        image="a.uf2",
        node_dir="node",
        state_dir="state",
        rig_dir="rig",
        log_dir="logs",
        fmqp="127.0.0.1:1",
        lightmq="127.0.0.1:2",
        keep_flash=True,
        force=False,
        trust_ledger=True,
        flash_parallel=4,
        retries=1,
        fw_sha="f",
        client_sha="c",
        limits_s=STEP_LIMITS_S,
        checks=("ping", "heap_free"),
    )
    line = job.to_json()
    assert "\n" not in line
    assert Job.from_json(line) == job


def test_every_step_has_a_limit() -> None:
    assert set(STEP_LIMITS_S) == set(STEPS)
