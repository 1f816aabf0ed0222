"""Boards in one check, driven by a worker each: good ones, a lonely one, a message that is lost."""

import re
from pathlib import Path

import pytest

from tests.boards.checks.broken_broker import BrokenBroker, Way, body_of, topic_of
from tests.boards.rig_process import Broker, outcomes, rows, run_rig

_TOGETHER = ("--checks", "boards_together")


def _check_step(out: Path, board: str) -> tuple[str, str]:
    (row,) = [
        row
        for row in rows(out, "events.jsonl")
        if (row["event"], row["board_id"], row["step"]) == ("step_finished", board, "check")
    ]
    return row["outcome"], row["message"]


def _skipped(out: Path, board: str) -> dict[str, str]:
    return {
        row["check"]: row["message"]
        for row in rows(out, "events.jsonl")
        if row["board_id"] == board and row["outcome"] == "skipped"
    }


def test_boards_of_both_protocols_exchange_messages(broker: Broker, tmp_path: Path) -> None:
    result = run_rig(tmp_path, broker, "--virtual", "esp32:3", *_TOGETHER)
    assert result.returncode == 0, result.stdout
    for number in (1, 2, 3):
        checks = outcomes(tmp_path, f"vesp32-{number}", "check_finished", "check")
        assert checks == {"boards_together": "passed"}


def test_a_board_whose_partner_has_failed_has_no_verdict_and_waits_for_nobody(
    broker: Broker, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.bin"
    wrong.write_bytes(bytes(4096))
    out = tmp_path / "out"
    image = ("--image", f"vesp32-2={wrong}")
    result = run_rig(out, broker, "--virtual", "esp32:2", *image, *_TOGETHER)
    assert result.returncode == 3, result.stdout
    assert _check_step(out, "vesp32-1") == ("passed", "0 checks, 1 not run")
    for board, why in (("1", "no other board came"), ("2", "step flash had an error")):
        assert _skipped(out, f"vesp32-{board}") == {"boards_together": why}
    assert outcomes(out, "vesp32-1", "board_finished", "event") == {"board_finished": "passed"}


@pytest.mark.parametrize(
    ("way", "loser", "winner"), [("/up", "vesp32-1", "vesp32-3"), ("/down", "vesp32-3", "vesp32-1")]
)
def test_a_lost_message_fails_the_one_that_misses_it(
    broker: Broker, tmp_path: Path, way: str, loser: str, winner: str
) -> None:
    lost = 0

    def loses_one(_way: Way, packet: bytes) -> list[bytes]:
        nonlocal lost
        topic = topic_of(packet)
        if topic.startswith(b"check/together") and topic.endswith(way.encode()):
            lost += bool(body_of(packet))
            return [] if lost == 3 else [packet]
        return [packet]

    with BrokenBroker(broker.fmqp, "fmqp", loses_one) as between:
        broken = Broker(f"127.0.0.1:{between.port}", broker.lightmq)
        result = run_rig(tmp_path, broken, "--virtual", "esp32:3", *_TOGETHER)
    assert result.returncode == 1, result.stdout
    assert _check_step(tmp_path, loser)[0] == "failed"
    outcome, message = _check_step(tmp_path, winner)
    assert outcome == "passed"
    assert message == "0 checks, 1 not run"
    # Which of the two it is depends on how busy the machine is.
    why = _skipped(tmp_path, winner)["boards_together"]
    assert re.match(r"vesp32-. (could not do its part|was not)", why)
