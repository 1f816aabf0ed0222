"""Former runs in the same output folder."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from boards.reports.record import RunRecord, read_run

FORMER = 20  # how many runs a report looks back on
_EVENTS = "events.jsonl"


class NoRun(Exception):
    """There is no such run; the text says what was looked for."""


def all_runs(out: Path) -> list[Path]:
    """Return the folders of all runs below the ``--out`` of ``rig run``, oldest first."""
    found = (out / "rig").glob(f"date=*/rig=*/run=*/{_EVENTS}")
    return [file.parent for file in sorted(found, key=lambda file: file.parent.name)]


def find_run(place: Path) -> Path:
    """Return a run's folder: ``place`` itself, or the last run below it.

    Raises ``NoRun``.
    """
    if (place / _EVENTS).is_file():
        return place
    runs = all_runs(place)
    if not runs:
        raise NoRun(
            f"{place}: neither a run's folder nor the --out of one; 'motemq rig run' makes one"
        )
    return runs[-1]


def runs_before(folder: Path, count: int) -> list[Path]:
    """Return the last ``count`` runs of the same rig before the one in ``folder``, oldest first.

    They are looked for where ``rig run`` puts them; elsewhere there are none.
    """
    parts = folder.absolute().parts
    if count <= 0 or len(parts) < 4 or parts[-4] != "rig":
        return []
    out = Path(*parts[:-4])
    same = [run for run in all_runs(out) if run.parent.name == parts[-2]]
    return [run for run in same if run.name < parts[-1]][-count:]


def read_runs(folders: Sequence[Path], *, samples: bool = True) -> list[RunRecord]:
    """Read the runs; one that went away meanwhile is left out."""
    runs = []
    for folder in folders:
        try:
            runs.append(read_run(folder, samples=samples))
        except FileNotFoundError:
            continue
    return runs


def usual_seconds(runs: Sequence[RunRecord]) -> dict[tuple[str, str], float]:
    """Return how long each step and check of each board usually takes, by (board, name)."""
    taken: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        for board in run.boards.values():
            for interval in board.last().values():
                if interval.outcome == "passed":
                    taken.setdefault((board.id, interval.name), []).append(interval.seconds)
    return {key: median(values) for key, values in taken.items()}
