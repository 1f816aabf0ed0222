"""Brokers and others that show certificates, good and bad."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from tests.client_upy.fault_server import FaultServer
from tests.host_broker.net.broker_process import BrokerProcess
from tests.host_broker.net.certificates import Authority


@contextlib.contextmanager
def tls_side(folder: Path) -> Iterator[None]:
    """Fill ``folder`` with certificates and ports.json, the ports of those who show them."""
    ours, theirs = Authority(folder, "ours"), Authority(folder, "theirs")
    ours.issue("attic")
    theirs.issue("stranger")
    files = {
        "good": ours.issue("broker"),
        "named": ours.issue("named", host="broker.example"),
        "expired": ours.issue("expired", days=-1),
    }
    queries = {name: f"?cert={cert}&key={key}" for name, (cert, key) in files.items()}
    brokers = {
        "good": ["fmqps", "lightmqs"],
        "named": ["fmqps"],
        "expired": ["fmqps"],
        "mutual": ["fmqps"],
    }
    queries["mutual"] = f"{queries['good']}&client_ca={ours.file}"
    running = {
        name: BrokerProcess(
            "--ephemeral",
            *(
                argument
                for protocol in protocols
                for argument in ("--listen", f"{protocol}://127.0.0.1:0{queries[name]}")
            ),
        )
        for name, protocols in brokers.items()
    }
    try:
        with FaultServer() as server, FaultServer(files["good"]) as over_tls:
            plain = ("silent", "garbage", "fin", "reset", "refused")
            ports = {name: server.ports[name] for name in plain}
            ports["late"] = over_tls.ports["late"]
            ports |= running["good"].ports
            ports |= {name: running[name].ports["fmqps"] for name in brokers if name != "good"}
            (folder / "ports.json").write_text(json.dumps(ports))
            yield
    finally:
        for broker in running.values():
            broker.end()
