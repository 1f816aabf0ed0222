"""Six ways for a peer to fail (client-anchors): which client notices, and how soon."""

import contextlib
import subprocess
import time
from dataclasses import dataclass

from benchmarks.client.runs import Device

_HEAP = {32: "64k", 64: "128k"}  # the same number of objects
_KEEPALIVE_S = 4.0
_TIMEOUT_S = 2.0
_GRACE_S = 1.0
_WATCH_S = 12.0
# A client that has no memory for its peer's words, or that we used wrongly, has noticed nothing.
_MISTAKES = {"MemoryError", "ValueError", "TypeError", "AttributeError", "NameError", "ImportError"}
CLIENTS = {
    "ours, FMQP": ("client_fmqp", "fmqp"),
    "ours, LightMQ": ("client_lightmq", "lightmq"),
    "umqtt.simple": ("client_simple", "mqtt"),
    "umqtt.robust": ("client_robust", "mqtt"),
    "umqtt.robust2": ("client_robust2", "mqtt"),
    "mqtt_async": ("client_mqtt_async", "mqtt"),
    "mqtt_as": ("client_mqtt_as", "mqtt"),  # if it is there
}


@dataclass(frozen=True, slots=True)
class Fault:
    """``within_s``: the time after which a client must have told its program."""

    title: str
    behaviour: str
    within_s: float
    role: str = "subscriber"


FAULTS = (
    Fault("never answers the first words", "mute", _TIMEOUT_S + _GRACE_S),
    Fault("half a message, then silence", "half", _TIMEOUT_S + _GRACE_S),
    Fault("half a message, then close", "half_close", _GRACE_S),
    # LightMQ's length field ends at 64 KiB, which it is patient with.
    Fault("promises 200 MB", "huge", _TIMEOUT_S + _GRACE_S),
    Fault("reads, answers no ping", "no_ping", _KEEPALIVE_S + _TIMEOUT_S + _GRACE_S),
    Fault("stops reading", "no_read", _TIMEOUT_S + _GRACE_S, "publisher"),
)


@dataclass(frozen=True, slots=True)
class Noticed:
    """What became of one client. ``in_time`` is the verdict."""

    text: str
    in_time: bool


def judge(said: str, within_s: float) -> Noticed:
    """Judge what a client printed (device/faults.py) until it ended or was stopped."""
    for line in said.splitlines():
        if line.startswith("noticed "):
            _, ms, what = line.split(" ", 2)
            seconds = int(ms) / 1000
            kind = what.split(":")[0]
            good = seconds <= within_s and kind not in _MISTAKES
            return Noticed(f"{seconds:.1f} s{'' if good else ' ' + kind}", good)
    return Noticed("unnoticed" if "connected" in said else "hangs", False)


def clients(device: Device) -> dict[str, tuple[str, str]]:
    """Return those of CLIENTS that are there."""
    return {name: c for name, c in CLIENTS.items() if name != "mqtt_as" or device.has(name)}


def measure(device: Device, width: int) -> dict[str, dict[str, Noticed]]:
    """Return client → behaviour → what became of it. All run at once; most of them just wait."""
    running: dict[tuple[str, Fault], subprocess.Popen[str]] = {}
    found: dict[str, dict[str, Noticed]] = {name: {} for name in clients(device)}
    with contextlib.ExitStack() as stack:
        for name, (module, wire) in clients(device).items():
            for fault in FAULTS:
                port = device.ports[f"{wire} {fault.behaviour}"]
                times = (int(_KEEPALIVE_S * 1000), int(_TIMEOUT_S * 1000))
                arguments = ("faults.py", module, port, fault.role, *times)
                process = device.start(_HEAP[width], *arguments)
                running[name, fault] = stack.enter_context(process)
        until = time.monotonic() + _WATCH_S
        for (name, fault), process in running.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            process.kill()
            said, _ = process.communicate()
            found[name][fault.behaviour] = judge(said, fault.within_s)
    return found
