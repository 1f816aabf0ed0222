"""Crowds that want nothing but to be there: whoever behaves well still gets in."""

import contextlib
import functools
import http.client
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_broker.client import connect
from tests.host_broker.net.broker_process import BrokerProcess, broker, until
from tests.host_broker.net.certificates import Authority
from tests.host_broker.net.fq_client import FqClient

AUTO = ("--listen", "auto://127.0.0.1:0")
ENTERS_S = 5.0
_HELD = "motemq_clients_held "
HEAD = b"GET /stats HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


class Crowd:
    """``size`` connections that say ``word``, then a byte each again and again; those that are
    ended come back."""

    def __init__(self, port: int, size: int, word: bytes) -> None:
        self._port = port
        self._word = word
        self._stop = threading.Event()
        self.came = 0
        self._sockets = [self._connected() for _ in range(size)]
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _connected(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        sock.sendall(self._word)
        sock.setblocking(False)
        self.came += 1
        return sock

    def _work(self) -> None:
        while not self._stop.is_set():
            for number, sock in enumerate(self._sockets):
                if self._stop.is_set():
                    return
                try:
                    sock.send(b"x")
                    if select.select([sock], [], [], 0)[0] and not sock.recv(100):
                        raise ConnectionResetError
                except OSError:
                    sock.close()
                    with contextlib.suppress(OSError):
                        self._sockets[number] = self._connected()

    def end(self) -> None:
        self._stop.set()
        self._thread.join(30)
        for sock in self._sockets:
            sock.close()


@contextlib.contextmanager
def crowd(port: int, size: int, word: bytes) -> Iterator[Crowd]:
    made = Crowd(port, size, word)
    try:
        yield made
    finally:
        made.end()


def everybody_enters(running: BrokerProcess) -> None:
    """A client of each kind comes, is served, and leaves, in time."""
    began = time.monotonic()
    url = running.urls["auto"]
    for scheme in ("fmqp", "lightmq"):
        with connect(url.replace("auto", scheme), timeout_s=ENTERS_S) as client:
            client.ping(ENTERS_S)
    client = http.client.HTTPConnection("127.0.0.1", running.ports["auto"], timeout=ENTERS_S)
    with contextlib.closing(client):
        for _ in range(2):  # the second one by the same connection
            client.request("GET", "/stats")
            assert client.getresponse().read()
    assert time.monotonic() - began < ENTERS_S


def open_files(running: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{running.process.pid}/fd"))


@pytest.mark.parametrize("word", [HEAD, b"G", b"\x16\x03\x01\x02\x00"], ids=["head", "G", "tls"])
def test_those_who_say_nothing_whole_give_way(tmp_path: Path, word: bytes) -> None:
    cert, key = Authority(tmp_path, "ours").issue("broker")
    listen = ("--listen", f"auto://127.0.0.1:0?cert={cert}&key={key}")
    limits = ("--set", "net.max_connections=60", "--set", "net.max_unrecognised=50")
    with broker(*listen, *limits, "--data", str(tmp_path / "data")) as running:
        before = open_files(running)
        with crowd(running.ports["auto"], 200, word) as slow:
            everybody_enters(running)
            assert open_files(running) <= before + 62
            assert slow.came > 200  # they were ended, and came again
        everybody_enters(running)
        code, said = running.end()
    assert code == 0
    assert "Traceback" not in said


def test_a_request_whose_head_never_ends_is_ended(tmp_path: Path) -> None:
    options = ("--set", "net.first_bytes_s=0.5")
    with broker(*AUTO, *options, "--data", str(tmp_path)) as running:
        with running.raw("auto") as slow:
            slow.sendall(HEAD)
            began = time.monotonic()
            with contextlib.suppress(ConnectionResetError):
                assert slow.recv(1) == b""
            assert time.monotonic() - began < 5.0
        everybody_enters(running)


def test_overlong_http_lines_are_one_line_of_the_log(tmp_path: Path) -> None:
    began = time.monotonic()
    with broker(*AUTO, "--data", str(tmp_path)) as running:
        for _ in range(500):
            with running.raw("auto") as client, contextlib.suppress(ConnectionError):
                client.sendall(b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n")
                while client.recv(4096):
                    pass
        code, said = running.end()
    assert code == 0
    assert said.startswith("broker: HTTP: 127.0.0.1 was refused (LineTooLong): ")
    assert "Traceback" not in said
    assert len(said.splitlines()) <= 1 + (time.monotonic() - began) / 60  # a count after a minute


def test_idle_http_clients_give_way(tmp_path: Path) -> None:
    with broker(*AUTO, "--set", "net.max_connections=20", "--data", str(tmp_path)) as running:
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                sock = stack.enter_context(running.raw("auto"))
                sock.sendall(b"GET /stats HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert sock.recv(4096).startswith(b"HTTP/1.1 200")
            everybody_enters(running)
        assert running.end()[0] == 0


def test_publishers_that_hung_up_while_a_queue_was_full_give_way_to_its_consumer(
    tmp_path: Path,
) -> None:
    queue = b"jobs\0mem:private,block,permanent,backlog=3"
    job = b"\0\6\0\0\0\1jobs/1x"
    options = (*AUTO, "--set", "net.max_connections=6", "--data", str(tmp_path))

    def are_held(count: int, running: BrokerProcess) -> bool:
        page = http.client.HTTPConnection("127.0.0.1", running.ports["auto"], timeout=20)
        with contextlib.closing(page):
            page.request("GET", "/metrics")
            lines = page.getresponse().read().decode().splitlines()
        return float(next(each for each in lines if each.startswith(_HELD)).split()[1]) == count

    with broker(*options) as running:
        port = running.ports["auto"]
        with FqClient(port, queue, data=False) as client:
            client.bind_permanently(b"jobs", b"prefix:")
        for count in range(1, 6):
            with running.raw("auto") as publisher:
                publisher.sendall(job * 3)
                until(functools.partial(are_held, count, running))
                publisher.sendall(job)
        with FqClient(port, queue) as consumer:
            assert consumer.payloads(3) == [b"x"] * 3
        assert running.end() == (0, "")


def test_few_descriptors_are_kept_for_the_journal(tmp_path: Path) -> None:
    """64 of them, and more connections than that: the journal begins segments all the same."""
    small = ("--set", "journal.segment_bytes=20000", "--set", "journal.partitions=1")
    small += ("--set", "journal.ack=synced")  # each answer is for a block of its own
    limits = "ulimit -n 64;"
    with broker(*AUTO, *small, "--data", str(tmp_path), shell_prefix=limits) as running:
        with contextlib.ExitStack() as stack:
            url = running.urls["auto"].replace("auto", "fmqp")
            publisher = stack.enter_context(connect(url))
            publisher.sync()
            idle = [stack.enter_context(running.raw("auto")) for _ in range(100)]
            for sock in idle:
                sock.sendall(b"\x80\1\0\0\0\0t")  # FMQP: whoever subscribes stays
            until(lambda: open_files(running) > 30)
            for number in range(300):
                publisher.publish("t/a", number.to_bytes(4, "big") + bytes(1000))
                if number % 25 == 0:
                    publisher.sync()
            publisher.sync()
            assert len(list((tmp_path / "journal" / "p0000").glob("*.mjl"))) > 5
            # A newcomer waits until somebody leaves.
            with pytest.raises(TimeoutError), running.raw("auto") as late:
                late.settimeout(0.5)
                late.sendall(b"\x80\1\0\0\0\0l\0\1\0\0\0\1lx")
                late.recv(1)
        everybody_enters(running)
        code, said = running.end()
    assert code == 0
    assert "Traceback" not in said
    assert "the limit of open files allows no more" in said


def client_hello() -> bytes:
    """The first words of a TLS client."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_silent_handshakes_have_a_memory_budget(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    cert, key = authority.issue("broker")
    listen = f"auto://127.0.0.1:0?cert={cert}&key={key}"
    budget = 8 * 1024 * 1024
    options = ("--set", f"net.max_buffered_bytes={budget}")
    with broker("--listen", listen, *options, "--ephemeral") as running:
        url = running.urls["auto"].replace("auto", "fmqps") + f"?ca={authority.file}"
        with connect(url) as client:
            client.ping(ENTERS_S)
        before = running.rss_bytes()
        hello = client_hello()
        with contextlib.ExitStack() as stack:
            for _ in range(400):
                stack.enter_context(running.raw("auto")).sendall(hello)
            # There is no room for all of them at once; they make some, one after the other.
            with connect(url, timeout_s=60.0) as client:
                client.ping(ENTERS_S)
            assert running.rss_bytes() - before < 3 * budget
        assert running.end()[0] == 0
