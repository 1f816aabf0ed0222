"""All ports of one process: started together, reported by name, stopped together."""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from boards.bridge.bridge import SerialBridge
from boards.bridge.config import BridgePlan, Plan
from boards.bridge.console_end import ConsoleEnd
from boards.bridge.counters import BridgeCounters
from boards.bridge.expose import ExposedPort
from boards.bridge.link_mode import LinkMode
from boards.bridge.raw_mode import RawMode
from boards.bridge.status_view import describe, now_text

Say = Callable[[str], None]
Owner = SerialBridge | ExposedPort


class BridgePool:
    """Owns the bridges of ``plans``. ``say`` gets whole lines, from any thread; it never waits."""

    def __init__(self, plans: Sequence[Plan], say: Say) -> None:
        self._say_line = say
        self._began, self._began_s = now_text(), time.monotonic()
        self._plans = plans
        self._owners: list[tuple[str, Owner]] = []

    def start(self, stack: contextlib.ExitStack, *, wait_for_ports: bool) -> None:
        """Start all; ``stack`` stops them.

        Raises ``PortError``, ``ListenError`` and ``ConsoleError``.
        """
        for plan in self._plans:
            owner = self._owner(plan)
            stack.callback(owner.stop)
            if isinstance(owner, SerialBridge):
                owner.start(wait_for_port=wait_for_ports)
            else:
                owner.start()
            self._owners.append((plan.name, owner))
            self._say(plan.name, _begun(owner))

    @property
    def running(self) -> bool:
        """True as long as every port's thread runs."""
        return all(owner.running for _, owner in self._owners)

    def snapshot(self, pid: int) -> dict[str, Any]:
        """Return the state of all ports as plain data."""
        return {
            "pid": pid,
            "since": self._began,
            "uptime_s": round(time.monotonic() - self._began_s, 3),
            "ports": [describe(name, owner) for name, owner in self._owners],
        }

    def end(self, name: str) -> str:
        """Take a port from the program that has it; returns which that was, "" if none."""
        for own_name, owner in self._owners:
            if own_name == name and isinstance(owner, ExposedPort):
                return owner.end_holder()
        return ""

    def farewell(self) -> None:
        """Say what each port has moved, after all were stopped."""
        for name, owner in self._owners:
            counters = owner.counters
            there = "broker" if isinstance(owner, SerialBridge) else "clients"
            self._say(
                name,
                f"{counters.sessions} sessions, {counters.to_broker_bytes} bytes to the {there}, "
                f"{counters.to_board_bytes} to the board, "
                f"{counters.dropped_bytes + counters.dropped_to_board_bytes} dropped",
            )

    def _owner(self, plan: Plan) -> Owner:
        def report(line: str) -> None:
            self._say(plan.name, line)

        if isinstance(plan, BridgePlan):
            counters = BridgeCounters()
            if plan.mode == "raw":
                raw = RawMode(counters, silence_s=plan.silence_s)
                return SerialBridge(plan.port, plan.broker, raw, counters, report)
            link = LinkMode(counters)
            console = ConsoleEnd(link, plan.console) if plan.console is not None else None
            return SerialBridge(plan.port, plan.broker, link, counters, report, console)
        return ExposedPort(plan, report)

    def _say(self, name: str, line: str) -> None:
        self._say_line(f"{now_text()} {name}: {line}")


def _begun(owner: Owner) -> str:
    if isinstance(owner, SerialBridge):
        port = owner.settings
        state = "" if owner.port_open else " (waiting for the port)"
        console = f", console at {owner.console.name}" if owner.console is not None else ""
        return (
            f"bridging {port.url} at {port.baud} baud to {owner.broker}, "
            f"{owner.mode.name} mode{console}{state}"
        )
    port = owner.plan.port
    how = "RFC 2217" if owner.plan.rfc2217 else "plain bytes"
    if (file := owner.plan.token_file) is not None:
        scheme = "rfc2217" if owner.plan.rfc2217 else "socket"
        how += f", to those who have the token: {scheme}://{owner.address}?token_file={file}"
    elif owner.plan.insecure:
        how += ", to everybody"
    return f"listening on {owner.address} for {port.url} at {port.baud} baud, {how}"
