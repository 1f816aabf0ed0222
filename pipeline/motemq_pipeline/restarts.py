"""When a query that failed is started again, and when its failure ends the run.

A query goes on from its checkpoint, so starting it again loses and doubles nothing. What helps
against the passing faults of Spark: an executor that is lost, a Python that did not start within
ten seconds on a busy machine, threads of Spark that stumble over each other. It does not help
against what a person must mend, which our own errors say. A broker or an object store that does not
answer is waited for, however long, unless the run is to end (``patient``).
"""

from dataclasses import dataclass

from motemq_pipeline.failures import is_ours, is_unavailable

IN_A_ROW = 5  # failures without a finished batch between them
_SLOW = "Python worker failed to connect back"
_SLOW_IN_A_ROW = 30  # of a machine that has much else to do
_PAUSE_S = 1.0  # before the first start, then twice as long each time
_PAUSE_MAX_S = 15.0


@dataclass(slots=True)
class Restarts:
    """Of one query. ``count``: how often it was started again."""

    patient: bool = True
    count: int = 0
    _in_a_row: int = 0
    _slow_in_a_row: int = 0
    _away_in_a_row: int = 0
    _batch: int | None = None
    _due: float | None = None

    def failed(self, text: str, batch: int | None, now: float) -> bool:
        """Note a failure with these words; return whether the query may be started again.

        ``batch``: the last one that its checkpoint says is finished, None before the first.
        ``now``: monotonic, in seconds. Told again of a failure that waits, it says True.
        """
        if self._due is not None:
            return True
        if batch != self._batch:
            self._batch = batch
            self._in_a_row = self._slow_in_a_row = self._away_in_a_row = 0
        if is_ours(text):
            return False
        if self.patient and is_unavailable(text):
            self._away_in_a_row += 1
        elif _SLOW in text:
            self._slow_in_a_row += 1
        else:
            self._in_a_row += 1
        if self._in_a_row >= IN_A_ROW or self._slow_in_a_row >= _SLOW_IN_A_ROW:
            return False
        times = min(max(self._in_a_row, self._away_in_a_row, 1), 10)
        self._due = now + min(_PAUSE_S * 2 ** (times - 1), _PAUSE_MAX_S)
        return True

    def due(self, now: float) -> bool:
        """Return whether it is time to start the query, which counts as a start."""
        if self._due is None or now < self._due:
            return False
        self._due = None
        self.count += 1
        return True
