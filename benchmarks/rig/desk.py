"""Virtual boards that stay up while the rig runs again and again."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.rig.runs import Run, read_run

_UP_S = 1800.0  # MicroPython is built at the first time, perhaps on a busy machine
_RUN_S = 1800.0
_STOP_S = 60.0
_HEALTHY = ("vesp32-", "vpico-", "vpicow-")  # ids of boards without a fault begin so
_RECOVERING = ("slow-", "flaky-")  # fault boards that pass in the end


# Two on a network, one whose only cable is its console, one behind the reliable link of a UART.
LAN_BOARDS = ("esp32:1", "rp2040w:1", "rp2040:2")
# What these have else than the desk gives them: of each protocol two, one with a single cable.
_ELSE = {
    "vpicow-1": ('protocol = "fmqp"', 'protocol = "lightmq"'),
    "vpico-1": ('mode = "raw"', 'transport = "console"'),
}
_POWER_CUT = "will_power"
# Of each kind one that speaks FMQP and one that speaks LightMQ.
CABLE_BOARDS = ("rp2040:2", "esp32:2")


class Desk:
    """What is up. ``environment`` is that of every command of the rig."""

    def __init__(
        self,
        rig: Path,
        broker: Sequence[str],
        environment: Mapping[str, str],
        demanded: tuple[str, ...] = (),
    ) -> None:
        self._rig, self._broker, self._environment = rig, broker, environment
        self._demanded = demanded

    def run(self, out: Path, checks: str | None) -> Run:
        """Run the rig once. Raises ``KeyboardInterrupt`` when that is stopped."""
        arguments = ["--rig", str(self._rig), "--trust-ledger", *self._broker, "--out", str(out)]
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
        seconds = time.monotonic() - began
        return read_run(out, code, seconds, _HEALTHY, _RECOVERING, self._demanded)


@contextmanager
def up(folder: Path, virtual: Sequence[str]) -> Iterator[Desk]:
    """Start a broker and the boards; stop all of them at the end."""
    rig = folder / "rig.toml"
    rig.write_text('name = "runs"\nvirtual = true\n')
    with _broker() as address, _boards(folder, *virtual) as environment:
        yield Desk(rig, ["--fmqp", address, "--lightmq", address], environment)


@contextmanager
def cable_up(folder: Path) -> Iterator[Desk]:
    """Start four boards whose only way to a broker is the line of their REPL."""
    rig = folder / "desk" / "rig.toml"
    (rig.parent / "boards").mkdir(parents=True)
    rig.write_text('name = "cable"\n')
    with _boards(folder, *CABLE_BOARDS) as environment:
        for path in sorted((folder / "runtime" / "desk").glob("*.toml")):
            kept = [row for row in path.read_text().splitlines() if not row.startswith("mode = ")]
            kept.insert(kept.index("[link]") + 1, 'transport = "console"')
            (rig.parent / "boards" / path.name).write_text("\n".join(kept) + "\n")
        yield Desk(rig, [], environment)


@contextmanager
def lan_up(folder: Path, loss: float) -> Iterator[Desk]:
    """Start the four boards of a desk on a LAN; ``loss``: of the frames, 0 to 1, each way.

    Each run starts a broker of its own, where the boards reach it.
    """
    rig = folder / "desk" / "rig.toml"
    (rig.parent / "boards").mkdir(parents=True)
    rig.write_text('name = "lan"\n')
    with _boards(folder, "--lan", *LAN_BOARDS) as environment:
        for path in sorted((folder / "runtime" / "desk").glob("*.toml")):
            text = path.read_text()
            if "ssid = " in text:
                _rig(environment, "virtual", "link", path.stem, "--loss", str(loss))
            if path.stem in _ELSE:
                text = text.replace(*_ELSE[path.stem])
            (rig.parent / "boards" / path.name).write_text(text)
        yield Desk(rig, [], environment, (_POWER_CUT,))


@contextmanager
def _boards(folder: Path, *wanted: str) -> Iterator[Mapping[str, str]]:
    environment = {**os.environ, "MOTEMQ_RUNTIME_DIR": str(folder / "runtime")}
    try:
        _rig(environment, "virtual", "up", *wanted)
        yield environment
    finally:
        _rig(environment, "virtual", "down")


@contextmanager
def _broker() -> Iterator[str]:
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
            yield broker.stdout.readline().split()[2]
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
