"""The command that does again what failed, and nothing else."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

# With their value. What a re-run must not inherit: which boards and checks, and files of results.
_DROPPED = ("--board", "-b", "--cap", "--checks", "--junit")


def rerun_command(argv: Sequence[str], board: str, checks: Sequence[str], *, on_desk: bool) -> str:
    """Return a command line for one board and its failed ``checks``; with none, for all of it.

    ``argv`` is the command line of the run. Virtual boards that a run starts itself are started
    again as they were: their ids and protocols come from their order.
    """
    words = [*_program(argv[0]), *_without(argv[1:], on_desk)]
    if on_desk:
        words += ["--board", board]
    if checks:
        words += ["--checks", ",".join(checks)]
    return shlex.join(words)


def _program(word: str) -> list[str]:
    if Path(word).name != "__main__.py":
        return [word]
    return [sys.executable, "-m", Path(word).parent.name]


def _without(words: Sequence[str], on_desk: bool) -> list[str]:
    dropped = _DROPPED if on_desk else ("--checks", "--junit")
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in dropped:
            skip = True
        elif not word.startswith(tuple(f"{name}=" for name in dropped if name.startswith("--"))):
            if "-b" in dropped and word.startswith("-b") and not word.startswith("--"):
                continue
            kept.append(word)
    return kept
