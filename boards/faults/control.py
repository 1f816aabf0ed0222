"""What the rig says to the proxy, by its control port.

Requests: ``route`` (``route``, ``host``, ``to``), ``upstream``
(``route``, ``to``), ``mode`` (``route``, ``mode``, ``delay_ms``), ``cut`` (``route``, ``how``),
``trace`` (``route``, ``after``).
"""

from typing import Any, Literal, get_args

from boards.control_port import Refused, ask
from boards.errors import RigError
from boards.faults.trace import How, Trace

# What happens to a route's connections. ``reset``: whoever comes is taken and gets a RST at once,
# so that the times of the tries are seen; ``refuse``: nobody listens, and nothing is seen.
Mode = Literal["forward", "black_hole", "reset", "refuse"]
MODES: tuple[Mode, ...] = get_args(Mode)

_CALL_S = 10.0


class ProxyError(RigError):
    """The fault proxy did not do what it was asked: no verdict can rest on it."""


class ProxyControl:
    """Speaks to the proxy whose control port on 127.0.0.1 is ``port``."""

    def __init__(self, port: int, *, timeout_s: float = _CALL_S) -> None:
        self._port = port
        self._timeout_s = timeout_s

    def route(self, name: str, host: str, to: str) -> "Route":
        """Open a route on an ephemeral port of ``host``, to the broker at ``to`` (HOST:PORT).

        Raises ``ProxyError`` if ``host`` is no address of this machine.
        """
        port = int(self.call("route", route=name, host=host, to=to)["port"])
        return Route(self, name, (host, port))

    def call(self, what: str, **arguments: str | int | float) -> dict[str, Any]:
        """Do one request. Raises ``ProxyError``."""
        try:
            return ask(self._port, what, timeout_s=self._timeout_s, **arguments)
        except Refused as error:
            raise ProxyError(f"the fault proxy refused {what!r}: {error}") from None
        except (OSError, ValueError) as error:
            raise ProxyError(f"the fault proxy does not answer {what!r}: {error}") from None


class Route:
    """One board's way to its broker. Every method raises ``ProxyError``."""

    def __init__(self, control: ProxyControl, name: str, address: tuple[str, int]) -> None:
        self._control = control
        self.name = name
        self.address = address  # where the board, or its bridge, connects to

    def lead_to(self, broker: str) -> None:
        """Lead connections from now on to ``broker`` (HOST:PORT); those that are open stay."""
        self._control.call("upstream", route=self.name, to=broker)

    def set_mode(self, mode: Mode, *, delay_ms: float = 0.0) -> int:
        """Change what happens to all connections, now and later; return since when, ns.

        ``delay_ms``: how much later everything arrives, each way.
        """
        answer = self._control.call("mode", route=self.name, mode=mode, delay_ms=delay_ms)
        return int(answer["at_ns"])

    def cut(self, how: How) -> tuple[int, int]:
        """End all connections towards both sides; return when, ns, and how many there were."""
        answer = self._control.call("cut", route=self.name, how=how)
        return int(answer["at_ns"]), int(answer["count"])

    def traces(self, after: int = 0) -> list[Trace]:
        """Return what was seen of the last connections whose number is above ``after``."""
        answer = self._control.call("trace", route=self.name, after=after)
        return [Trace.from_row(row) for row in answer["connections"]]
