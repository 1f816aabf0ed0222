"""A broker of the rig's own: with short deadlines, and checks may kill it."""

import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from boards.errors import RigError
from boards.session.run_certificates import RunCertificates
from boards.tool import die_with_parent

_START_S = 60.0
_STOP_S = 15.0


@dataclass(frozen=True, slots=True)
class BrokerTiming:
    """How a broker of the rig's own treats clients that are silent, or come twice."""

    name: str
    fmqp_silence_s: float  # after which a client is taken for dead
    lightmq_silence_s: float  # before its PING
    lightmq_patience_s: float  # for the PONG
    duplicate_client: Literal["takeover", "reject"]

    def window_ms(self, protocol: str) -> tuple[float, float]:
        """Return when after a client's last word it is taken for dead, at the earliest and latest.

        ``protocol``: fmqp, or anything that is carried by LightMQ.
        """
        if protocol == "fmqp":
            # It looks four times in that time, so it may take a quarter more.
            return self.fmqp_silence_s * 1e3, self.fmqp_silence_s * 1.25e3
        patience_ms = (self.lightmq_silence_s + self.lightmq_patience_s) * 1e3
        return patience_ms, patience_ms

    def settings(self) -> Mapping[str, float | str]:
        """Return them in the broker's words."""
        return {
            "fmqp.idle_timeout_s": self.fmqp_silence_s,
            "lightmq.ping_interval_s": self.lightmq_silence_s,
            "lightmq.ping_timeout_s": self.lightmq_patience_s,
            "lightmq.duplicate_client": self.duplicate_client,
        }


# Long enough for a board that is held up (an emulator on a busy machine), short enough for a check.
QUICK = BrokerTiming("quick", 3.0, 1.5, 1.5, "takeover")
# For the checks of what is slow, and of a name that stays with who had it first.
PATIENT = BrokerTiming("patient", 6.0, 3.0, 3.0, "reject")
_PROTOCOLS = ("fmqp", "lightmq", "lightmq+fmqp", "micromsg2")


class BrokerDown(RigError):
    """The rig's own broker did not start: no verdict can rest on it."""


class BrokerProcess:
    """``motemq broker`` on ephemeral ports of ``host``.

    ``addresses`` has HOST:PORT by protocol for us, ``facing`` for the boards: the same, but with
    ``certificates``. Then boards have TLS on ``host``, and we are on loopback, where nobody else
    is. It ends with us. ``log`` gets what it says. ``timing``: None is the broker's own.
    """

    def __init__(
        self,
        host: str,
        log: Path,
        timing: BrokerTiming | None = QUICK,
        certificates: RunCertificates | None = None,
    ) -> None:
        self.addresses: Mapping[str, str] = {}
        self.facing: Mapping[str, str] = {}
        self._certificates = certificates
        self._timing = timing
        self._host = host
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, on other ports than before. Raises ``BrokerDown``."""
        self.kill()
        host = f"[{self._host}]" if ":" in self._host else self._host
        ours = host if self._certificates is None else "127.0.0.1"
        listen = [f"--listen={protocol}://{ours}:0" for protocol in _PROTOCOLS]
        if self._certificates is not None:
            options = self._certificates.listen_options()
            listen += [f"--listen={protocol}s://{host}:0{options}" for protocol in _PROTOCOLS]
        chosen = self._timing.settings() if self._timing is not None else {}
        settings = [f"--set={key}={value}" for key, value in chosen.items()]
        with self._log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "motemq", "broker", "--ephemeral"),
                    "--insecure-bind",  # where the run's own broker is, boards reach this one too
                    *listen,
                    *settings,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,  # a line that select() promises must not be in a buffer already
                preexec_fn=die_with_parent,
            )
        until = time.monotonic() + _START_S
        found = dict(self._listening(until) for _ in listen)
        self.addresses = {protocol: found[protocol] for protocol in _PROTOCOLS}
        secure = "" if self._certificates is None else "s"
        self.facing = {protocol: found[protocol + secure] for protocol in _PROTOCOLS}

    @property
    def ended(self) -> str:
        """Say that it has ended by itself; "" if it runs, or was not started, or was killed."""
        code = None if self._process is None else self._process.poll()
        return "" if code is None else f"it ended with exit code {code}; its log: {self._log}"

    def kill(self) -> None:
        """End it as ``kill -9`` does; harmless when it does not run."""
        process, self._process = self._process, None
        if process is not None:
            self.addresses, self.facing = {}, {}
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
