"""The client's benchmark counts what happens; how fast is never a test's business."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import firmware.build
from benchmarks.client import faults, measures, report
from benchmarks.client import installed as installation
from benchmarks.client.goals import Must, Row
from benchmarks.client.imports import imported
from benchmarks.client.installed import Installed, install
from benchmarks.client.runs import Device, RunFailed, endpoint
from benchmarks.client.size import budget
from benchmarks.client.wires import FMQP, LIGHTMQ, MQTT, WIRES, Wire

_ROOMY = "4m"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def device(installed: Installed) -> Iterator[Device]:
    with endpoint() as ports:
        yield Device(firmware.build.ensure("unix32"), installed.lib, ports)


def test_the_other_clients_are_what_their_names_say(installed: Installed) -> None:
    assert installed.bytes_of("umqtt", ["simple"]) > 1000
    assert installed.bytes_of("umqtt", ["simple2", "robust2"]) > 4000
    assert installed.bytes_of("umqtt", ["robust"]) > 400
    assert installed.bytes_of("", ["mqtt_async"]) > 7000
    assert installed.bytes_of("umotemq", ["link", "fmqp"]) > 500


def test_umqtt_allocates_what_can_be_told_from_its_source(device: Device) -> None:
    """Known without us: a publish is 4 writes, a message 5 reads; both leave objects behind."""
    arguments = ("client_simple", device.ports["mqtt good"])
    calls = device.run(_ROOMY, "measure.py", "calls", *arguments, 100)
    assert calls == {"writes": 4.0, "reads": 5.0}
    heap = device.run(_ROOMY, "measure.py", "heap", *arguments, 50)
    # bytearray(4) and the packed length: an object of one block and a block of data, each.
    assert heap["publish"] == 64
    assert heap["receive"] == pytest.approx(240, abs=3)


@pytest.mark.parametrize(
    ("client", "calls"),
    [("client_robust", {"writes": 4, "reads": 5}), ("client_mqtt_async", {"writes": 1})],
)
def test_the_other_clients_are_driven(device: Device, client: str, calls: dict[str, float]) -> None:
    found = device.run(_ROOMY, "measure.py", "calls", client, device.ports["mqtt good"], 100)
    assert found == {"reads": found["reads"], **calls}


def test_a_client_that_allocates_is_found_out(device: Device, tmp_path: Path) -> None:
    """The zero of ours is no zero of the counter."""
    (tmp_path / "client_wasteful.py").write_text(
        "import client_fmqp\n"
        "FRAME = client_fmqp.FRAME\n"
        "class Client(client_fmqp.Client):\n"
        "    def publish(self, topic, payload, count=1):\n"
        "        for _ in range(count):\n"
        "            super().publish(topic, bytearray(payload))\n"
    )
    ports = device.ports
    wasteful = Device(device.executable, device.lib, ports, extra=tmp_path)
    for module, least in (("client_wasteful", 64), ("client_fmqp", 0)):
        found = wasteful.run(_ROOMY, "measure.py", "heap", module, ports["fmqp good"], 50)
        assert found["publish"] >= least
    assert found["publish"] == 0


@pytest.mark.parametrize("script", ["measure.py", "measure_aio.py"])
@pytest.mark.parametrize("measure", ["calls", "rates", "echo", "heap"])
def test_every_measure_of_ours_runs(device: Device, script: str, measure: str) -> None:
    port = device.ports["fmqp good"]
    # A rate needs more messages than one read may bring.
    found = device.run(
        _ROOMY, script, measure, "client_fmqp", port, 50 if measure != "rates" else 2000
    )
    assert found
    assert min(found.values()) >= 0
    if measure in ("rates", "echo"):
        assert min(found.values()) > 0


def test_a_script_that_fails_is_told_with_its_words(device: Device) -> None:
    with pytest.raises(RunFailed, match=r"no module named 'client_none'"):
        device.run(_ROOMY, "measure.py", "calls", "client_none", 1, 1)
    with socket.socket() as nobody:  # bound and not listening
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        with pytest.raises(RunFailed, match="ECONNREFUSED"):
            device.run(_ROOMY, "measure.py", "memory", "client_simple", port, 1)


def test_importing_costs_the_same_wherever_room_for_names_ends(
    device: Device, tmp_path: Path
) -> None:
    """Names before it move the steps in which MicroPython makes room."""
    group = "umotemq.fmqp,umotemq.tcp"
    alone = imported(device, _ROOMY, group)[group]
    for count in (5, 20, 45, 70):
        (tmp_path / "before.py").write_text("".join(f"some_name_{i} = 0\n" for i in range(count)))
        after = Device(device.executable, device.lib, device.ports, extra=tmp_path)
        took = imported(after, _ROOMY, "before", group)
        assert abs(took[group] - alone) <= 64
        assert took["before"] > 15 * count
    assert 3000 < alone < 10000


def test_an_idle_client_is_watched(device: Device) -> None:
    found = device.run("128k", "idle.py", 100, device.ports["fmqp good"], 4)
    assert found["answers"] > 0
    assert found["timers"] > 0


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("connected\nnoticed 2000 LinkTimeout: x\n", faults.Noticed("2.0 s", True)),
        ("noticed 3001 OSError: [Errno 110]\n", faults.Noticed("3.0 s OSError", False)),
        ("noticed 5 MemoryError: x\n", faults.Noticed("0.0 s MemoryError", False)),
        ("noticed 5 ValueError: our own\n", faults.Noticed("0.0 s ValueError", False)),
        ("connected\n", faults.Noticed("unnoticed", False)),
        ("", faults.Noticed("hangs", False)),
    ],
)
def test_a_fault_is_noticed_in_time_or_not(said: str, verdict: faults.Noticed) -> None:
    assert faults.judge(said, 3.0) == verdict


def test_the_peer_fails_as_it_should(device: Device) -> None:
    """Everybody connects and notices a close; nobody connects to who never answers.

    umqtt.robust connects again without a word, and without its subscriptions.
    """

    def said(module: str, port: int, limit_s: float) -> str:
        with device.start("128k", "faults.py", module, port, "subscriber", 1000, 300) as process:
            try:
                return process.communicate(timeout=limit_s)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                return process.communicate()[0]

    with ThreadPoolExecutor() as pool:  # they wait
        found = {
            name: [
                pool.submit(said, module, device.ports[f"{wire} {behaviour}"], limit_s)
                for behaviour, limit_s in (("half_close", 15), ("mute", 4))
            ]
            for name, (module, wire) in faults.clients(device).items()
        }
    for name, (half_close, mute) in found.items():
        assert ("noticed" in half_close.result()) is (name != "umqtt.robust"), name
        assert "connected" not in mute.result(), name


def test_frames_are_cut_and_read_right() -> None:
    for wire in (FMQP, MQTT):
        for size in (1, 64, 127, 128, 20_000):
            frame = wire.publication(b"bench/echo", b"x" * size)
            assert wire.size(frame) == wire.size(frame + b"more") == len(frame)
            assert wire.read(frame) == (b"bench/echo", b"x" * size)
            assert wire.size(frame[:1]) == 0
    assert MQTT.answer(b"\x82\x08\0\x07\0\x03a/b\0") == b"\x90\x03\0\x07\0"
    assert LIGHTMQ.answer(b"\x05\0\x04\x12\x34\0x") == b"\x06\0\x02\x12\x34"
    assert LIGHTMQ.answer(b"\x03\0\x02\x12\x34") == b"\x04\0\x02\x12\x34"


@pytest.mark.parametrize(("wire", "size"), [(FMQP, 200_000_022), (MQTT, 200_000_005)])
def test_the_huge_length_is_200_mb(wire: Wire, size: int) -> None:
    assert wire.size(wire.huge) == size
    assert len(WIRES) == 3


def test_a_ratio_is_taken_within_a_round() -> None:
    row = Row("rate", "1/s", [10.0, 40.0, 30.0], {"umqtt.simple": [10.0, 10.0, 10.0]})
    row.must = Must("at least", 3, "ratio")
    assert row.ratio("umqtt.simple") == 3
    assert row.ratio("umqtt.robust2") is None
    assert row.reached
    row.must = Must("at most", 29)
    assert row.reached is False
    line = report.table([row]).splitlines()[-1]
    assert "3.00 (1.00–4.00)" in line  # noqa: RUF001
    assert line.endswith("| **no** |")


def test_nothing_reaches_a_ratio_that_could_not_be_taken() -> None:
    assert Must("at least", 0, "ratio").reached(1.0, None) is False
    assert Row("x", "B", [1.0], {"umqtt.simple": [0.0]}).ratio("umqtt.simple") is None


def test_size_is_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "size"],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "one protocol (FMQP), synchronous, over TCP: " in done.stdout


def test_mqtt_as_is_compared_where_somebody_has_it(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No registry has it, so this is not it: a module that can be told by its size."""
    assert "mqtt_as" not in faults.clients(Device(Path(), installed.lib, {}))
    assert "| mqtt_as |" not in report.table(measures.sizes(installed, budget()))
    own = tmp_path / "__init__.py"
    own.write_text("config = {}\n")
    monkeypatch.setattr(installation, "_PEERS", {})  # those are there already
    found = install(tmp_path, own)
    assert "mqtt_as" in faults.clients(Device(Path(), found.lib, {}))
    size = found.sizes["mqtt_as.mpy"]
    rows = measures.sizes(Installed(found.lib, installed.sizes | found.sizes), budget())
    assert rows[0].theirs["mqtt_as"] == [size]
    assert "| mqtt_as |" in report.table(rows)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "client", "--mqtt-as", str(tmp_path / "none.py")],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 2
    assert "none.py" in done.stderr
