"""The same faults, and a good broker, over TCP, TLS and bridged serial lines."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from tests.client_upy.fault_server import FaultServer
from tests.client_upy.serial_lines import SerialLines
from tests.host_broker.net.broker_process import BrokerProcess
from tests.host_broker.net.certificates import Authority

THROUGH = ("tcp", "tls", "uart")
_PROTOCOLS = ("fmqp", "lightmq", "micromsg2")


@contextlib.contextmanager
def fault_sides(folder: Path) -> Iterator[None]:
    """Fill ``folder`` with ca.pem and for each transport a file that says where all are."""
    authority = Authority(folder, "ours")
    cert, key = authority.issue("broker")
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(FaultServer())
        inside = stack.enter_context(FaultServer((cert, key)))
        listen = [f"{name}://127.0.0.1:0" for name in _PROTOCOLS]
        listen += [f"{name}s://127.0.0.1:0?cert={cert}&key={key}" for name in _PROTOCOLS]
        broker = BrokerProcess(
            "--ephemeral", *(word for url in listen for word in ("--listen", url))
        )
        stack.callback(broker.end)
        good = _twice({name: broker.ports[name] for name in _PROTOCOLS})
        inside_good = _twice({name: broker.ports[name + "s"] for name in _PROTOCOLS})
        faulty_lines = stack.enter_context(SerialLines(plain.ports))
        good_lines = stack.enter_context(SerialLines(good))
        for through, faults, brokers in (
            ("tcp", plain.ports, good),
            ("tls", inside.ports, inside_good),
            ("uart", faulty_lines.ports, good_lines.ports),
        ):
            given = {"faults": faults, "good": brokers, "ca": authority.file.name}
            (folder / f"{through}.json").write_text(json.dumps(given))
        yield


def _twice(ports: dict[str, int]) -> dict[str, int]:
    """Add the same ports for who is timed: a bridge's silence must not end its session."""
    return ports | {f"{name}_timed": port for name, port in ports.items()}
