"""``connect("umq://…")`` and the command line, against a real broker."""

import asyncio
import contextlib
import json
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import motemq
from benchmarks.ports import port_for_later
from host_broker.access.users import User, token_hash
from host_broker.client import (
    BadArgument,
    ClientError,
    Message,
    NotSupported,
    NotThere,
    Refused,
    connect,
)
from host_broker.net.access.access_files import write_users
from host_broker.net.access.passwords import hash_password
from tests.host_broker.net.answering_board import answering
from tests.host_broker.net.broker_process import BrokerProcess, broker, until
from tests.host_broker.net.broker_process import motemq as command

_ANSWER_S = 20.0
_RUN_S = 60.0


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker("--listen", "auto://127.0.0.1:0", "--listen", "umq://127.0.0.1:0") as process:
        process.urls["lightmq"] = f"lightmq://127.0.0.1:{process.ports['auto']}"
        yield process


@pytest.fixture(params=["umq", "auto"])
def url(request: pytest.FixtureRequest, running: BrokerProcess) -> str:
    return f"umq://127.0.0.1:{running.ports[request.param]}"


def _received(messages: list[Message]) -> list[tuple[str, bytes]]:
    return [(message.topic, message.payload) for message in messages]


def test_text_and_bytes(url: str) -> None:
    bodies = [b"on", "ž\0\n".encode(), bytes(range(256)), b"\xff", b"x" * 100_000]
    with connect(url) as client:
        lamps = client.subscribe("py/*/lamp", confirm=True)
        for number, body in enumerate(bodies):
            client.publish(f"py/{number}/lamp", body)
        came = [lamps.receive(_ANSWER_S) for _ in bodies]
        expected = [(f"py/{number}/lamp", body) for number, body in enumerate(bodies)]
        assert _received([each for each in came if each is not None]) == expected


def test_retained_and_properties(url: str) -> None:
    with connect(url) as client:
        client.publish("py/kept", b"old", retain=True, properties={"unit": "°C"}, confirm=True)
        kept = client.subscribe("py/kept", confirm=True)
        message = kept.receive(_ANSWER_S)
        assert message is not None
        assert (message.payload, message.kept, message.retain) == (b"old", True, True)
        assert message.properties == {"unit": "°C"}
        client.publish("py/kept", b"new", confirm=True)
        message = kept.receive(_ANSWER_S)
        assert message is not None
        assert (message.payload, message.kept) == (b"new", False)
        client.publish("py/kept", b"", retain=True, confirm=True)


def test_what_is_active_has_told_what_was_kept(url: str) -> None:
    """As many as do not go out at once."""
    count = 3000
    body = b"x" * 200
    with connect(url) as client:
        for number in range(count):
            client.publish(f"py/many/{number}", body, retain=True)
        client.sync(_ANSWER_S)
        many = client.subscribe("py/many/*")
        assert [many.receive(_ANSWER_S) for _ in range(count)].count(None) == 0
        many.unsubscribe()
    with connect(url) as client:
        kept = client.subscribe("py/many/*", confirm=True)
        seen = 0
        while (message := kept.receive(0.0)) is not None:
            assert message.kept
            seen += 1
        assert seen == count


def test_one_publication_for_several_patterns(url: str) -> None:
    with connect(url) as client:
        both = client.subscribe("pyone/*", "*/two", "pyone/**", confirm=True)
        others = client.subscribe("pyone/two", confirm=True)
        client.publish("pyone/two", b"x")
        client.publish("pyone/a/three", b"y")
        client.publish("pyone/two", b"z")
        came = [both.receive(_ANSWER_S) for _ in range(3)]
        assert [each and each.payload for each in came] == [b"x", b"y", b"z"]
        assert [each and each.payload for each in map(others.receive, [_ANSWER_S] * 2)] == [
            b"x",
            b"z",
        ]
        both.unsubscribe()
        client.publish("pyone/two", b"last")
        last = others.receive(_ANSWER_S)
        assert last is not None
        assert last.payload == b"last"
        assert both.receive(0.0) is None


def test_who_reads_too_slowly_is_told_how_much_was_dropped(running: BrokerProcess) -> None:
    """And nobody waits for it."""
    url = f"umq://127.0.0.1:{running.ports['auto']}"
    count, body = 400, b"x" * 100_000
    with connect(url, unread_bytes=100_000) as slow, connect(url) as publisher:
        heard = slow.subscribe("slow/t", confirm=True)
        for _ in range(count):
            publisher.publish("slow/t", body)
        publisher.publish("slow/t", b"last", confirm=True)
        came = 0
        while (message := heard.receive(_ANSWER_S)) is not None and message.payload != b"last":
            came += 1
        assert message is not None
        assert heard.dropped > 0
        assert came + heard.dropped == count


def test_calls(url: str, running: BrokerProcess) -> None:
    with connect(url) as client:
        with pytest.raises(NotThere, match="'caller' takes calls"):
            client.call("caller", b"x")
        with answering(running.urls["lightmq"] + "/caller", lambda data: data[::-1]):
            for _ in range(3):
                assert client.call("caller", b"abc") == b"cba"
            assert client.call("caller", b"\x00\xff") == b"\xff\x00"
        assert client._calling._callers == {}  # no connection of their own
        with pytest.raises(BadArgument, match="empty"):
            client.call("caller", b"")


def test_round_trips(url: str) -> None:
    with connect(url) as client:
        assert 0 < client.ping() < _ANSWER_S


def test_what_it_cannot_do(url: str) -> None:
    with connect(url) as client:
        with pytest.raises(NotSupported, match="no last wills"):
            client.publish("a", b"x", will=True)
        with pytest.raises(NotSupported, match="filters"):
            client.subscribe("a", filter="x=N1")
        for bad in ("", "/", "a\0b", "x" * 256):
            with pytest.raises(BadArgument):
                client.publish(bad, b"x")
        for bad in ("", "a/**/b"):
            with pytest.raises(BadArgument):
                client.subscribe(bad)
        with pytest.raises(BadArgument, match="is int"):
            client.publish("a", b"x", properties={"bed": 3})
        with pytest.raises(BadArgument, match="empty"):
            client.publish("a", b"")


def test_what_the_broker_refuses_the_next_sync_tells(url: str) -> None:
    with connect(url) as client:
        with pytest.raises(Refused, match=r"\$/info is the broker's own|broker's own"):
            client.publish("$/info/clients", b"x", confirm=True)
        client.publish("py/fine", b"x", confirm=True)


def test_what_was_refused_before_the_next_sync_it_tells_too(url: str) -> None:
    """A client that reconnects asks for itself what the broker has; a subscription asks, too."""
    with connect(url, reconnect=True) as client:
        client.publish("$/info/clients", b"x")
        until(lambda: client.unconfirmed == 0)
        with pytest.raises(Refused, match="broker's own"):
            client.sync(_ANSWER_S)
        client.sync(_ANSWER_S)
    with connect(url) as client:
        client.publish("$/info/clients", b"x")
        lamps = client.subscribe("py/told/*", confirm=True)
        with pytest.raises(Refused, match="broker's own"):
            client.sync(_ANSWER_S)
        client.publish("py/told/lamp", b"on", confirm=True)
        message = lamps.receive(_ANSWER_S)
        assert message is not None
        assert message.payload == b"on"


def test_asyncio(url: str) -> None:
    async def run() -> list[tuple[str, bytes]]:
        async with motemq.connect_async(url) as client:
            lamps = await client.subscribe("py/aio/*", confirm=True)
            for number in range(300):
                await client.publish(f"py/aio/{number}", b"%d" % number)
            await client.sync()
            found = []
            async for message in lamps:
                found.append((message.topic, message.payload))
                if len(found) == 300:
                    break
            return found

    assert asyncio.run(run()) == [(f"py/aio/{n}", b"%d" % n) for n in range(300)]


def test_others_see_its_name(url: str) -> None:
    with connect(f"{url}/desk") as client, connect(url) as other:
        client.sync()
        assert client.name == "desk"
        session = other._shell.session
        assert session.name == ""


def test_the_command_line(running: BrokerProcess) -> None:
    url = running.urls["umq"]
    with contextlib.ExitStack() as stack:
        argv = command("sub", url, "py/cli/*", "--count", "2", "--json")
        sub = stack.enter_context(
            subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        stack.callback(sub.kill)
        with connect(url) as client:

            def is_heard() -> bool:
                client.publish("py/cli/probe", b"x")
                return client.ping() > 0 and _has_line(sub)

            until(is_heard)
        run = _ran("pub", url, "py/cli/lamp", "on")
        assert (run.returncode, run.stderr) == (0, "")
        out, err = sub.communicate(timeout=_RUN_S)
        assert sub.returncode == 0, err
        assert json.loads(out.splitlines()[-1])["topic"].startswith("py/cli/")
    run = _ran("ping", url, "--count", "3", "--json")
    assert json.loads(run.stdout)["lost"] == 0
    with answering(running.urls["lightmq"] + "/cli-board", lambda data: data[::-1]):
        assert _ran("call", url, "cli-board", "abc").stdout == "cba\n"
    missing = _ran("call", url, "cli-board", "abc")
    assert missing.returncode == 1
    assert "no client 'cli-board' takes calls" in missing.stderr


def _has_line(process: "subprocess.Popen[str]") -> bool:
    return bool(select.select([process.stdout], [], [], 0.2)[0])


def _ran(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=_RUN_S, check=False
    )


def test_who_one_is(tmp_path: Path) -> None:
    """A password, a token; what the rights do not allow is refused, and the connection stays."""
    users = {
        "alice": User(password=hash_password("a long password")),
        "bob": User(token=token_hash("a-token-of-bob")),
    }
    write_users(tmp_path / "users.toml", users)
    (tmp_path / "rules.toml").write_text(
        '[roles.users]\nconnect = ["**"]\nsubscribe = ["**"]\npublish = ["open/**"]\n'
    )
    for name, secret in (("alice", "a long password"), ("bob", "a-token-of-bob"), ("no", "wrong")):
        (tmp_path / name).write_text(secret)
    with broker(
        *("--listen", "umq://127.0.0.1:0"),
        *("--set", f"access.users={tmp_path}/users.toml"),
        *("--set", f"access.rules={tmp_path}/rules.toml"),
    ) as running:
        port = running.ports["umq"]
        for url in (
            f"umq://alice@127.0.0.1:{port}/desk?token_file={tmp_path}/alice",
            f"umq://127.0.0.1:{port}?token_file={tmp_path}/bob",
        ):
            with connect(url) as client:
                client.publish("open/a", b"x", confirm=True)
                with pytest.raises(Refused, match="rights") as refused:
                    client.publish("shut/a", b"x", confirm=True)
                assert refused.value.code == 1
                assert client.subscribe("open/*", confirm=True).receive(0.0) is None
        for url in (
            f"umq://alice@127.0.0.1:{port}?token_file={tmp_path}/no",
            f"umq://127.0.0.1:{port}?token_file={tmp_path}/no",
            f"umq://127.0.0.1:{port}",
        ):
            with pytest.raises(Refused, match=r"Authorization failed|may not"):
                connect(url, reconnect=True)


def test_what_a_broker_does_not_take_is_in_the_way_of_nothing_else() -> None:
    """Without a connection nobody knows what the broker will take."""
    url = f"umq://127.0.0.1:{port_for_later()}"
    with connect(url, reconnect=True, wait_s=0) as client:
        client.publish("held/long", bytes(200_000))
        client.publish("held/short", b"1", retain=True)
        with broker("--listen", url, "--set", "umq.max_attachment=100000"):
            with pytest.raises(ClientError, match=r"'held/long' was not .*umq\.max_attachment"):
                client.sync(_ANSWER_S)
            client.sync(_ANSWER_S)
            kept = client.subscribe("held/*", confirm=True).receive(_ANSWER_S)
            assert kept is not None
            assert (kept.topic, kept.payload) == ("held/short", b"1")
