"""All figures of the table, each client in turn."""

import statistics
from collections.abc import Callable

from benchmarks.client.goals import Must, Row
from benchmarks.client.imports import imported
from benchmarks.client.installed import Installed
from benchmarks.client.runs import Device
from benchmarks.client.size import Budget

_CLIENTS = {
    "": ("client_fmqp", "fmqp good"),
    "umqtt.simple": ("client_simple", "mqtt good"),
    "umqtt.robust": ("client_robust", "mqtt good"),
    "umqtt.robust2": ("client_robust2", "mqtt good"),
    "mqtt_async": ("client_mqtt_async", "mqtt good"),
    "mqtt_as": ("client_mqtt_as", "mqtt good"),  # if it is there
}
_BEFORE = "asyncio,network,machine,logging"  # what is the board's, whoever imports it
_BOARD = "128k"  # a heap that has to be collected now and then
_ROOMY = "4m"  # nothing is collected while bytes are counted
_PER_MESSAGE = 200
_TIMES = 5
_RATES = {  # what the scripts say, and its title
    "publish": "publish rate",
    "in_turn": "publish rate, 4 topics in turn",
    "receive": "receive rate",
}
_KEEPALIVE_MS = 300
_INTERVALS = 10

Told = Callable[[str], None]


def sizes(installed: Installed, budget: Budget) -> list[Row]:
    """Return the bytes of .mpy: the sums that were promised."""
    theirs = {
        "umqtt.simple": [installed.bytes_of("umqtt", ["simple"])],
        "umqtt.robust": [installed.bytes_of("umqtt", ["simple", "robust"])],
        "umqtt.robust2": [installed.bytes_of("umqtt", ["simple2", "robust2", "errno"])],
        "mqtt_async": [installed.bytes_of("", ["mqtt_async"])],
    }
    if "mqtt_as.mpy" in installed.sizes:
        theirs["mqtt_as"] = [installed.bytes_of("", ["mqtt_as"])]
    return [
        Row(
            f".mpy, {whole.about}",
            "B",
            [installed.bytes_of("umotemq", whole.modules)],
            theirs,
            Must("at most", whole.goal),
        )
        for whole in budget.wholes
    ]


def memory(device: Device) -> list[Row]:
    """Return the heap that importing, and one connected client, take."""
    one, aio = _groups("fmqp tcp", "aio")
    (both,) = _groups("fmqp lightmq tcp")
    ours = imported(device, _BOARD, one, "asyncio", aio)
    theirs = {
        name: [imported(device, _BOARD, _BEFORE, name)[name]] for name in _clients(device) if name
    }
    objects = _each(device, "memory", 1, _BOARD)
    return [
        Row(
            "RAM of import, FMQP",
            "B",
            [ours[one]],
            theirs,
            Must("at most", 8192),
        ),
        Row("… FMQP and LightMQ", "B", [imported(device, _BOARD, both)[both]]),
        Row("… asyncio layer, on top", "B", [ours[aio]], must=Must("at most", 3000)),
        _row(objects, "object", "RAM of a client, without its buffers", "B"),
        _row(objects, "connected", "… connected, on top", "B"),
    ]


def heap(device: Device) -> list[Row]:
    """Return the bytes that messages allocate."""
    sync = _each(device, "heap", _PER_MESSAGE, _ROOMY)
    script = ("measure_aio.py", "heap", "-", device.ports["fmqp good"], _PER_MESSAGE)
    # A peer that is late once costs a wait, and each wait a turn of asyncio.
    times = [device.run(_ROOMY, *script) for _ in range(_TIMES)]
    aio = {name: statistics.median(one[name] for one in times) for name in times[0]}
    none = Must("at most", 0)
    return [
        _row(sync, "publish", "heap per publish", "B", none),
        _row(sync, "receive", "… per whole message received", "B", none),
        _row(sync, "receive_burst", "… per message of a burst (cut by reads)", "B"),
        _row(sync, "round_trip", "… per round trip", "B"),
        _row(sync | {"": aio}, "publish", "asyncio: heap per publish", "B", Must("at most", 160)),
        # The goal is of messages that follow each other; a lone one also costs a turn of asyncio.
        _row(
            sync | {"": aio}, "receive_burst", "… per message of a burst", "B", Must("at most", 8)
        ),
        _row(sync | {"": aio}, "receive", "… per message that comes alone", "B"),
        _row(sync | {"": aio}, "round_trip", "… per round trip", "B"),
    ]


def calls(device: Device) -> list[Row]:
    """Return how often the socket is asked."""
    count = 2000
    found = _each(device, "calls", count, _BOARD)
    aio = device.run(_BOARD, "measure_aio.py", "calls", "-", device.ports["fmqp good"], count)
    return [
        _row(found, "writes", "socket writes per publish", "", Must("at most", 1)),
        _row(found, "reads", "socket reads per message in a burst", "", Must("at most", 0.1)),
        _row(found | {"": aio}, "writes", "asyncio: socket writes per publish", ""),
    ]


def rates(device: Device, rounds: int, told: Told) -> list[Row]:
    """Return rates and echo times, in paired rounds."""
    count = 20_000
    port = device.ports["fmqp good"]
    aio = ("measure_aio.py", "rates", "-", port, count)
    figures: dict[str, list[dict[str, float]]] = {}
    for number in range(1, rounds + 1):
        found = _each(device, "rates", count, _BOARD, turn=number)
        found["aio"] = device.run(_BOARD, *aio)
        found["together"] = device.run(
            _BOARD, "measure.py", "together", _CLIENTS[""][0], port, count
        )
        for name, values in found.items():
            figures.setdefault(name, []).append(values)
        told(
            f"rates {number}/{rounds}, thousand/s: "
            + ", ".join(
                f"{name or 'ours'} {1e3 / each['publish']:.0f} {1e3 / each['receive']:.0f}"
                for name, each in found.items()
                if name != "together"
            )
        )
    together = [1e6 / each["publish"] for each in figures.pop("together")]
    rows = []
    for ours, driver, least in (
        ("", "", {"publish": 1.5, "receive": 4.0}),
        ("aio", "asyncio: ", {"receive": 3.0}),
    ):
        for what, title in _RATES.items():
            per_second = {
                name: [1e6 / each[what] for each in all_] for name, all_ in figures.items()
            }
            must = Must("at least", least[what], "ratio") if what in least else None
            theirs = {name: per_second[name] for name in figures if name not in ("", "aio")}
            rows.append(Row(driver + title, "1/s", per_second[ours], theirs, must))
            if (ours, what) == ("", "publish"):
                rows.append(Row("… many together (Batch, 1 KiB)", "1/s", together, theirs))
    return rows


def echo(device: Device) -> list[Row]:
    """Return the median round trip."""
    found = _each(device, "echo", 500, _BOARD)
    aio = device.run(_BOARD, "measure_aio.py", "echo", "-", device.ports["fmqp good"], 500)
    return [
        _row(found, "p50", "echo p50 on loopback", "µs", Must("at most", 100)),
        _row(found | {"": aio}, "p50", "asyncio: echo p50", "µs"),
    ]


def idle(device: Device) -> list[Row]:
    """Return how often an idle client wakes."""
    port = device.ports["fmqp good"]
    found = device.run(_BOARD, "idle.py", _KEEPALIVE_MS, port, _INTERVALS)
    must = Must("at most", 1)
    return [
        Row("idle: wake-ups by the clock per keepalive interval", "", [found["timers"]], must=must),
        Row("… by the answer to the sign of life", "", [found["answers"]]),
    ]


def confirm(device: Device) -> list[Row]:
    """Return what a publication costs that the ring keeps until the broker's answer."""
    found = device.run("512k", "measure_confirm.py", device.ports["fmqp good"], 300)
    return [
        Row(
            "publish with confirm, of a plain one", "", [found["ratio"]], must=Must("at most", 1.2)
        ),
        Row("… heap", "B", [found["heap"]], must=Must("at most", 32)),
    ]


def _groups(*groups: str) -> list[str]:
    return [",".join(f"umotemq.{module}" for module in group.split()) for group in groups]


def _clients(device: Device) -> list[str]:
    return [name for name in _CLIENTS if name != "mqtt_as" or device.has(name)]


def _each(
    device: Device, measure: str, count: int, heap: str, turn: int = 0
) -> dict[str, dict[str, float]]:
    """Measure every client once; ``turn`` says who is first."""
    names = _clients(device)
    if measure == "heap" and "mqtt_as" in names:
        names.remove("mqtt_as")  # it makes garbage while it waits: by the time, not by the message
    turn %= len(names)
    found = {}
    for name in names[turn:] + names[:turn]:
        module, port = _CLIENTS[name]
        found[name] = device.run(heap, "measure.py", measure, module, device.ports[port], count)
    return found


def _row(
    found: dict[str, dict[str, float]], what: str, title: str, unit: str, must: Must | None = None
) -> Row:
    theirs = {name: [values[what]] for name, values in found.items() if name}
    return Row(title, unit, [found[""][what]], theirs, must)
