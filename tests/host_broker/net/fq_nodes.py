"""Brokers that take messages from each other: real processes, with rows of upstream."""

import contextlib
import functools
import json
import signal
import sqlite3
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from benchmarks.ports import port_for_later
from host_broker.client import Client, connect
from tests.host_broker.net.broker_process import BrokerProcess, until

PATIENCE_S = 30.0
ON_DISK = "disk:private,block,permanent,backlog=100000"


class Node:
    """One broker of a ring. Its port stays the same when it is started again."""

    def __init__(self, folder: Path, node_id: str) -> None:
        self.folder = folder
        self.node_id = node_id
        self.port = port_for_later()
        self.start()

    def start(self) -> None:
        self.process = BrokerProcess(
            "--listen",
            f"fq://127.0.0.1:{self.port}",
            "--data",
            str(self.folder),
            "--set",
            f"fq.node_id={self.node_id}",
        )

    def kill(self) -> None:
        self.process.end(signal.SIGKILL)

    def takes_from(self, other: "Node", queue: str, exchange: str = "ring") -> None:
        self.change(
            "INSERT INTO upstream (host, port, source, password, exchange, permanent_binding) "
            "VALUES (?, ?, ?, ?, ?, 'true')",
            ("127.0.0.1", other.port, f"peer/{queue}", "", exchange),
        )

    def change(self, statement: str, values: tuple[object, ...] = ()) -> None:
        with contextlib.closing(sqlite3.connect(self.folder / "fq.sqlite", timeout=10)) as tables:
            tables.execute(statement, values)
            tables.commit()

    def statistics(self) -> dict[str, dict[str, dict[str, object]]]:
        url = f"http://127.0.0.1:{self.port}/stats.json"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found: dict[str, dict[str, dict[str, object]]] = json.load(answer)
        return found

    def gives_to(self, queue: str) -> bool:
        """Whether a peer has both connections, and the binding."""
        found = self.statistics()
        clients = found["queues"].get(queue, {}).get("clients", [])
        routes = found["exchanges"].get("ring", {}).get("routes", {})
        assert isinstance(clients, list)
        assert isinstance(routes, dict)
        bound = any(route["queue"] == queue for route in routes.values())
        return bound and any("msgs_out" in client for client in clients)

    def client(self, queue: str, program: str = "prefix:") -> Client:
        address = f"fq://{queue}@127.0.0.1:{self.port}/{queue}/mem:private,drop,backlog=100000"
        return connect(f"{address}?exchange=ring&program={program}", timeout_s=PATIENCE_S)

    def publisher(self) -> Client:
        return connect(f"fq://pub@127.0.0.1:{self.port}", timeout_s=PATIENCE_S)


@contextlib.contextmanager
def three(folder: Path, steps: tuple[int, ...]) -> Iterator[list[Node]]:
    """Three brokers, each of which takes from those so many steps behind it, by queues on disk."""
    nodes: list[Node] = []
    ways = [((taker - step) % 3, taker) for taker in range(3) for step in steps]
    try:
        nodes += [Node(folder / str(each), f"192.0.2.{each + 1}") for each in range(3)]
        for giver, taker in ways:
            nodes[taker].takes_from(nodes[giver], f"for-{taker}/{ON_DISK}")
        for giver, taker in ways:
            until(functools.partial(nodes[giver].gives_to, f"for-{taker}"))
        yield nodes
    finally:
        for node in nodes:
            if node.process.process.poll() is None:
                node.kill()
