"""What is known of one board while a run lasts."""

import time
from dataclasses import dataclass, field

from boards.session.plan import STEPS, Job

_FAULTS = ("error", "invalid")


@dataclass(slots=True)
class BoardState:
    """One board: what it does now, how everything before it ended, what was measured."""

    job: Job
    model: str
    virtual: bool
    step: str = ""
    check: str = ""
    detail: str = ""  # of the step, in the words of a tool
    since_s: float = field(default_factory=time.monotonic)  # of the step or check
    started_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None
    outcome: str = ""  # of the board, once it is done
    steps: dict[str, str] = field(default_factory=dict)  # step -> outcome
    checks: dict[str, str] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)  # check -> the first thing it measured
    rtt_us: list[float] = field(default_factory=list)
    retries: int = 0
    absent: str = ""  # why a board that need not be there is not
    failures: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # check -> why it was not run
    flaky: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)  # what checks that were repeated came to

    @property
    def id(self) -> str:
        """The board's id."""
        return self.job.board.id

    @property
    def called(self) -> str:
        """The id, and that it is virtual if it is."""
        return f"{self.id} (virtual)" if self.virtual else self.id

    @property
    def state(self) -> str:
        """One word: how it ended, or how it goes."""
        if self.outcome:
            return self.outcome
        outcomes = {*self.steps.values(), *self.checks.values()}
        return next((bad for bad in ("failed", *_FAULTS) if bad in outcomes), "running")

    @property
    def elapsed_s(self) -> float:
        """Seconds since its beginning, until its end."""
        return (self.ended_s or time.monotonic()) - self.started_s

    def remaining(self) -> list[str]:
        """Return the steps and checks that are still to come, the current one first."""
        names: list[str] = []
        for step in STEPS:
            if step in self.steps:
                continue
            checks = [name for name in self.job.checks if name not in self.checks]
            names += checks if step == "check" and self.job.checks else [step]
        return names
