"""Pieces of JavaScript, run in Node with the client by a test in Python."""

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from tests.client_js.node import CLIENT, NODE_OPTIONS, node
from tests.host_broker.net.broker_process import END_S, line_of, spawn

ANSWER_S = 60.0


class JsError(Exception):
    """What a piece of JavaScript has thrown."""

    def __init__(self, said: dict[str, Any]) -> None:
        super().__init__(f"{said['name']}: {said['error']}")
        self.name: str = said["name"]
        self.code: object = said["code"]


class Node:
    """A process of Node; in its programs ``umq`` is the client, ``state`` is theirs."""

    def __init__(self, **variables: str) -> None:
        script = CLIENT / "tests" / "live" / "driver.js"
        variables = {"NODE_OPTIONS": NODE_OPTIONS, **variables}
        given = [f"{name}={value}" for name, value in variables.items()]
        self.process = spawn(["env", *given, str(node().node), str(script)], stdin=subprocess.PIPE)
        self._last = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._told: list[Any] = []

    def start(self, program: str) -> int:
        """Begin a piece; ``result`` waits for its end."""
        self._last += 1
        assert self.process.stdin is not None
        line = json.dumps({"id": self._last, "run": program}) + "\n"
        self.process.stdin.write(line.encode())
        return self._last

    def result(self, number: int) -> Any:
        """Return what a piece has returned. Raises ``JsError``."""
        while number not in self._answers:
            self._read()
        said = self._answers.pop(number)
        if "error" in said:
            raise JsError(said)
        return said["value"]

    def run(self, program: str) -> Any:
        """Run a piece."""
        return self.result(self.start(program))

    def told(self) -> Any:
        """Return the next that a piece tells."""
        while not self._told:
            self._read()
        return self._told.pop(0)

    def told_until(self, is_it: Callable[[Any], bool]) -> Any:
        """Return the first that is told and is the one."""
        while not is_it(told := self.told()):
            pass
        return told

    def _read(self) -> None:
        said = json.loads(line_of(self.process, ANSWER_S))
        if "id" in said:
            self._answers[said["id"]] = said
        else:
            self._told.append(said["told"])


@contextlib.contextmanager
def driven(**variables: str) -> Iterator[Node]:
    """Run Node while the block lasts."""
    running = Node(**variables)
    try:
        yield running
        _, stderr = running.process.communicate(timeout=END_S)  # the end of its input is its end
        assert running.process.returncode == 0, stderr.decode()
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.communicate(timeout=END_S)
