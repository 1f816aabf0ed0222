"""A job for one board, as a run's parent would write it."""

from pathlib import Path
from typing import Any

from boards.session.plan import BoardPlan, Job
from tests.boards.rig_process import Broker


def job_for(board: BoardPlan, broker: Broker, folder: Path, **more: Any) -> Job:
    known: dict[str, Any] = {
        "board": board,
        "image": "",
        "node_dir": str(folder),
        "state_dir": str(folder),
        "rig_dir": str(folder),
        "log_dir": str(folder),
        "fmqp": broker.fmqp,
        "lightmq": broker.lightmq,
        "keep_flash": False,
        "force": False,
        "trust_ledger": False,
        "flash_parallel": 1,
        "retries": 0,
        "fw_sha": "",
        "client_sha": "",
        "limits_s": {},
    }
    return Job(**known | more)
