"""How long the rig waits for a worker."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from boards.session.plan import STEP_LIMITS_S, BoardPlan, Job
from boards.session.worker_pool import WorkerPool, _Member


@pytest.fixture
def said() -> Iterator[tuple[WorkerPool, _Member]]:
    """A worker that says what its stdin is given."""
    with subprocess.Popen(
        [sys.executable, "-c", "import shutil, sys; shutil.copyfileobj(sys.stdin, sys.stdout)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        yield WorkerPool([]), _Member(_job(), process, time.monotonic())
        process.kill()


def _job() -> Job:
    names = ("image", "node_dir", "state_dir", "rig_dir", "log_dir", "fmqp", "lightmq")
    return Job(
        board=BoardPlan("b", "virtual-esp32", "fmqp"),
        **dict.fromkeys(names, ""),
        keep_flash=False,
        force=False,
        trust_ledger=False,
        flash_parallel=1,
        retries=1,
        fw_sha="",
        client_sha="",
        limits_s=STEP_LIMITS_S,
    )


def _say(member: _Member, *messages: dict[str, object]) -> None:
    assert member.process.stdin is not None
    member.process.stdin.write(b"".join(json.dumps(one).encode() + b"\n" for one in messages))
    member.process.stdin.close()


def test_a_worker_that_revives_its_board_gets_time_for_that(
    said: tuple[WorkerPool, _Member],
) -> None:
    pool, member = said
    started = {"kind": "event", "event": "step_started", "step": "flash", "limit_s": 1.0}
    _say(member, started, {"kind": "time", "limit_s": 100.0})
    heard = []
    while len(heard) < 1:
        heard += pool._read(member)
    assert [one["kind"] for one in heard] == ["event"]
    assert member.give_up_at > time.monotonic() + 90
