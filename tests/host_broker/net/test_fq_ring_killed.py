"""A ring of three brokers under load, of which some are killed again and again."""

import contextlib
import functools
import http.client
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.host_broker.net.broker_process import until
from tests.host_broker.net.fq_client import FqClient
from tests.host_broker.net.fq_nodes import ON_DISK, PATIENCE_S, Node, three

_AT_EACH = 2  # programs that publish at each broker
_BETWEEN = 300  # messages from one kill to the next
_ALL = b"all\0disk:private,block,permanent,backlog=100000"


class _Load:
    """Programs that submit messages to a broker, one after the other, whatever becomes of it.

    No more than they may, so that a broker that starts has the machine's time.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self.acknowledged: list[str] = []
        self._may = threading.Semaphore(0)
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._submit, args=(node, f"{number}.{each}"), daemon=True)
            for number, node in enumerate(nodes)
            for each in range(_AT_EACH)
        ]
        for thread in self._threads:
            thread.start()

    def may(self, more: int) -> None:
        """Allow so many messages more."""
        self._may.release(more)

    def _submit(self, node: Node, name: str) -> None:
        count = 0
        while not self._ended.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=PATIENCE_S)
            try:
                while self._may.acquire() and not self._ended.is_set():
                    count += 1
                    payload = f"{name}.{count}"
                    submit(connection, payload)
                    self.acknowledged.append(payload)
            except (OSError, http.client.HTTPException):
                self._may.release()
                self._ended.wait(0.1)  # it was killed
            finally:
                connection.close()

    def end(self) -> None:
        self._ended.set()
        self._may.release(len(self._threads))
        for thread in self._threads:
            thread.join(2 * PATIENCE_S)
            assert not thread.is_alive()


def submit(connection: http.client.HTTPConnection, payload: str) -> None:
    headers = {"X-Fq-Exchange": "ring", "X-Fq-Route": "r"}
    connection.request("POST", "/submit", payload.encode(), headers)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200


def heard(node: Node, last: set[str]) -> Counter[str]:
    """Return how often each message is in the queue on disk, which ends with ``last``."""
    found: Counter[str] = Counter()
    with FqClient(node.port, _ALL) as consumer:
        while last - found.keys():
            found[consumer.receive()[3].decode()] += 1
    return found


def test_what_is_acknowledged_comes_to_all_exactly_once(tmp_path: Path) -> None:
    """R45, R46: whichever is killed in the middle of it: who was given it, or who has taken it."""
    kill_and_compare(tmp_path, [{1}, {0, 2}])


def test_a_broker_that_is_made_anew_is_taken_from_its_beginning(tmp_path: Path) -> None:
    """Its numbers begin again: up to where the other one has had those of the old one means
    nothing, also when it goes again before it is given any, and they have come so far."""
    giver, taker = Node(tmp_path / "giver", "192.0.2.1"), Node(tmp_path / "taker", "192.0.2.2")
    linked = functools.partial(giver.gives_to, "for-us")

    def submitted(name: str, last: str) -> None:
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", giver.port, timeout=PATIENCE_S)
        ) as connection:
            for number in range(_BETWEEN):
                submit(connection, f"{name} {number}")
            submit(connection, last)

    try:
        with FqClient(taker.port, _ALL, data=False) as consumer:
            consumer.bind_permanently(b"ring", b"prefix:")
        taker.takes_from(giver, f"for-us/{ON_DISK}")
        until(linked)
        submitted("old", "the last old one")
        assert len(heard(taker, {"the last old one"})) == _BETWEEN + 1
        giver.kill()
        giver.folder = tmp_path / "anew"
        giver.start()
        until(linked)
        taker.kill()
        until(lambda: not linked())
        submitted("new", "the last new one")
        taker.start()
        found = heard(taker, {"the last new one"})
        assert found == Counter([*(f"new {each}" for each in range(_BETWEEN)), "the last new one"])
    finally:
        for node in (giver, taker):
            if node.process.process.poll() is None:
                node.kill()


def kill_and_compare(folder: Path, killed: Iterable[set[int]]) -> None:
    """Have three brokers under load, kill some of them, at once, and others later."""
    with three(folder, (1,)) as nodes:
        for node in nodes:
            with FqClient(node.port, _ALL, data=False) as consumer:
                consumer.bind_permanently(b"ring", b"prefix:")
        load = _Load(nodes)
        for which in killed:
            enough = len(load.acknowledged) + _BETWEEN
            load.may(2 * _BETWEEN)  # half of them while nobody is killed
            until(lambda enough=enough: len(load.acknowledged) >= enough)  # type: ignore[misc]
            for each in which:
                nodes[each].kill()
            for each in which:
                nodes[each].start()
        load.end()
        for taker in range(3):
            until(functools.partial(nodes[taker - 1].gives_to, f"for-{taker}"))
        # What is behind all else on all ways round.
        last = {f"last {number}" for number in range(3)}
        for number, node in enumerate(nodes):
            connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=PATIENCE_S)
            submit(connection, f"last {number}")
            connection.close()
        for node in nodes:
            found = heard(node, last)
            assert set(load.acknowledged) - found.keys() == set()
            assert {payload: count for payload, count in found.items() if count > 1} == {}
