"""The command that does again what failed, and nothing else."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path


def rerun_command(argv: Sequence[str], boards: Sequence[str], checks: Sequence[str]) -> str:
    """Return the command line ``argv`` for ``boards`` of the desk and for ``checks`` only.

    No ``checks`` leaves the choice of ``argv``; no ``boards`` too: virtual boards that a run starts
    itself are started again as they were, as their ids and protocols come from their order.
    """
    dropped = ["--junit"]  # else the results of everything would be written over
    dropped += ["--checks"] if checks else []
    dropped += ["--board", "-b", "--cap"] if boards else []
    words = [*_program(argv[0]), *_without(argv[1:], dropped)]
    for board in boards:
        words += ["--board", board]
    if checks:
        words += ["--checks", ",".join(checks)]
    return shlex.join(words)


def _program(word: str) -> list[str]:
    if Path(word).name != "__main__.py":
        return [word]
    return [sys.executable, "-m", Path(word).parent.name]


def _without(words: Sequence[str], dropped: Sequence[str]) -> list[str]:
    """Leave options out with their values: ``--name value``, ``--name=value``, ``-nvalue``."""
    joined = tuple(f"{name}=" if name.startswith("--") else name for name in dropped)
    kept, skip = [], False
    for word in words:
        if not skip and word not in dropped and not word.startswith(joined):
            kept.append(word)
        skip = not skip and word in dropped
    return kept
