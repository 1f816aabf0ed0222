"""UMQ over sockets: every listener, slow clients, the past, the end."""

import asyncio
import contextlib
import functools
import http.client
import json
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import motemq
from host_broker.bus.publication import pack
from tests.host_broker.net.broker_process import END_S, broker, until
from tests.host_broker.net.broker_process import motemq as command
from tests.host_broker.net.certificates import Authority
from tests.host_broker.net.umq_client import Closed, UmqClient, connected, connected_by_tls


def _round_trip(client: UmqClient) -> None:
    client.call("subscribe", "live/**", "A")
    assert client.call("publish", "live/x", "1") == {"published": 1}
    assert client.next_update()["text"] == "1"


@pytest.mark.parametrize("listener", ["umq", "auto", "http", "fq"])
def test_at_every_listener_that_speaks_http(listener: str) -> None:
    """A23: what is asked of it besides is HTTP's."""
    with broker("--listen", f"{listener}://127.0.0.1:0", "--ephemeral") as running:
        port = running.ports[listener]
        client = connected(port)
        assert client.welcome["broker"].startswith("MoteMQ ")
        _round_trip(client)
        (own,) = client.call("clients")["clients"]
        assert own["protocol"] == "umq"
        assert own["received"] > 0 < own["sent"]
        assert own["rtt_ms"] > 0
        assert abs(own["since"] / 1000 - time.time()) < 60
        stats = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/stats", timeout=20))
        assert stats["clients"] == {"umq": 1}
        said = client.call("stats")["stats"]
        assert {**stats, "at": said["at"], "up_s": said["up_s"]} == said
        client.close()


def test_the_first_bytes_may_come_one_by_one() -> None:
    with broker("--listen", "auto://127.0.0.1:0", "--ephemeral") as running:
        client = UmqClient(_Slowly(running.raw("auto")))  # type: ignore[arg-type]
        _round_trip(client)
        client.close()


class _Slowly:
    """A socket that sends each byte by itself."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock

    def sendall(self, data: bytes) -> None:
        for at in range(len(data)):
            self._sock.sendall(data[at : at + 1])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def test_by_tls_and_at_a_unix_socket(tmp_path: Path) -> None:
    """`umqs://`, `https://`, `autos://` and `umq+unix://`; a certificate says who it is."""
    authority = Authority(tmp_path, "ca")
    cert, key = authority.issue("server")
    desk = authority.issue("desk")
    tls = f"cert={cert}&key={key}&client_ca={authority.file}"
    listen = [f"{scheme}://127.0.0.1:0?{tls}" for scheme in ("umqs", "https", "autos")]
    unix = tmp_path / "umq.sock"
    arguments = [part for each in (*listen, f"umq+unix://{unix}") for part in ("--listen", each)]
    with broker(*arguments, "--ephemeral") as running:
        files = str(desk[0]), str(desk[1])
        for scheme in ("umqs", "https", "autos"):
            client = connected_by_tls(running.ports[scheme], str(authority.file), files)
            assert client.welcome["principal"] == "desk"
            _round_trip(client)
            client.close()
        local = socket.socket(socket.AF_UNIX)
        local.connect(str(unix))
        client = UmqClient(local)
        _round_trip(client)
        assert client.call("clients")["clients"][-1]["rtt_ms"] is None
        client.close()


def test_a_client_that_others_have_written() -> None:
    """aiohttp's, in one event loop with nothing of ours."""

    async def talk(port: int) -> list[str]:
        heard: list[str] = []
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"ws://127.0.0.1:{port}/umq", compress=15) as ws,
        ):
            await ws.send_str("H1:")
            await ws.send_str('C1:["subscribe","a","A"]')
            await ws.send_str('A1:C2:["publish","a",null]')
            await ws.send_bytes(b"\xff" * 100_000)
            for _ in range(5):
                message = await ws.receive(timeout=20)
                heard.append(
                    message.data if isinstance(message.data, str) else str(len(message.data))
                )
            assert await ws.close()
            assert ws.close_code == 1000
        return heard

    with broker("--listen", "auto://127.0.0.1:0", "--ephemeral") as running:
        heard = asyncio.run(talk(running.ports["auto"]))
    assert [each.partition("[")[0].partition("{")[0] for each in heard] == [
        "W1:",
        "R1:",
        "R2:",
        "A1:TA:",
        "100000",
    ]


def test_a_connection_that_was_used_for_http_is_none_for_a_websocket() -> None:
    """Browsers take another one; programs with a pool of them are told."""
    with (
        broker("--listen", "umq://127.0.0.1:0", "--ephemeral") as running,
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", running.ports["umq"])) as used,
    ):
        used.request("GET", "/healthz")
        assert json.load(used.getresponse())["status"] == "ok"
        used.request("GET", "/umq", headers={"Upgrade": "websocket", "Connection": "Upgrade"})
        answer = used.getresponse()
        assert answer.status == 421
        assert "connection of its own" in json.load(answer)["error"]


def test_foreign_pages_get_no_websocket() -> None:
    """Nor a name that was made to point here."""
    with broker("--listen", "auto://127.0.0.1:0", "--ephemeral") as running:
        port = running.ports["auto"]
        for headers, host in (
            ([("Origin", "http://evil.example")], "127.0.0.1"),
            ([], "evil.example"),
        ):
            client = connected(port, hello=None, host=host, headers=headers)
            said = json.loads(str(client.hear()))
            assert "error" in said
            with pytest.raises(Closed) as closed:
                client.hear()
            assert closed.value.code == 403
            client.close()


def test_a_slow_client_slows_nobody_and_is_told_what_it_lost() -> None:
    """It reads nothing while 60 MB are published; its drops are counted everywhere."""
    limits = ("--set", "umq.max_waiting_bytes=100000", "--set", "umq.ping_interval_s=0")
    with broker("--listen", "auto://127.0.0.1:0", "--ephemeral", *limits) as running:
        port = running.ports["auto"]
        slow, quick = connected(port), connected(port)
        slow.call("subscribe", "flood", "A")
        publisher = running.raw("auto")
        body = b"x" * 60_000
        for number in range(1000):
            publisher.sendall(pack(0, b"flood", b"%05d" % number + body))
        publisher.sendall(pack(0, b"end", b"end"))
        # The publisher was read to its end though nobody took anything.
        until(lambda: quick.call("stats")["stats"]["publications"] == 1001)
        stats = quick.call("stats")["stats"]
        dropped = stats["dropped"]["umq"]["messages"]
        assert dropped > 500
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20).read()
        assert f'motemq_dropped_messages_total{{protocol="umq"}} {dropped}.0'.encode() in metrics
        waiting = {each["id"]: each["waiting_bytes"] for each in quick.call("clients")["clients"]}
        assert 0 < max(waiting.values()) < 4_000_000
        told = lost = 0
        while told + lost < 1000:
            each = slow.next_update()
            if "dropped" in each:
                lost += each["dropped"]
            else:
                number = int(each["text"][:5])
                told += 1
                assert number == told + lost - 1
        assert number == 999
        assert lost == quick.call("stats")["stats"]["dropped"]["umq"]["messages"]
        with motemq.connect(f"fmqp://127.0.0.1:{port}") as client:
            losses = client.subscribe("$/info/dropped/umq/slow")
            message = losses.receive(20.0)
            assert message is not None
            assert int.from_bytes(message.payload, "big") == lost
        for each in (slow, quick, publisher):
            each.close()


def test_a_client_that_takes_nothing_for_too_long_is_disconnected() -> None:
    """net.stalled_receiver_s, as for every protocol."""
    limits = ("--set", "net.stalled_receiver_s=1", "--set", "umq.ping_interval_s=0")
    with broker("--listen", "auto://127.0.0.1:0", "--ephemeral", *limits) as running:
        port = running.ports["auto"]
        slow, quick = connected(port), connected(port)
        slow.call("subscribe", "flood", "A")
        publisher = running.raw("auto")

        def gone() -> bool:
            for _ in range(20):
                publisher.sendall(pack(0, b"flood", b"x" * 60_000))
            return len(quick.call("clients")["clients"]) == 2  # quick and the publisher

        until(gone)
        for each in (slow, quick, publisher):
            each.close()


def test_the_past_with_a_journal_and_without(tmp_path: Path) -> None:
    """history: what FMQP published, by number and by time; the same after a restart."""
    for data in (tmp_path / "data", None):
        where = ["--data", str(data)] if data is not None else ["--ephemeral"]
        source = "journal" if data is not None else "memory"
        with broker("--listen", "auto://127.0.0.1:0", *where) as running:
            client, board = connected(running.ports["auto"]), running.raw("auto")
            board.sendall(b"".join(pack(0, b"a/%d" % (at % 3), b"%d" % at) for at in range(3000)))
            until(functools.partial(_has_published, client, 3000))
            _look_back(client, source)
            client.close()
            board.close()
        if data is not None:
            with broker("--listen", "auto://127.0.0.1:0", *where) as running:
                client = connected(running.ports["auto"])
                _look_back(client, source)
                journal = client.call("journal")["journal"]
                assert sum(each["next"] for each in journal["partitions"]) == 3000
                client.close()


def _has_published(client: UmqClient, count: int) -> bool:
    return bool(client.call("stats")["stats"]["publications"] == count)


def _look_back(client: UmqClient, source: str) -> None:
    said = client.call("history", "a/1", {"last": 5})
    assert said["source"] == source
    assert said["more"]
    assert [each["text"] for each in said["publications"]] == [
        "2986",
        "2989",
        "2992",
        "2995",
        "2998",
    ]
    times = [each["at"] for each in said["publications"]]
    assert times == sorted(times)
    since = client.call("history", "a/*", {"from": times[0] - 60_000, "limit": 7})
    assert [each["text"] for each in since["publications"]] == list("0123456")
    assert since["more"]
    later = client.call("history", "a/*", {"from": times[-1] + 60_000})
    assert (later["publications"], later["more"]) == ([], False)


def test_a_board_is_called_and_pinged() -> None:
    """A real LightMQ client answers."""
    with broker("--listen", "auto://127.0.0.1:0", "--ephemeral") as running:
        client = connected(running.ports["auto"])
        url = f"lightmq://127.0.0.1:{running.ports['auto']}/kitchen"
        with motemq.connect(url) as board:
            asked = threading.Thread(target=_answer_one, args=(board,))
            asked.start()
            until(lambda: len(client.call("clients")["clients"]) == 2)
            assert client.call("call", "kitchen", "warm?") == {"answer": "yes: warm?"}
            asked.join(20)
            said = client.call("ping", "kitchen")
            assert 0 < said["ms"] < 10_000
        until(lambda: len(client.call("clients")["clients"]) == 1)
        assert client.call("ping", "kitchen").startswith("7 ")
        client.close()


def _answer_one(board: Any) -> None:
    inbox = board.subscribe("down")
    message = inbox.receive(20.0)
    board.respond(message, b"yes: " + message.payload)


def test_at_a_stop_clients_hear_wills_and_then_the_end() -> None:
    with broker("--listen", "auto://127.0.0.1:0", "--ephemeral") as running:
        client, board = connected(running.ports["auto"]), running.raw("auto")
        client.call("subscribe", "will/*", "A", {"every_ms": 60_000})
        board.sendall(pack(0x08, b"will/board", b"gone") + pack(0, b"will/live", b"1"))
        assert client.next_update()["text"] == "1"
        running.process.send_signal(signal.SIGTERM)
        assert client.next_update()["text"] == "gone"
        with pytest.raises(Closed):
            client.hear()
        code, _ = running.wait()
        assert code == 0
        client.close()
        board.close()


def test_its_settings_are_checked_as_any() -> None:
    """The address and the settings are those of any protocol."""
    done = subprocess.run(
        command(
            "broker", "--ephemeral", "--listen", "umq://127.0.0.1:0", "--set", "umq.max_text=1"
        ),
        capture_output=True,
        timeout=END_S,
        check=False,
    )
    assert done.returncode == 2
    assert b"umq.max_text" in done.stderr


def test_a_hundred_clients_share_one_publication() -> None:
    with broker("--listen", "auto://127.0.0.1:0", "--ephemeral") as running:
        port = running.ports["auto"]
        with contextlib.ExitStack() as stack:
            clients = [connected(port) for _ in range(100)]
            for client in clients:
                stack.callback(client.close)
                client.call("subscribe", "all", "A")
            clients[0].call("publish", "all", "hello")
            assert [client.next_update()["text"] for client in clients] == ["hello"] * 100
