"""``motemq.connect("fq://…")`` and ``motemq sub`` and ``pub`` against a real broker."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.ports import port_for_later
from host_broker.client import ClientError, Refused, connect, connect_async
from tests.host_broker.net.broker_process import BrokerProcess, broker, line_of, motemq, spawn

_SOON_S = 20.0
_PAGE = (Path(__file__).parents[3] / "docs" / "fq.md").read_text()


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker("--listen", "fq://127.0.0.1:0", "--listen", "fmqp://127.0.0.1:0") as running:
        yield running


def test_blocking(running: BrokerProcess) -> None:
    url = running.urls["fq"]
    with connect(f"{url}/one/mem:private,block?exchange=one&program=prefix:a.") as consumer:
        with connect(f"{url.replace('//', '//ann@')}") as publisher:
            publisher.publish("one/b", b"not wanted")
            for count in range(5000):
                publisher.publish("one/a.b", str(count).encode(), timeout_s=_SOON_S)
            publisher.sync(_SOON_S)
            assert publisher.ping() < _SOON_S
        heard = [consumer.receive(_SOON_S) for _ in range(5000)]
    assert [int(message.payload) for message in heard if message is not None] == list(range(5000))
    assert heard[0] is not None
    assert heard[0].properties is not None
    assert heard[0].properties["fq.sender"] == "ann"


def test_what_is_published_last_is_not_lost(running: BrokerProcess) -> None:
    """The broker ends both connections of a client with the first: so that one closes last."""
    url = running.urls["fq"]
    with connect(f"{url}/last/mem:private,block?exchange=last&program=prefix:") as consumer:
        for count in range(20):
            with connect(url) as publisher:
                publisher.publish("last/r", bytes(100_000))
                publisher.publish("last/r", str(count).encode())
            large, small = (consumer.receive(_SOON_S) for _ in range(2))
            assert large is not None and small is not None
            assert (len(large.payload), small.payload) == (100_000, str(count).encode())


def test_where_no_tls_is_spoken(running: BrokerProcess) -> None:
    """It closes at once; that is said in words."""
    with pytest.raises(ClientError, match=r"did not agree on TLS \([a-zA-Z ]{10,}"):
        connect(running.urls["fq"].replace("fq:", "fqs:"))


def test_by_a_unix_socket(tmp_path: Path) -> None:
    """User and queue are options there, since the path is the file's."""
    where = f"fq+unix://{tmp_path}/s"
    with (
        broker("--listen", where, "--ephemeral"),
        connect(f"{where}?user=ann&path=desk/mem:private&exchange=e&program=prefix:") as client,
    ):
        client.publish("e/r", b"here")
        message = client.receive(_SOON_S)
        assert message is not None
        assert (message.payload, (message.properties or {})["fq.sender"]) == (b"here", "ann")


def test_asyncio(running: BrokerProcess) -> None:
    async def run() -> None:
        url = running.urls["fq"]
        async with connect_async(url) as client:
            first = await client.subscribe("two/a*", confirm=True)
            second = await client.subscribe("two/*", filter='payload_prefix("y")', confirm=True)
            with pytest.raises(Refused, match="refused the binding"):
                await client.subscribe("two/*", filter="nonsense()", confirm=True)
            for topic, payload in (("two/ab", b"x"), ("two/b", b"x"), ("two/b", b"y")):
                await client.publish(topic, payload, confirm=True)
            message = await first.receive(_SOON_S)
            assert message is not None
            assert message.topic == "two/ab"
            message = await second.receive(_SOON_S)
            assert message is not None
            assert (message.topic, message.payload) == ("two/b", b"y")
            await first.unsubscribe()
            await second.unsubscribe()
            await client.publish("two/ab", b"y", confirm=True)
            assert await second.receive(0.0) is None

    asyncio.run(run())


def test_a_pair_is_made_again(tmp_path: Path) -> None:
    """Both connections, the bindings, and what nobody has confirmed yet."""
    port = port_for_later()
    first = BrokerProcess("--listen", f"fq://127.0.0.1:{port}", "--ephemeral")
    url = f"fq://127.0.0.1:{port}/again?exchange=again&program=prefix:"
    with connect(url, reconnect=True, timeout_s=_SOON_S) as client:
        client.publish("again/r", b"before")
        before = client.receive(_SOON_S)
        assert before is not None
        first.process.kill()
        first.wait()
        client.publish("again/r", b"meanwhile", timeout_s=_SOON_S)
        second = BrokerProcess("--listen", f"fq://127.0.0.1:{port}", "--ephemeral")
        try:
            heard = set()
            while b"meanwhile" not in heard:
                message = client.receive(_SOON_S)
                assert message is not None
                heard.add(message.payload)
        finally:
            second.end()


def test_the_program_of_the_page(
    running: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/fq.md."""
    programs = re.findall(r"^```python\n(import motemq\n.*?)^```", _PAGE, re.DOTALL | re.MULTILINE)
    (program,) = (each.replace("fq://127.0.0.1:8765", running.urls["fq"]) for each in programs)
    exec(compile(program, "docs/fq.md", "exec"), {})
    assert capsys.readouterr().out == "hall/temp.1 b'21.5' motemq\n"


def test_a_private_queue_in_use(running: BrokerProcess) -> None:
    url = f"{running.urls['fq']}/mine/mem:private"
    with connect(url), pytest.raises(Refused, match="requested queue is private and in use"):
        connect(url)


def test_another_protocol_is_told_apart(running: BrokerProcess) -> None:
    url = running.urls["fmqp"].replace("fmqp:", "fq:")
    with pytest.raises(ClientError):
        connect(url, timeout_s=0.5)


def test_the_command_line(running: BrokerProcess) -> None:
    url = f"{running.urls['fq']}/line/mem:private,drop?exchange=line&program=prefix:a"
    listener = spawn(motemq("sub", url, "-v", "--count", "2"))
    assert listener.stderr is not None
    assert listener.stderr.readline() == b"subscribed\n"
    for topic in ("line/b", "line/a.1", "line/a.2"):
        command = motemq("pub", running.urls["fq"], topic, f"for {topic}")
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    assert line_of(listener, _SOON_S) == "line/a.1 for line/a.1\n"
    assert line_of(listener, _SOON_S) == "line/a.2 for line/a.2\n"
    _, stderr = listener.communicate(timeout=60)
    assert (listener.returncode, stderr) == (0, b"")


def test_mistakes_on_the_command_line(running: BrokerProcess) -> None:
    url = running.urls["fq"]
    for arguments, words in (
        (("sub", url), "no pattern is for all exchanges"),
        (("sub", f"{url}/q/tape"), "a queue is mem or disk, not 'tape'"),
        (("sub", url, 'a/prefix:"'), "is no program of fq"),
        (("pub", f"{url}?exchange=a", "b/c", "x"), "the address is for 'a' only"),
        (("pub", url.replace("//", "//ann:secret@"), "b/c", "x"), "has a password"),
    ):
        command = motemq(*arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2, done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
