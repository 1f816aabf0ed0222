"""Brokers with something to see on every page: an ordinary one, one where every name is hostile."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import cbor2

from host_broker.client import Client, connect
from tests.boards.reports.made_run import MadeRun, passing_board
from tests.host_broker.net.answering_board import answering
from tests.host_broker.net.broker_process import BrokerProcess, broker
from tests.host_broker.net.certificates import Authority
from tests.hostile_names import HOSTILE

VIEWS = (
    *("overview", "boards", "topics", "clients", "queues"),
    *("retained", "wills", "journal", "alerts", "rig"),
)
_READINGS = 60
# XSS that a page could fall for, beside what all outputs are tried with.
_SCRIPTS = (
    "<svg onload=owned=1>",
    "<svg><script>owned=1</script></svg>",
    "javascript:owned=1",
    "'-owned=1-'",
    '"onfocus="owned=1"autofocus="',
    "<iframe srcdoc='<script>parent.owned=1</script>'>",
    "${owned=1}{{owned=1}}<%owned=1%>",
    "<math><mi xlink:href='javascript:owned=1'>x",
    "</textarea></option></title><script>owned=1</script>",
    "<a href=javascript:owned=1>x</a>",
    "__proto__",
    "constructor",
)
NAMES = tuple(name for name in (*HOSTILE, *_SCRIPTS) if "\0" not in name)
_LONGEST_COMMON_NAME = 64  # characters
# What certificates of a careless authority may say.
PRINCIPALS = tuple(name for name in NAMES if len(name) <= _LONGEST_COMMON_NAME)


def made_runs(out: Path) -> None:
    """Write two runs of the rig: one that is over, one that goes on."""
    over = MadeRun(out, rig="lab", run_id="20261126T090000Z-1")
    for name in ("vpico-1", "vpico-2", "vesp-1"):
        passing_board(over, name, rtt_us=[1000])
    (over.end(13) / "report.html").write_text("<!doctype html><title>report</title>")
    begun = MadeRun(out, rig="lab", run_id="20261126T100000Z-2")
    passing_board(begun, "vpico-1", rtt_us=[1000])
    begun.board("vesp-1")
    begun.event(1, event="board_started")
    begun.step("flash", 1, 3, "error", message="the port /dev/pts/7 has been taken by somebody")
    begun.event(4, event="step_started", step="install")
    begun.abort()


def _telemetry(client: Client, board: str, phase: float) -> None:
    for number in range(_READINGS):
        for sensor, unit, value in (
            ("temperature", "C", 21 + 3 * math.sin(number / 9 + phase)),
            ("humidity", "%", 45 + 9 * math.cos(number / 14 + phase)),
        ):
            said = {"v": 1, "board": board, "sensor": sensor, "unit": unit}
            message = {**said, "value": round(value, 2)}
            client.publish(f"telemetry/{board}/{sensor}", json=message)


@contextlib.contextmanager
def ordinary(folder: Path) -> Iterator[BrokerProcess]:
    """A broker with a house, boards, a queue, wills, alerts, a journal and runs of the rig."""
    out = folder / "out"
    made_runs(out)
    options = ("--data", str(folder / "data"), "--set", f"http.rig={out}")
    with (
        broker("--listen", "auto://127.0.0.1:0", *options) as running,
        contextlib.ExitStack() as stack,
    ):
        at = f"127.0.0.1:{running.ports['auto']}"
        fmqp = stack.enter_context(connect(f"fmqp://{at}"))
        fmqp.publish("home/kitchen/lamp", b"on", retain=True)
        fmqp.publish("home/hall/lamp", b"off", retain=True)
        fmqp.publish("home/plan", json={"floors": 2, "rooms": ["kitchen"]}, retain=True)
        fmqp.publish("home/meter", cbor2.dumps({"kWh": 1234.5}), retain=True)
        fmqp.publish("home/picture", bytes(range(256)), retain=True)
        for number, board in enumerate(("vpico-1", "vpico-2")):
            _telemetry(fmqp, board, number)
            fmqp.publish(f"status/{board}", b"online", retain=True)
        fmqp.publish("status/vpico-1", b"offline", retain=True, will=True)
        for board, kind, cleared in (
            ("vpico-2", "silent", None),
            ("vesp-1", "range", "2026-11-26T10:04:00Z"),
        ):
            alert = {"board": board, "kind": kind, "raised_at": "2026-11-26T10:00:00Z"}
            text = {"message": f"{board}: {kind}, as an example", "cleared_at": cleared}
            fmqp.publish(f"alerts/{board}/{kind}", json={**alert, **text}, retain=True)
        fmqp.sync()
        desk = stack.enter_context(connect(f"micromsg2://{at}/desk"))
        for number in range(5):
            desk.publish("jobs", b"water a bed", properties={"bed": number}, confirm=True)
        feed = stack.enter_context(connect(f"fq://{at}/feed"))
        feed.subscribe("news", confirm=True)
        feed.publish("news", b"hot")
        feed.sync()
        stack.enter_context(answering(f"lightmq://{at}/kitchen", lambda data: b"21.5 C to " + data))
        yield running


@contextlib.contextmanager
def hostile(folder: Path) -> Iterator[BrokerProcess]:
    """A broker where every text that anybody chooses is one of ``NAMES``."""
    out = folder / "out"
    made = MadeRun(out, run_id="1")
    for number, name in enumerate(NAMES):
        made.board(f"{number} {name}", model=name)
        made.event(1, event="check_finished", check=name, outcome="failed", message=name)
    run = made.abort()
    for number, name in enumerate(NAMES):
        spelled = f"{name} {number}".replace("/", "").encode()[:200].decode(errors="ignore")
        elsewhere = run.parent.with_name(f"rig={spelled}") / f"run={spelled}"
        elsewhere.mkdir(parents=True)
        (elsewhere / "events.jsonl").touch()
    # Boards that only say their names: nobody asks them whether they live, and ">" means nothing.
    named = (f"http.rig={out}", "lightmq.ping_interval_s=0", "lightmq.calls=false")
    options = [word for each in named for word in ("--set", each)]
    authority = Authority(folder, "ca")
    cert, key = authority.issue("server")
    tls = f"fmqps://127.0.0.1:0?cert={cert}&key={key}&client_ca={authority.file}"
    with (
        broker("--listen", "auto://127.0.0.1:0", "--listen", tls, *options) as running,
        contextlib.ExitStack() as stack,
    ):
        at = f"127.0.0.1:{running.ports['auto']}"
        # The broker remembers what is published from when somebody is there who may ask for it.
        stack.enter_context(connect(f"umq://{at}"))
        fmqp = stack.enter_context(connect(f"fmqp://{at}"))
        for number, name in enumerate(NAMES):
            level = name.replace("/", "")
            said = {"sensor": name, "unit": name, "value": 1, "board": name, "kind": name}
            alert = {**said, "message": name, "cleared_at": None, "raised_at": name}
            fmqp.publish(f"h{number}/{level}", name.encode(), retain=True)
            fmqp.publish(f"status/{level}", name.encode(), retain=True)
            fmqp.publish(f"telemetry/{level}/{level}", json=said, retain=True)
            fmqp.publish(f"alerts/{level}/{number}", json=alert, retain=True)
        for name in NAMES[:8]:
            fmqp.publish(f"wills/{name.replace('/', '')}", name.encode(), will=True)
        fmqp.sync()
        desk = stack.enter_context(connect(f"micromsg2://{at}/desk"))
        for name in NAMES:
            desk.publish("topic/properties", name.encode(), properties={"x": name}, confirm=True)
            with contextlib.suppress(ValueError):
                desk.publish(name, name.encode(), confirm=True)
        feed = stack.enter_context(connect(f"fq://{at}/feed"))
        for name in NAMES:
            if len(name.encode()) < 100 and name.isprintable():
                feed.subscribe(name, confirm=True)
        for number, name in enumerate(PRINCIPALS):
            cert, key = authority.issue(name, stem=f"client-{number}")
            files = f"ca={authority.file}&cert={cert}&key={key}"
            stack.enter_context(connect(f"fmqps://127.0.0.1:{running.ports['fmqps']}?{files}"))
        for name in NAMES:
            board = stack.enter_context(running.raw("auto"))
            raw = name.encode()
            payload = bytes([len(raw)]) + raw
            board.sendall(b"\x01" + len(payload).to_bytes(2, "big") + payload)
            assert board.recv(5)
        yield running
