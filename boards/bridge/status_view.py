"""How ``motemq bridge --status`` shows what the bridges say: a table, or JSON."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import Group
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from boards.bridge.bridge import SerialBridge
from boards.bridge.counters import Dwell
from boards.bridge.expose import ExposedPort
from boards.bridge.link_mode import LinkMode
from host_broker.printable import printable

Answer = Mapping[str, Any]
_COLUMNS = (
    "port",
    "state",
    "to broker",
    "/s",
    "to board",
    "/s",
    "waits p50/p99",
    "lost",
    "trouble",
)


def now_text() -> str:
    """UTC, ISO 8601, seconds, ``Z``."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def describe(name: str, owner: SerialBridge | ExposedPort) -> dict[str, Any]:
    """Return one port as plain data; the fields are in docs/bridge.md."""
    counters = owner.counters
    if isinstance(owner, SerialBridge):
        mode, port, there = owner.mode.name, owner.settings, str(owner.broker)
    else:
        mode, port, there = "rfc2217" if owner.plan.rfc2217 else "listen", owner.plan.port, ""
        there = owner.address
    return {
        "name": name,
        "serial": port.url,
        "baud": port.baud,
        "mode": mode,
        "to": there,
        "state": owner.state,
        "held_s": _held_s(owner),
        "sessions": counters.sessions,
        "to_broker_bytes": counters.to_broker_bytes,
        "to_board_bytes": counters.to_board_bytes,
        "dropped_bytes": counters.dropped_bytes,
        "dropped_to_board_bytes": counters.dropped_to_board_bytes,
        "silences": counters.silences,
        "broker_closes": counters.broker_closes,
        "connect_failures": counters.connect_failures,
        "port_failures": counters.port_failures,
        "to_broker_wait_us": _waits(counters.to_broker_wait),
        "to_board_wait_us": _waits(counters.to_board_wait),
        "line_errors": owner.line_errors if isinstance(owner, SerialBridge) else None,
        "link": _link(owner),
        "trouble": owner.trouble,
        "mono_s": round(time.monotonic(), 3),
    }


def _held_s(owner: SerialBridge | ExposedPort) -> float | None:
    held_s = owner.held_s if isinstance(owner, ExposedPort) else None
    return round(held_s, 3) if held_s is not None else None


def _link(owner: SerialBridge | ExposedPort) -> dict[str, int] | None:
    """Return what the reliable link counts, None in other modes."""
    if isinstance(owner, SerialBridge) and isinstance(owner.mode, LinkMode):
        return asdict(owner.mode.link.counters)
    return None


def _waits(dwell: Dwell) -> dict[str, int]:
    return {
        "count": dwell.count,
        "p50": dwell.percentile_us(50),
        "p99": dwell.percentile_us(99),
        "max": dwell.max_us,
    }


def table(answers: Sequence[Answer], before: Sequence[Answer]) -> Group:
    """Return all ports; rates are those since ``before``, an earlier look (empty: none)."""
    earlier = {(answer["pid"], port["name"]): port for answer in before for port in answer["ports"]}
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    for index, title in enumerate(_COLUMNS):
        right = 2 <= index <= 7
        grid.add_column(title, justify="right" if right else "left", overflow="fold")
    for answer in answers:
        for port in answer["ports"]:
            # Text, not str: names and errors must not be read as markup.
            cells = _cells(port, earlier.get((answer["pid"], port["name"])))
            grid.add_row(*(Text(printable(cell)) for cell in cells))
    processes = ", ".join(printable(str(answer["pid"])) for answer in answers)
    return Group(Text(f"{now_text()} bridge processes: {processes}"), grid)


def _cells(port: Answer, earlier: Answer | None) -> list[str]:
    lost = port["dropped_bytes"] + port["dropped_to_board_bytes"]
    waits = port["to_broker_wait_us"]
    return [
        f"{port['name']} ({port['mode']})",
        port["state"] + (f" for {_duration(held)}" if (held := port.get("held_s")) else ""),
        decimal(port["to_broker_bytes"]),
        _rate(port, earlier, "to_broker_bytes"),
        decimal(port["to_board_bytes"]),
        _rate(port, earlier, "to_board_bytes"),
        f"{_time(waits['p50'])}/{_time(waits['p99'])}" if waits["count"] else "-",
        decimal(lost) if lost else "-",
        port["trouble"],
    ]


def _rate(port: Answer, earlier: Answer | None, field: str) -> str:
    if earlier is None or port["mono_s"] <= earlier["mono_s"]:
        return "-"
    rate = (port[field] - earlier[field]) / (port["mono_s"] - earlier["mono_s"])
    return decimal(int(max(0.0, rate)))


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _time(us: int) -> str:
    if us < 1000:
        return f"{us} µs"
    return f"{us / 1000:.0f} ms" if us < 1_000_000 else f"{us / 1e6:.0f} s"
