"""Every fault on every transport, both drivers: noticed in time, and survived."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.client_upy.fault_server import FaultServer
from tests.client_upy.interpreters import Interpreter, run_checks
from tests.client_upy.serial_lines import SerialLines
from tests.host_broker.net.broker_process import BrokerProcess
from tests.host_broker.net.certificates import Authority

_THROUGH = ("tcp", "tls", "uart")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For each transport a file that says where the faults and a good broker are."""
    folder = tmp_path_factory.mktemp("faults")
    authority = Authority(folder, "ours")
    cert, key = authority.issue("broker")
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(FaultServer())
        inside = stack.enter_context(FaultServer((cert, key)))
        listen = [f"{name}://127.0.0.1:0" for name in ("fmqp", "lightmq")]
        listen += [f"{name}://127.0.0.1:0?cert={cert}&key={key}" for name in ("fmqps", "lightmqs")]
        broker = BrokerProcess(
            "--ephemeral", *(word for url in listen for word in ("--listen", url))
        )
        stack.callback(broker.end)
        good = {name: broker.ports[name] for name in ("fmqp", "lightmq")}
        inside_good = {name: broker.ports[name + "s"] for name in good}
        faulty_lines = stack.enter_context(SerialLines(plain.ports))
        good_lines = stack.enter_context(SerialLines(good))
        for through, faults, brokers in (
            ("tcp", plain.ports, good),
            ("tls", inside.ports, inside_good),
            ("uart", faulty_lines.ports, good_lines.ports),
        ):
            given = {"faults": faults, "good": brokers, "ca": str(authority.file)}
            (folder / f"{through}.json").write_text(json.dumps(given))
        yield folder


@pytest.mark.parametrize("interpreter", ["cpython", "micropython-32"], indirect=True)
def test_faults_are_noticed_in_time(
    interpreter: Interpreter, folder: Path, say: Callable[[str], None]
) -> None:
    # TLS takes its contexts from this heap, and the checks' own code is more than those: without
    # them 64 KB would do.
    roomy = replace(
        interpreter, command=tuple(re.sub("=64k$", "=80k", word) for word in interpreter.command)
    )
    # All at once: they mostly wait.
    ways = [(through, driver) for through in _THROUGH for driver in ("sync", "aio")]
    with ThreadPoolExecutor(len(ways)) as pool:
        runs = {
            way: pool.submit(
                run_checks,
                roomy if way[0] == "tls" else interpreter,
                "faults",
                str(folder / f"{way[0]}.json"),
                *way,
            )
            for way in ways
        }
    for (through, driver), run in runs.items():
        noticed = re.findall(r"noticed in (\d+) ms", run.result())
        worst = max(int(ms) for ms in noticed)
        say(f"{len(noticed)} faults, {through}, {driver}: the latest was noticed in {worst} ms")
