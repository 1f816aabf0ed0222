"""SIGHUP: certificates and settings are loaded again, what cannot change is named."""

import contextlib
import dataclasses
import http.client
import os
import re
import select
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from host_broker.access.users import token_hash
from host_broker.client import connect
from host_broker.client_errors import ClientError
from host_broker.net.live_settings import LiveSettings
from host_broker.net.settings_source import load_settings, sections
from host_broker.settings import live_names
from tests.host_broker.net.broker_process import START_S, BrokerProcess, broker
from tests.host_broker.net.certificates import Authority

_PAGE = Path(__file__).parents[3] / "docs" / "settings.md"


def _hang_up(running: BrokerProcess) -> str:
    """Send SIGHUP and return the line that the broker says to it."""
    running.process.send_signal(signal.SIGHUP)
    stderr = running.process.stderr
    assert stderr is not None
    said = b""
    deadline = time.monotonic() + START_S
    while not said.endswith(b"\n"):
        ready, _, _ = select.select([stderr], [], [], deadline - time.monotonic())
        assert ready, said
        data = os.read(stderr.fileno(), 4096)
        assert data, f"it ended: {running.process.wait()}"
        said += data
    assert said.count(b"\n") == 1
    return said.decode().removeprefix("broker: ").strip()


def _status(port: int, token: str) -> int:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(client):
        client.request("GET", "/stats", headers={"Authorization": f"Bearer {token}"})
        return client.getresponse().status


def _connects(url: str) -> bool:
    try:
        with connect(url, timeout_s=20.0) as client:
            client.ping(20.0)
    except ClientError:
        return False
    return True


def test_settings_that_can_change_do_and_others_are_named(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"

    def write(text: str) -> None:
        config.write_text(f"[http]\ntoken = 'sha256:{sha256(text.encode()).hexdigest()}'\n")

    write("old")
    options = ("--config", str(config), "--data", str(tmp_path / "data"))
    with broker("--listen", "auto://127.0.0.1:0", *options) as running:
        port = running.ports["auto"]
        urls = [f"lightmq://127.0.0.1:{port}/{name}" for name in ("kitchen", "hall")]
        assert [_status(port, each) for each in ("old", "new")] == [200, 401]
        assert [_connects(url) for url in urls] == [True, True]
        write("new")
        with config.open("a") as file:
            file.write("[lightmq.clients]\nkitchen = ''\n")
            file.write("[journal]\nack = 'synced'\nmax_bytes = 5000000\n[bus]\nmax_body = 9\n")
        assert _hang_up(running) == (
            "SIGHUP: certificates are loaded again, and changed are journal.max_bytes, "
            "http.token, lightmq.clients; these need a restart: bus.max_body, journal.ack"
        )
        assert [_status(port, each) for each in ("old", "new")] == [401, 200]
        assert [_connects(url) for url in urls] == [True, False]
        assert _hang_up(running) == (
            "SIGHUP: certificates are loaded again; these need a restart: bus.max_body, journal.ack"
        )
        assert running.end() == (0, "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[net\n", "broker.toml is not TOML: Expected"),
        ("[net]\nmax_connections = 0\n", "net.max_connections is 0; it must be a whole number"),
        ("[net]\nmax_connections = 1\ntls_cert = 'nowhere.pem'\n", "net.tls_cert and net.tls_key"),
        (None, "cannot read --config"),
    ],
)
def test_a_bad_file_changes_nothing(tmp_path: Path, text: str | None, words: str) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("")
    listen = ("--listen", "auto://127.0.0.1:0", "--config", str(config), "--ephemeral")
    with broker(*listen) as running:
        with contextlib.ExitStack() as stack:
            for _ in range(2):
                client = stack.enter_context(connect(running.urls["auto"].replace("auto", "fmqp")))
                client.ping(20.0)
            if text is None:
                config.unlink()
            else:
                config.write_text(text)
            said = _hang_up(running)
            assert said.startswith("SIGHUP: ")
            assert words in said
            assert said.endswith("; the settings stay as they were")
        assert _connects(running.urls["auto"].replace("auto", "fmqp"))
        assert running.end() == (0, "")


def _shown(port: int) -> bytes:
    """Return the certificate that a newcomer is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
        context.wrap_socket(plain) as client,
    ):
        shown = client.getpeercert(binary_form=True)
        assert shown is not None
        return shown


def test_a_certificate_is_loaded_again_for_newcomers(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    cert, key = authority.issue("broker")
    listen = f"autos://127.0.0.1:0?cert={cert}&key={key}"
    with broker("--listen", listen, "--ephemeral") as running:
        port = running.ports["autos"]
        url = running.urls["autos"].replace("autos", "fmqps") + f"?ca={authority.file}"
        with connect(url) as there:
            before = _shown(port)
            authority.issue("broker")
            assert _shown(port) == before
            assert _hang_up(running) == "SIGHUP: certificates are loaded again"
            assert _shown(port) != before
            there.ping(20.0)  # who was there stays
            key.write_text("no key")
            assert "no certificate and its unencrypted key" in _hang_up(running)
            assert _connects(url)
        assert running.end() == (0, "")


@pytest.mark.parametrize("what", ["clients", "client_ca"])
def test_no_reload_opens_a_listener_to_other_machines(tmp_path: Path, what: str) -> None:
    """Who started it with authentication has not said --insecure-bind."""
    authority = Authority(tmp_path, "ours")
    cert, key = authority.issue("broker")
    config = tmp_path / "broker.toml"
    if what == "clients":
        closed = f'[lightmq.clients]\nhall = "{token_hash("a long random token")}"\n'
        opened = '[lightmq.clients]\nhall = ""\n'
    else:
        closed, opened = f'[net]\ntls_client_ca = "{authority.file}"\n', "[net]\n"
    config.write_text(closed)
    listen = f"lightmqs://0.0.0.0:0?cert={cert}&key={key}"
    with broker("--listen", listen, "--config", str(config)) as running:
        url = f"lightmqs://127.0.0.1:{running.ports['lightmqs']}/hall?ca={authority.file}"
        for text in (opened, "", opened):
            config.write_text(text)
            said = _hang_up(running)
            assert "without authentication" in said
            assert "the settings stay as they were" in said
        config.write_text(closed)
        assert "are loaded again" in _hang_up(running)
        assert not _connects(url)
        assert running.end()[0] == 0


def test_more_connections_have_more_files(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("[net]\nmax_connections = 5\nmax_unrecognised = 1\n")
    listen = ("--listen", "fmqp://127.0.0.1:0", "--config", str(config), "--ephemeral")
    with broker(*listen, shell_prefix="ulimit -Sn 60;") as running:
        config.write_text("[net]\nmax_connections = 200\nmax_unrecognised = 1\n")
        assert _hang_up(running).endswith("changed are net.max_connections")
        with contextlib.ExitStack() as stack:
            for _ in range(150):
                client = stack.enter_context(running.raw("fmqp"))
                client.sendall(b"\x80\1\0\0\0\0t\0\1\0\0\0\1tx")
                assert client.recv(100)
        assert running.end() == (0, "")


def test_what_changes_is_what_may(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(
        "[fmqp]\nbit_order = 'lsb'\n[net]\ndrain_s = 1\nslow_consumer = 'disconnect'\n"
    )
    before = load_settings(None, ["net.keepalive_idle_s=3", "lightmq.dialect=gbaranski"])
    live = LiveSettings(before)
    changes = live.change(load_settings(config))
    assert changes.live == ("net.drain_s", "net.keepalive_idle_s")
    assert changes.fixed == ("net.slow_consumer", "fmqp.bit_order", "lightmq.dialect")
    assert live.net == dataclasses.replace(before.net, drain_s=1.0, keepalive_idle_s=15.0)
    assert live.all.protocols["lightmq"].dialect == "gbaranski"
    assert live.all.journal == before.journal


def _live() -> Iterator[str]:
    for section, kind in sections().items():
        names = [field.name for field in dataclasses.fields(kind)]
        assert live_names(kind) <= set(names)
        yield from (f"{section}.{name}" for name in names if name in live_names(kind))


def test_the_page_names_what_may_change() -> None:
    text = _PAGE.read_text().partition("## What can change")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"`(\w+\.\w+)`", text)) == sorted(_live())
