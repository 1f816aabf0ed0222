"""A broker and virtual boards that stay up while the rig runs again and again."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.rig.runs import Run, read_run

_UP_S = 300.0
_RUN_S = 1800.0
_STOP_S = 60.0
_HEALTHY = ("vesp32-", "vpico-")  # ids of boards without a fault begin so
_RECOVERING = ("slow-", "flaky-")  # fault boards that pass in the end


class Desk:
    """What is up. ``environment`` is that of every command of the rig."""

    def __init__(self, folder: Path, broker: str, environment: Mapping[str, str]) -> None:
        self._folder, self._broker, self._environment = folder, broker, environment

    def run(self, out: Path, checks: str | None) -> Run:
        """Run the rig once. Raises ``KeyboardInterrupt`` when that is stopped."""
        arguments = ["--rig", str(self._folder / "rig.toml"), "--trust-ledger"]
        arguments += ["--fmqp", self._broker, "--lightmq", self._broker, "--out", str(out)]
        if checks is not None:
            arguments += ["--checks", checks]
        began = time.monotonic()
        process = subprocess.Popen(
            _motemq("rig", "run", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environment,
        )
        try:
            code = process.wait(_RUN_S)
        except BaseException:
            process.terminate()
            process.wait(_STOP_S)
            raise
        return read_run(out, code, time.monotonic() - began, _HEALTHY, _RECOVERING)


@contextmanager
def up(folder: Path, virtual: tuple[str, ...]) -> Iterator[Desk]:
    """Start a broker and the boards; stop all of them at the end."""
    (folder / "rig.toml").write_text('name = "runs"\nvirtual = true\n')
    environment = {**os.environ, "MOTEMQ_RUNTIME_DIR": str(folder / "runtime")}
    with subprocess.Popen(
        _motemq("broker", "--ephemeral", "--listen", "auto://127.0.0.1:0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # Ctrl-C is ours; it ends when the boards have
    ) as broker:
        try:
            if broker.stdout is None:
                raise ValueError("the broker's stdout is a pipe")
            address = broker.stdout.readline().split()[2]
            try:
                _rig(environment, "virtual", "up", *virtual)
                yield Desk(folder, address, environment)
            finally:
                _rig(environment, "virtual", "down")
        finally:
            broker.terminate()


def _rig(environment: Mapping[str, str], *arguments: str) -> None:
    subprocess.run(
        _motemq("rig", *arguments),
        check=True,
        timeout=_UP_S,
        env=environment,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def _motemq(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "motemq", *arguments]
