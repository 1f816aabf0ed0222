"""What a check came to: a verdict on the board, or none because the rig could not do its part."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from traceback import extract_tb

from boards.checks.declared import Check, Measurement, Samples
from boards.checks.limits import beyond
from boards.errors import RigError
from boards.repl import NoReply
from boards.reports.axes import amount, percentile
from boards.session.board_session import AgentError, BoardSession, CheckFailed, Invalid, NotRun
from host_broker.client import ClientError


class StepFailed(RigError):
    """A step came to nothing; the text says why."""


# What may go wrong around a board without being a verdict on the code under test.
FAULTS = (RigError, ClientError, OSError)
VERDICTS = (CheckFailed, AgentError, AssertionError)
_REASONS = 3  # of repetitions that failed


@dataclass(frozen=True, slots=True)
class Result:
    """``outcome``: passed, failed or error. ``fault``: of the rig, then no check goes on."""

    outcome: str
    message: str
    samples: list[Samples]
    fault: Exception | None = None


def judge(check: Check, board: BoardSession, limits: Mapping[str, float]) -> Result:
    """Do a check once. Raises ``NotRun``; ``limits`` are those of the board's file."""
    try:
        samples = _measured(check.run(board))
    except (*VERDICTS, NoReply) as error:
        if ended := board.ended_broker:
            return Result("error", f"{ended} ({error})", [])
        if isinstance(error, NoReply):
            # The board accepted a call and never came back: that is the code's fault to explain.
            return Result("failed", f"the board hung: {error}", [])
        return Result("failed", str(error) or _line(error), [])
    except Invalid as error:
        return Result("error", f"invalid: {error}", [])
    except FAULTS as error:
        return Result("error", f"{type(error).__name__}: {error}", [], error)
    except (NotRun, KeyboardInterrupt):
        raise
    except BaseException as error:
        # A mistake in a check, of a user's own for one. sys.exit() and pytest.fail() raise no
        # Exception: the worker would end, and with it whatever is left to do for the board.
        return Result("error", f"{type(error).__name__}: {error} ({_line(error)})", [])
    texts = [beyond(each.of.limit, limits, each.values) for each in samples]
    message = "; ".join(filter(None, texts))
    return Result("failed" if message else "passed", message, samples)


def _measured(returned: object) -> list[Samples]:
    """Return the samples that a check returned, as numbers. Raises ``Invalid`` for other things."""
    if returned is None:
        return []
    if not isinstance(returned, list | tuple):
        raise Invalid(f"the check returned {returned!r:.80}, not a list of Samples, or nothing")
    if wrong := [each for each in returned if not isinstance(each, Samples)]:
        raise Invalid(f"the check returned a list with {wrong[0]!r:.80}, which is no Samples")
    found = [Samples(each.of, [float(value) for value in each.values]) for each in returned]
    for each in found:
        if not isinstance(each.of, Measurement):
            raise Invalid(f"the check returned Samples of {each.of!r:.80}, which is no Measurement")
        if odd := [value for value in each.values if not math.isfinite(value)]:
            raise Invalid(f"the check measured {each.of.metric} as {odd[0]}, which is no number")
    return found


def _line(error: BaseException) -> str:
    """Return where it was raised, and the code there: what a bare ``assert`` has to say."""
    last = extract_tb(error.__traceback__)[-1]
    return f"{last.filename}:{last.lineno}: {last.line}"


def attempted(once: Callable[[int], str], recover: Callable[[], None], *, tries: int) -> str:
    """Call ``once`` with 1, 2, … until it comes to a verdict, at most ``tries`` times.

    It returns an outcome; "error" is none. After whatever did not pass ``recover`` is called.
    Returns the last outcome.
    """
    outcome = "error"
    for number in range(1, tries + 1):
        outcome = once(number)
        if outcome != "passed":
            recover()
        if outcome != "error":
            break
    return outcome


class Repeated:
    """The same check ``count`` times, judged as one.

    A failure does not end it: what all of them measured is the answer. An error does; when it is
    run again, only those are done that came to no verdict.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._done = 0
        self._failures: list[str] = []
        self._values: dict[str, Samples] = {}  # metric -> all that was measured so far

    def run(
        self,
        once: Callable[[], Result],
        recover: Callable[[], None],
        progress: Callable[[str], None],
    ) -> Result:
        """Do the rest; ``recover`` is called after a failure if another one follows."""
        if self._count == 1:
            return once()
        while self._done < self._count:
            number = self._done + 1
            progress(f"{number}/{self._count}")
            result = once()
            for each in result.samples:
                known = self._values.get(each.of.metric)
                values = [*(known.values if known else ()), *each.values]
                self._values[each.of.metric] = Samples(each.of, values)
            if result.outcome == "error":
                message = f"time {number} of {self._count}: {result.message}"
                return Result("error", message, list(self._values.values()), result.fault)
            self._done = number
            if result.outcome != "passed":
                self._failures.append(f"time {number}: {result.message}")
                if number < self._count:
                    recover()
        outcome = "failed" if self._failures else "passed"
        return Result(outcome, self._text(), list(self._values.values()))

    def _text(self) -> str:
        parts = [f"{self._count} times"]
        if self._failures:
            parts[0] = f"{len(self._failures)} of {self._count} failed"
            parts += self._failures[:_REASONS]
        for each in self._values.values():
            least, median, most = (
                amount(percentile(each.values, percent), each.of.unit) for percent in (0, 50, 100)
            )
            parts.append(f"{each.of.metric} {least} to {most}, median {median}")
        return "; ".join(parts)
