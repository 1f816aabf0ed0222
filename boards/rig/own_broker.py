"""A broker of the rig's own: with short deadlines, and checks may kill it."""

import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from boards.tool import die_with_parent

_START_S = 60.0
_STOP_S = 15.0

# Silence after which this broker takes a client for dead. Long enough for a board that is held up
# (an emulator on a busy machine), short enough for a check.
FMQP_SILENCE_S = 3.0
LIGHTMQ_SILENCE_S = 1.5  # before its PING
LIGHTMQ_PATIENCE_S = 1.5  # for the PONG

_SETTINGS = {
    "fmqp.idle_timeout_s": FMQP_SILENCE_S,
    "lightmq.ping_interval_s": LIGHTMQ_SILENCE_S,
    "lightmq.ping_timeout_s": LIGHTMQ_PATIENCE_S,
    "lightmq.duplicate_client": "takeover",
}
_PROTOCOLS = ("fmqp", "lightmq", "lightmq+fmqp")


class BrokerDown(Exception):
    """The rig's own broker did not start: no verdict can rest on it."""


class OwnBroker:
    """``motemq broker`` on ephemeral ports of ``host``; ``addresses`` has HOST:PORT by protocol.

    It ends with us. ``log`` gets what it says.
    """

    def __init__(self, host: str, log: Path) -> None:
        self.addresses: Mapping[str, str] = {}
        self._host = host
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, on other ports than before. Raises ``BrokerDown``."""
        self.kill()
        host = f"[{self._host}]" if ":" in self._host else self._host
        listen = [f"--listen={protocol}://{host}:0" for protocol in _PROTOCOLS]
        settings = [f"--set={key}={value}" for key, value in _SETTINGS.items()]
        with self._log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "motemq", "broker", "--ephemeral", *listen, *settings],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,  # a line that select() promises must not be in a buffer already
                preexec_fn=die_with_parent,
            )
        until = time.monotonic() + _START_S
        self.addresses = dict(self._listening(until) for _ in _PROTOCOLS)

    def kill(self) -> None:
        """End it as ``kill -9`` does; harmless when it does not run."""
        process, self._process = self._process, None
        if process is not None:
            self.addresses = {}
            process.kill()
            process.wait(_STOP_S)
            if process.stdout is not None:
                process.stdout.close()

    def _listening(self, until: float) -> tuple[str, str]:
        stdout = self._process.stdout if self._process is not None else None
        if stdout is None:
            raise BrokerDown("the broker's output is not a pipe")
        ready, _, _ = select.select([stdout], [], [], max(0.0, until - time.monotonic()))
        words = stdout.readline().decode().split() if ready else []
        if len(words) != 3 or words[0] != "listening":
            self.kill()
            raise BrokerDown(f"the rig's own broker did not start; its log: {self._log}")
        return words[1], words[2]
