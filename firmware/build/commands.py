"""Run a tool with a deadline and a log, and say in one line what went wrong."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_STOP_S = 5.0
_TAIL_BYTES = 16384
_CAUSE = re.compile(r"(?i)\b(error|cannot|can't|failed|unable|not found|no space left)\b")
_REMEDIES = {
    "No space left on device": "free some disk space, or set MOTEMQ_CACHE to a larger disk",
    "Temporary failure resolving": "check the network, then run the command again",
    "Could not connect": "check the network and apt's mirror, then run the command again",
    "Hash Sum mismatch": "the mirror is being updated; run the command again in some minutes",
}

# Loaded before any fork: a child between fork and exec must not import or allocate much.
_LIBC = ctypes.CDLL(None)


class BuildError(Exception):
    """A build did not succeed; the text says what failed, where its log is, and the remedy."""


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs the tools of one build; everything they print goes to ``log``."""

    log: Path

    def run(
        self,
        what: str,
        argv: Sequence[str | Path],
        *,
        deadline_s: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Run ``argv`` at low priority; ``what`` names it in the error.

        ``env`` is added to the environment. Raises ``BuildError`` if the tool fails or is not
        done after ``deadline_s`` seconds; no process of it is left in either case.
        """
        command = ["nice", *map(str, argv)]
        with self.log.open("ab") as log:
            log.write(f"\n$ {' '.join(command)}\n".encode())
            log.flush()
            start = log.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**_environment(), **(env or {})},
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
            try:
                code = process.wait(deadline_s)
            except subprocess.TimeoutExpired:
                raise BuildError(
                    f"{what} was not done after {deadline_s:.0f} s and was stopped; "
                    f"log: {self.log}; run the command again to retry"
                ) from None
            finally:
                _end(process)
        if code != 0:
            cause, remedy = self._cause(start)
            raise BuildError(
                f"{what} failed (exit code {code}): {cause}; log: {self.log}; remedy: {remedy}"
            )

    def _cause(self, start: int) -> tuple[str, str]:
        """Return the line of the log after ``start`` that most likely tells why, and a remedy."""
        with self.log.open("rb") as log:
            log.seek(max(start, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
        for sign, remedy in _REMEDIES.items():
            for line in lines:
                if sign in line:
                    return line.strip()[:300], remedy
        # The first complaint is the cause; what follows it is mostly make giving up.
        telling = [line for line in lines if _CAUSE.search(line)] or lines[-1:] or ["no output"]
        return telling[0].strip()[:300], "read the log; 'make setup' installs the tools needed"


def output_of(what: str, argv: Sequence[str], *, deadline_s: float) -> str:
    """Return what a query prints on stdout; raises ``BuildError`` if it fails or takes too long."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            env={**os.environ, "LC_ALL": "C"},
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{what}: '{argv[0]}' did not answer within {deadline_s:.0f} s") from None
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or "no output").strip().splitlines()[-1:]
        raise BuildError(f"{what}: '{argv[0]}' failed: {' '.join(reason)}") from None
    return done.stdout


def require_tools(what: str, tools: Mapping[str, str]) -> None:
    """Raise ``BuildError`` unless every tool (name → Debian package) is installed."""
    missing = {tool: package for tool, package in tools.items() if shutil.which(tool) is None}
    if missing:
        raise BuildError(
            f"{what} needs {', '.join(missing)}, not installed here; run 'make setup' or: "
            f"sudo apt-get install {' '.join(dict.fromkeys(missing.values()))}"
        )


def _environment() -> dict[str, str]:
    """Return ours, without what is meant for our own Python.

    PYTHONSAFEPATH, for one, keeps MicroPython's scripts from importing their neighbours.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return {**kept, "LC_ALL": "C"}


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is not None:
        return
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)  # its own session was made for it
            process.wait(_STOP_S)
            return
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            process.wait(_STOP_S)
            return
