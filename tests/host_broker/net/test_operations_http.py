"""``/healthz`` and ``/metrics``: there on every listener that speaks HTTP, with or without data."""

import contextlib
import http.client
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from host_broker.net import metrics
from host_broker.net.settings_source import sections
from tests.host_broker.net.broker_process import BrokerProcess, broker, until

_LIMITED = (
    *("--listen", "auto://127.0.0.1:0?slow=drop-newest"),
    *("--set", "bus.max_body=1000"),
    *("--set", "bus.max_retained=2"),
    *("--set", "bus.max_subscriptions=3"),
    *("--set", "fmqp.max_wills=1"),
    *("--set", "fmqp.hard_body_limit=100000"),
    *("--set", "fmqp.idle_timeout_s=0.3"),
    *("--set", "lightmq.connect_timeout_s=0.2"),
    *("--set", "net.first_bytes_s=0.5"),
    *("--set", "net.max_connections=6"),
    *("--set", "bus.max_discards_per_s=100"),
)

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def plain() -> Iterator[BrokerProcess]:
    with broker("--listen", "auto://127.0.0.1:0", "--ephemeral") as running:
        yield running


@pytest.fixture(scope="module")
def limited() -> Iterator[BrokerProcess]:
    with broker(*_LIMITED) as running:
        yield running


def _get(running: BrokerProcess, path: str, **headers: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", running.ports["auto"], timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers["Content-Type"]
    finally:
        connection.close()


def _scrape(running: BrokerProcess) -> Samples:
    status, text, _ = _get(running, "/metrics")
    assert status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }


def _value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)


def _packet(flags: int, topic: bytes, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return struct.pack(">BBI", flags, len(topic), size) + topic + body


def test_a_broker_that_keeps_nothing_says_that_it_is_well(plain: BrokerProcess) -> None:
    status, text, _ = _get(plain, "/healthz")
    assert status == 200
    said = json.loads(text)
    assert said["status"] == "ok"
    assert said["troubles"] == []
    assert said["up_s"] > 0


def test_the_first_request_of_all_comes_through_whole() -> None:
    """It arrives before the pages are loaded; a pipelined second one is behind it."""
    with (
        broker("--listen", "auto://127.0.0.1:0", "--ephemeral") as running,
        running.raw("auto") as peer,
    ):
        head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
        peer.sendall(head + b"\r\n" + head + b"Connection: close\r\n\r\n")
        got = b""
        while data := peer.recv(65536):
            got += data
        assert got.count(b"HTTP/1.1 200 OK") == 2


def test_two_real_parsers_read_the_page(plain: BrokerProcess) -> None:
    status, text, kind = _get(plain, "/metrics")
    assert status == 200
    assert kind.startswith("text/plain")
    families = {family.name: family for family in parse_text(text)}
    status, text, kind = _get(
        plain, "/metrics", Accept="application/openmetrics-text; version=1.0.0"
    )
    assert kind.startswith("application/openmetrics-text")
    assert {family.name for family in parse_openmetrics(text)} >= {"motemq_publications"}
    for name, family in metrics.FAMILIES.items():
        assert families[name].type == family.kind
        assert families[name].documentation == family.help
    assert "process_open_fds" in families


def test_every_limit_among_the_settings_has_its_value_and_its_counter(
    plain: BrokerProcess,
) -> None:
    named = {
        f"{section}.{field}"
        for section, kind in sections().items()
        for field in kind.__dataclass_fields__
        if field.startswith(("max_", "hard_")) or field in ("idle_timeout_s", "outbox_high_bytes")
    }
    assert named == (named & set(metrics.LIMITS)) | metrics.SIZES
    assert not metrics.SIZES & set(metrics.LIMITS)
    samples = _scrape(plain)
    for limit, family in metrics.LIMITS.items():
        assert family in metrics.FAMILIES
        assert _value(samples, "motemq_limit", setting=limit) >= 0
        assert ("motemq_limit", frozenset({("setting", limit)})) in samples


def test_limits_that_strike_are_counted(limited: BrokerProcess) -> None:
    def discarded(rule: str) -> float:
        return _value(_scrape(limited), "motemq_discarded_total", protocol="fmqp", reason=rule)

    with limited.raw("auto") as client:
        client.sendall(_packet(0, b"t", bytes(2000)))  # bus.max_body
        client.sendall(b"".join(_packet(0x04, b"kept/%d" % n, b"x") for n in range(5)))
        client.sendall(b"".join(_packet(0x80, b"some/%d" % n, b"") for n in range(5)))
        client.sendall(b"".join(_packet(0x08, b"will/%d" % n, b"x") for n in range(3)))
        client.sendall(_packet(0, b"//", b"x") * 60)
        until(lambda: discarded("bus.max_subscriptions") == 2)
        samples = _scrape(limited)
        assert _value(samples, "motemq_retained_refused_total") >= 3
        assert _value(samples, "motemq_retained_messages") == 2
    with limited.raw("auto") as greedy:
        greedy.sendall(_packet(0, b"t", b"", 200_000))
        assert greedy.recv(1) == b""
    reasons = {
        dict(labels)["reason"]: value
        for (name, labels), value in _scrape(limited).items()
        if name == "motemq_discarded_total"
    }
    assert set(reasons) >= {"bus.max_body", "bus.max_subscriptions", "fmqp.max_wills"}
    closed = {
        dict(labels)["reason"]: value
        for (name, labels), value in _scrape(limited).items()
        if name == "motemq_clients_closed_total"
    }
    assert "fmqp.hard_body_limit" in closed


def test_who_says_nothing_or_nonsense_is_counted(limited: BrokerProcess) -> None:
    def refused(reason: str) -> float:
        return _value(_scrape(limited), "motemq_connections_refused_total", reason=reason)

    before = refused("unknown"), refused("no certificate"), refused("net.first_bytes_s")
    with limited.raw("auto") as odd, limited.raw("auto") as tls, limited.raw("auto") as silent:
        odd.sendall(b"\xff\xfe\xfd\xfc\xfb\xfa" * 4)
        tls.sendall(b"\x16\x03\x01\x00\x05hello")
        assert silent.recv(1) == b""  # after net.first_bytes_s
    until(lambda: refused("net.first_bytes_s") == before[2] + 1)
    assert refused("unknown") == before[0] + 1
    assert refused("no certificate") == before[1] + 1


def test_idle_and_unfinished_clients_are_counted(limited: BrokerProcess) -> None:
    with limited.raw("auto") as idle:
        idle.sendall(_packet(0, b"t", b"x"))
        assert idle.recv(1) == b""
    samples = _scrape(limited)
    assert _value(samples, "motemq_clients_disconnected_total", reason="idle") >= 1


def test_connections_beyond_the_limit_are_counted(limited: BrokerProcess) -> None:
    def refused() -> bool:
        """Let one more in than there may be; when there is room again, look what is counted."""
        with contextlib.ExitStack() as stack:
            for _ in range(7):
                peer = stack.enter_context(limited.raw("auto"))
                with contextlib.suppress(OSError):
                    peer.sendall(_packet(0, b"t", b"x"))
            with contextlib.suppress(OSError):
                peer.recv(1)  # the last one's end: there was no room, or it was idle
        with contextlib.suppress(OSError, http.client.HTTPException):
            counted = _value(
                _scrape(limited), "motemq_connections_refused_total", reason="net.max_connections"
            )
            return counted >= 1
        return False

    until(refused)  # at once, but on a machine so busy that the first is idle before the last comes


def test_publishers_that_wait_for_a_slow_receiver_are_counted() -> None:
    options = ("--set", "net.outbox_high_bytes=200000", "--set", "net.outbox_low_bytes=50000")
    with broker("--listen", "auto://127.0.0.1:0", "--ephemeral", *options) as running:
        with running.raw("auto") as sleeper, running.raw("auto") as publisher:
            sleeper.sendall(_packet(0x80, b"t", b""))
            publisher.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                for _ in range(200):
                    publisher.sendall(_packet(0, b"t", bytes(100_000)))
            samples = _scrape(running)
            assert _value(samples, "motemq_holds_total", reason="net.outbox_high_bytes") >= 1
            assert _value(samples, "motemq_clients_held") == 1
            assert _value(samples, "motemq_buffered_bytes") > 200_000
        assert running.end()[0] == 0


def test_requests_and_refusals_are_counted(plain: BrokerProcess) -> None:
    before = _scrape(plain)
    assert _get(plain, "/healthz", Host="evil.example")[0] == 403
    assert _get(plain, "/nowhere")[0] == 404
    after = _scrape(plain)

    def more(name: str, **labels: str) -> float:
        return _value(after, name, **labels) - _value(before, name, **labels)

    assert more("motemq_http_refused_total", reason="foreign host") == 1
    assert more("motemq_http_requests_total", method="GET", status="404") == 1
    assert more("motemq_http_requests_total", method="GET", status="403") == 1


def test_queues_whose_names_look_the_same_are_one_line() -> None:
    """Prometheus refuses a page that has a line twice."""
    name = metrics.printable(b"\xff")
    same = ("motemq_queue_messages", (name,), 2.0), ("motemq_queue_messages", (name,), 3.0)
    text = metrics.spelled(same, "")[0].decode()
    families = {family.name: family for family in parse_text(text)}
    assert [sample.value for sample in families["motemq_queue_messages"].samples] == [5.0]


def test_a_full_disk_is_a_trouble(tmp_path: Path) -> None:
    limit = "ulimit -f 300;"  # of 512 bytes: a file that grows beyond it finds no room
    options = ("--data", str(tmp_path), "--listen", "auto://127.0.0.1:0")
    with broker(
        *options,
        "--set",
        "journal.ack=memory",
        "--set",
        "journal.max_pending_bytes=1000",
        shell_prefix=limit,
    ) as running:
        with running.raw("auto") as publisher:
            publisher.sendall(_packet(0, b"t", bytes(100_000)) * 4)
            until(lambda: _value(_scrape(running), "motemq_journal_no_room_total") >= 1)
            assert _value(_scrape(running), "motemq_journal_full") == 1
            status, text, _ = _get(running, "/healthz")
            assert status == 503
            assert json.loads(text)["status"] == "troubled"
            assert "journal" in json.loads(text)["troubles"][0]
        running.process.kill()
