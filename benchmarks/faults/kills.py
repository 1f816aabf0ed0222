"""Kill parts of a pipeline at random moments under load, then count."""

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults import count
from benchmarks.faults.load import Load
from benchmarks.faults.processes import Broker, Pipeline

DRIVER, EXECUTOR, BROKER = "driver", "executor", "broker"
_CLUSTER = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.memory": "512m",
    # Spark gives up after so many falls of one task, or of executors in a row; here they are meant.
    "spark.task.maxFailures": "100",
    "spark.deploy.maxExecutorRetries": "-1",
}
_NO_EXECUTOR_S = 120.0


@dataclass(frozen=True, slots=True)
class Result:
    """What was killed, what was published, and how the tables count."""

    kills: dict[str, int]
    sent: int
    bronze: count.Count
    silver: count.Count
    seconds: float

    @property
    def exact(self) -> bool:
        """Whether nothing was lost and nothing doubled."""
        broker_fell = self.kills.get(BROKER, 0) > 0
        # A broker that is killed may take with it what it had not yet written.
        return (
            self.bronze.exact
            and self.silver.exact
            and (broker_fell or self.silver.journal == self.sent)
        )


def run(
    victims: Sequence[str],
    rate: float,
    chance: random.Random,
    tell: Callable[[str], None],
    longest_s: float = 5.0,
) -> Result:
    """Kill ``victims`` one after the other, up to ``longest_s`` after the one before is at work.

    ``rate``: messages a second. Raises ``processes.Failed``.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="motemq-faults-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        broker = Broker(folder / "data", "--set", "journal.segment_bytes=262144")
        pipeline = Pipeline(folder, broker.port, _CLUSTER if EXECUTOR in victims else {})
        load = Load(broker.port, rate)
        try:
            pipeline.start()
            for number, victim in enumerate(victims, start=1):
                wait_s = chance.uniform(0.0, longest_s)
                tell(f"{number} of {len(victims)}: {victim}, after {wait_s:.1f} s")
                time.sleep(wait_s)
                pipeline.runs()
                _kill(victim, broker, pipeline, chance)
            sent = load.end()
            messages = count.complete(folder / "data" / "journal", load.newest)
            pipeline.finish(lambda: count.up_to_date(messages, pipeline.tables))
            kills = {victim: victims.count(victim) for victim in dict.fromkeys(victims)}
            return Result(
                kills,
                sent,
                count.bronze(messages, pipeline.tables),
                count.silver(messages, pipeline.tables),
                time.monotonic() - began,
            )
        finally:
            load.end()
            pipeline.end()
            broker.end()


def _kill(victim: str, broker: Broker, pipeline: Pipeline, chance: random.Random) -> None:
    if victim == BROKER:
        broker.kill()
    elif victim == DRIVER:
        pipeline.kill()
        pipeline.start()
    else:
        deadline = time.monotonic() + _NO_EXECUTOR_S
        while not pipeline.kill_an_executor(chance.random()):
            if time.monotonic() > deadline:
                raise RuntimeError("the pipeline has no executors")
            time.sleep(0.05)
