"""Machines of their own on this one: network namespaces on a bridge, each with an address.

They share the disk and the processors. It takes root, and ``ip`` of iproute2.
"""

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from benchmarks.faults.processes import Failed


@dataclass(frozen=True)
class Machine:
    """A namespace; ``prefix`` is what a command begins with that is to run there."""

    name: str
    address: str
    link: str  # this end of its cable

    @property
    def prefix(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Pull the cable."""
        _ip("link", "set", self.link, "down")

    def mend(self) -> None:
        """Plug it in again."""
        _ip("link", "set", self.link, "up")

    def kill(self) -> None:
        """Kill (-9) every process there, until none is left: some start others."""
        while pids := _ip("netns", "pids", self.name).split():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


@contextmanager
def lan(*names: str) -> Iterator[dict[str, Machine]]:
    """Give machines with these names, which see each other and this one; all end with the block."""
    tag = f"mq{os.getpid()}"
    bridge, net = f"{tag}b", f"10.{random.randint(214, 250)}.{random.randint(0, 255)}"
    machines = {
        name: Machine(f"{tag}-{name}", f"{net}.{number}", f"{tag}v{number}")
        for number, name in enumerate(names, 2)
    }
    try:
        try:
            _ip("link", "add", bridge, "type", "bridge")
        except (OSError, subprocess.CalledProcessError) as error:
            why = getattr(error, "stderr", None) or error
            raise Failed(f"machines take root, and ip of iproute2: {why}") from error
        _ip("addr", "add", f"{net}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for machine in machines.values():
            inside = ("-n", machine.name)
            _ip("netns", "add", machine.name)
            _ip("link", "add", machine.link, "type", "veth", "peer", "eth0", "netns", machine.name)
            _ip("link", "set", machine.link, "master", bridge, "up")
            _ip(*inside, "addr", "add", f"{machine.address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip(*inside, "link", "set", device, "up")
        yield machines
    finally:
        for machine in machines.values():
            with suppress(OSError, subprocess.CalledProcessError):  # it was not made
                machine.kill()
                _ip("netns", "del", machine.name)
        with suppress(OSError, subprocess.CalledProcessError):
            _ip("link", "del", bridge)


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=True)
    return done.stdout
