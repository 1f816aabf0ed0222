"""The proxy as a child of the rig: it ends with the run, however that ends."""

import socket
import sys
from pathlib import Path
from typing import Self

from boards.child import Child, ChildError
from boards.faults.control import ProxyControl, ProxyError

_START_S = 60.0


def can_stand_at(host: str) -> bool:
    """Return whether ``host`` is an address of this machine, so that a proxy can listen there."""
    try:
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.bind((host, 0))
    except OSError:
        return False
    return True


class FaultProxy(Child):
    """A running proxy; leaving the ``with`` block stops it. ``port`` is its control port."""

    port: int
    control: ProxyControl

    @classmethod
    def start(cls, log: Path) -> Self:
        """Start it, with its trace and its stderr in ``log``, anew. Raises ``ProxyError``."""
        log.unlink(missing_ok=True)  # another run's proxy may still write to what was there
        try:
            proxy = cls([sys.executable, "-m", "boards.faults"], log, _START_S)
        except ChildError as error:
            raise ProxyError(f"the fault proxy did not start: {error}; its log: {log}") from None
        proxy.port = int(proxy.ready["control_port"])
        proxy.control = ProxyControl(proxy.port)
        return proxy
