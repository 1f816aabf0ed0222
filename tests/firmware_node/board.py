"""A board without the hardware: the unix port in a folder that is the board's filesystem."""

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Reads "STEP {json}" lines, as the rig's raw REPL would call the agent.
_STEPS = """
import sys
import agent
for line in sys.stdin:
    name, _, arguments = line.strip().partition(" ")
    agent.run(name, arguments)
"""
_DEADLINE_S = 40.0


@dataclass
class Board:
    """``command`` starts the interpreter; ``folder`` holds lib/, node, agent, node.json."""

    command: list[str]
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def configure(self, **settings: Any) -> None:
        """Write node.json."""
        (self.folder / "node.json").write_text(json.dumps(settings))

    def start(self, script: str) -> subprocess.Popen[str]:
        """Start a script of the board's folder."""
        return subprocess.Popen(
            [*self.command, script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env={"MICROPYPATH": "lib:.frozen", **self.environment},
        )

    def console(self, script: str = "main.py") -> list[str]:
        """Run a script to its end; return the lines it printed."""
        with self.start(script) as process:
            try:
                text, _ = process.communicate(timeout=_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return text.splitlines()


class AgentProcess:
    """The agent running on a board; context manager. ``kill`` is the board's sudden death."""

    def __init__(self, board: Board) -> None:
        # Another agent of the same board may be reading it.
        unborn = board.folder / "steps.py.new"
        unborn.write_text(_STEPS)
        unborn.replace(board.folder / "steps.py")
        self._process = board.start("steps.py")
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> "AgentProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def step(
        self, name: str, on_ready: Callable[[], None] | None = None, **arguments: Any
    ) -> dict[str, Any]:
        """Run one step; return its result line, whatever it says."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name} {json.dumps(arguments)}\n")
        self._process.stdin.flush()
        until = time.monotonic() + _DEADLINE_S
        other = []
        while True:
            line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
            if line is None:
                raise AssertionError(f"the agent ended in step {name}: {other}")
            if line == "AGENT-READY":
                if on_ready is not None:
                    on_ready()
            elif line.startswith("AGENT {"):
                result = json.loads(line.removeprefix("AGENT "))
                assert isinstance(result, dict)
                assert other == []
                return result
            else:
                other.append(line)

    def kill(self) -> None:
        """End the process as a power cut would."""
        self._process.kill()
