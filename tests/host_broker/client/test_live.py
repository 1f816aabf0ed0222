"""The synchronous face against a real broker: iteration, threads, forks, bounds, ends."""

import contextlib
import itertools
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import motemq
from host_broker.client import (
    BadArgument,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    NotSupported,
    Subscribing,
    Timeout,
    connect,
)
from tests.host_broker.net.broker_process import BrokerProcess, broker, until
from tests.host_broker.net.certificates import Authority

_SOON_S = 20.0


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process


@pytest.fixture(scope="module")
def url(running: BrokerProcess) -> str:
    return running.urls["fmqp"]


def test_motemq_is_where_programs_find_it(url: str) -> None:
    with motemq.connect(url) as client:
        assert client.ping() > 0
    assert set(motemq.__all__) <= set(dir(motemq))


def test_importing_motemq_loads_no_client() -> None:
    code = "import motemq, sys; print(sorted(m for m in sys.modules if 'host_broker' in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"


def test_who_ends_subscriptions_early_hears_the_next_ones(url: str) -> None:
    """What it has not read of them, and what was under way, is in nobody's way."""
    with connect(url) as publisher, connect(url, unread_bytes=100_000) as client:
        for number in range(300):
            publisher.publish(f"early/{number % 3}/{number}", bytes(10_000), retain=True)
        publisher.sync()
        for number in range(6):
            subscription = client.subscribe(f"early/{number % 3}/*")
            assert subscription.receive(_SOON_S) is not None
            subscription.unsubscribe()


def test_what_is_ignored_from_now_on_is_in_nobodys_way(url: str) -> None:
    """Of a client that reads no more, as so much is unread, most may be what it ignores now."""
    with connect(url) as publisher, connect(url, unread_bytes=100_000) as client:
        client.subscribe("ignored/*")
        read = client.subscribe("ignored/not")
        assert read.receive(0) is None  # it is read by itself
        client.sync()
        for _ in range(30):
            publisher.publish("ignored/much", bytes(10_000))
        publisher.sync()
        until(lambda: client._shell._paused)
        publisher.publish("ignored/not", b"1", confirm=True)
        client.ignore_others()
        message = read.receive(_SOON_S)
        assert message is not None
        assert message.payload == b"1"


def test_a_confirmed_subscription_begins_with_a_message(url: str) -> None:
    """None means that nothing came, not that the subscription is active: that was waited for."""
    with connect(url) as client:
        client.publish("confirmed/kept", b"1", retain=True, confirm=True)
        subscription = client.subscribe("confirmed/*", confirm=True)
        client.publish("confirmed/new", b"2")
        for topic, kept in (("confirmed/kept", True), ("confirmed/new", False)):
            message = subscription.receive(_SOON_S)
            assert message is not None
            assert (message.topic, message.kept) == (topic, kept)
        assert subscription.active


def test_iterating_ends_when_nothing_comes_for_a_time(url: str) -> None:
    with connect(url) as client:
        client.subscribe("iterate/*", confirm=True)
        for number in range(5):
            client.publish(f"iterate/{number}", b"x")
        client.sync()  # they are there, however busy the machine is
        assert [each.topic for each in client.messages(timeout_s=0.3)] == [
            f"iterate/{number}" for number in range(5)
        ]


def test_iterating_ends_when_another_thread_closes(url: str) -> None:
    client = connect(url)
    subscription = client.subscribe("iterate/closed", confirm=True)
    heard: list[list[bytes]] = []
    threads = [
        threading.Thread(target=lambda each=each: heard.append([m.payload for m in each]))  # type: ignore[misc]
        for each in (client.messages(), subscription)
    ]
    for thread in threads:
        thread.start()
    client.publish("iterate/closed", b"x", confirm=True)
    client.close()
    for thread in threads:
        thread.join(_SOON_S)
        assert not thread.is_alive()
    assert sorted(heard) == [[], [b"x"]]


@pytest.mark.parametrize("protocol", ["fmqp", "micromsg2", "fq", "umq"])
def test_half_of_a_surrogate_pair_is_the_callers_mistake(protocol: str) -> None:
    """In a topic or a pattern; nothing is sent, and the client goes on."""
    with broker("--listen", "auto://127.0.0.1:0") as running:
        address = running.urls["auto"].replace("auto", protocol)
        with connect(address) as client:
            for act in (
                lambda: client.publish("topic/\ud800", b"x"),
                lambda: client.subscribe("topic/\ud800"),
                lambda: client.call("board\ud800", b"x"),
            ):
                with pytest.raises(BadArgument, match=r"ud800|surrogate"):
                    act()
            with pytest.raises(TypeError, match="a client's name is str, not int"):
                client.call(5, b"x")  # type: ignore[arg-type]
            assert client.ping() > 0


def test_properties_are_a_mapping_of_text(running: BrokerProcess) -> None:
    """Whatever the protocol; what values can be each says itself."""
    for url in (running.urls["fmqp"], running.urls["lightmq"] + "/odd"):
        with connect(url) as client:
            for wrong, words in (([("a", "b")], "not list"), ({1: "a"}, "name is str, not int")):
                given: Any = wrong
                with pytest.raises(TypeError, match=words):
                    client.publish("up", b"x", properties=given)


def test_iterating_over_a_subscription_ends_with_it(url: str) -> None:
    """In the loop, or from elsewhere while the loop waits; what had come before is read."""
    with connect(url, timeout_s=_SOON_S) as client:
        subscription = client.subscribe("iterate/ends", confirm=True)
        for number in range(5):
            client.publish("iterate/ends", b"%d" % number)
        client.sync()
        heard = []
        for message in subscription:
            heard.append(message.payload)
            if len(heard) == 3:
                subscription.unsubscribe()
        assert heard == [b"0", b"1", b"2", b"3", b"4"]
        assert list(subscription) == []
        for end in (Subscribing.unsubscribe, lambda _: client.unsubscribe("iterate/ends")):
            another = client.subscribe("iterate/ends", confirm=True)
            iterating = threading.Thread(target=heard.extend, args=(another,), daemon=True)
            iterating.start()
            end(another)
            iterating.join(_SOON_S)
            assert not iterating.is_alive()


def test_subscriptions_have_their_own_messages(url: str) -> None:
    with connect(url) as client:
        first = client.subscribe("own/a", confirm=True)
        second = client.subscribe("own/*", confirm=True)
        client.subscribe("others/a", confirm=True)
        client.publish("own/a", b"1")
        client.publish("own/b", b"2")
        client.publish("others/a", b"3", confirm=True)
        assert [each.payload for each in itertools.islice(first, 1)] == [b"1"]
        assert [each.payload for each in client.messages(0.2)] == [b"2", b"3"]
        client.publish("own/a", b"4")
        second.receive(0)  # from now on it is read by itself
        client.publish("own/a", b"5", confirm=True)
        assert [each.payload for each in itertools.islice(first, 2)] == [b"4", b"5"]
        second.unsubscribe()
        client.publish("own/b", b"6", confirm=True)
        heard = list(filter(None, iter(lambda: second.receive(0), None)))
        assert [each.payload for each in heard][-1:] == [b"5"]


def test_many_threads_share_a_client(url: str) -> None:
    """Each message is taken once, whoever takes it; nothing that is published is lost."""
    count, writers = 2_000, 4
    with connect(url, timeout_s=_SOON_S) as client:
        client.subscribe("threads/*", confirm=True)
        taken: list[bytes] = []

        def write(writer: int) -> None:
            for number in range(count):
                client.publish(f"threads/{writer}", b"%d" % number)

        def read() -> None:
            while len(taken) < count * writers:
                message = client.receive(0.05)
                if message is not None:
                    taken.append(b"%s %s" % (message.topic.encode(), message.payload))

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
        threads += [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    wanted = {b"threads/%d %d" % (w, n) for w in range(writers) for n in range(count)}
    assert len(taken) == count * writers
    assert set(taken) == wanted


def test_a_client_that_is_forgotten_is_closed_and_that_is_told(running: BrokerProcess) -> None:
    with connect(running.urls["fmqp"]) as witness:
        witness.subscribe("forgotten/will", confirm=True)
        client = connect(running.urls["fmqp"])
        client.publish("forgotten/will", b"gone", will=True, confirm=True)
        with pytest.warns(ResourceWarning, match="the client was not closed"):
            del client
        will = witness.receive(_SOON_S)
        assert will is not None
        assert will.payload == b"gone"


def test_the_last_client_takes_the_thread_with_it(url: str) -> None:
    def threads() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name == "motemq-client"]

    with connect(url), connect(url):
        assert threads() == ["motemq-client"]
    assert threads() == []


def test_a_child_of_a_fork_leaves_the_parents_connection_alone(url: str) -> None:
    with connect(url) as client:
        client.subscribe("fork/t", confirm=True)
        child = os.fork()
        if not child:
            code = 1
            with contextlib.suppress(BaseException):
                try:
                    client.publish("fork/t", b"from the child")
                except ConnectionLost as error:
                    assert "belongs to the process that forked" in str(error)
                    client.close()
                    with connect(url) as own:  # it can have one of its own
                        own.publish("fork/t", b"own", confirm=True)
                    code = 0
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        message = client.receive(_SOON_S)
        assert message is not None
        assert message.payload == b"own"
        client.sync()


def test_what_was_published_is_sent_when_a_program_ends_without_closing(url: str) -> None:
    code = (
        "import sys, motemq\n"
        "client = motemq.connect(sys.argv[1])\n"
        "for number in range(1000): client.publish('atexit/t', b'%d' % number)\n"
    )
    with connect(url) as client:
        client.subscribe("atexit/t", confirm=True)
        done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")
        heard = [client.receive(_SOON_S) for _ in range(1000)]
        assert [each.payload for each in heard if each] == [b"%d" % n for n in range(1000)]


def test_ctrl_c_interrupts_every_wait(url: str) -> None:
    """… and the client can be used, and closed, afterwards."""
    code = (
        "import sys, motemq\n"
        "client = motemq.connect(sys.argv[1])\n"
        "client.subscribe('ctrl/c', confirm=True)\n"
        "for wait in (lambda: client.receive(60), lambda: client.wait(60),\n"
        "             lambda: next(client.messages()), lambda: client.call('nobody', b'x')):\n"
        "    try:\n"
        "        print('waiting', flush=True)\n"
        "        wait()\n"
        "    except (KeyboardInterrupt, motemq.NotThere) as error:\n"
        "        print(type(error).__name__, client.ping() > 0, flush=True)\n"
        "client.close()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for expected in ("KeyboardInterrupt",) * 3 + ("NotThere",):
        assert process.stdout.readline() == "waiting\n"
        if expected == "KeyboardInterrupt":
            _until_it_sleeps(process.pid)
            process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == f"{expected} True\n"
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")


def _until_it_sleeps(pid: int) -> None:
    """Return when the process's main thread waits for something."""
    stat = Path(f"/proc/{pid}/task/{pid}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S")


def test_what_a_protocol_cannot_do_names_those_that_can(running: BrokerProcess) -> None:
    with connect(running.urls["lightmq"] + "/picky") as client:
        with pytest.raises(NotSupported, match=r"no retained messages; give the broker's fmqp:// "):
            client.publish("up", b"x", retain=True)
        with pytest.raises(NotSupported, match=r"wildcards; .* fmqp:// URL or lightmq\+fmqp://"):
            client.everything()
        client.sync()
    with connect(running.urls["fmqp"]) as client:
        with pytest.raises(NotSupported, match=r"answers to publications; .* lightmq:// URL"):
            client.request("t", b"x")
        with pytest.raises(NotSupported, match=r"properties of messages; .* micromsg2:// URL"):
            client.publish("t", b"x", properties={"a": 1})


@pytest.mark.parametrize("scheme", ["fmqp", "lightmq"])
def test_other_types_are_named_and_nothing_is_sent(running: BrokerProcess, scheme: str) -> None:
    payload: Any
    topic: Any
    with connect(running.urls[scheme] + "/typed" * (scheme == "lightmq")) as client:
        for payload in ("21.5", 21.5, None):
            wrong = f"bytes, not {type(payload).__name__}"
            for give in (client.publish, client.request, client.call):
                with pytest.raises(TypeError, match=wrong):
                    give("up", payload)
        with pytest.raises(TypeError, match=r"give text\.encode\(\)"):
            client.publish("up", payload="21.5")  # type: ignore[arg-type]
        for topic in (b"up", 5, ["up"]):
            wrong = f"str, not {type(topic).__name__}"
            with pytest.raises(TypeError, match=wrong):
                client.subscribe(topic)
            with pytest.raises(TypeError, match=wrong):
                client.publish(topic, b"x")
        client.sync()


@pytest.mark.parametrize("address", [None, 8765, b"fmqp://127.0.0.1"])
def test_an_address_of_another_type_is_named(address: Any) -> None:
    for begin in (connect, motemq.connect_async):
        with pytest.raises(TypeError, match=f"an address is str, not {type(address).__name__}"):
            begin(address)


def test_a_buffer_may_change_after_it_was_published(tmp_path: Path) -> None:
    """It is held until a broker is there, and sent as it was."""
    url = f"fmqp+unix://{tmp_path}/socket"
    with connect(url, reconnect=True, wait_s=0) as client:
        client.subscribe("buffer")
        buffer: Any = bytearray(b"before")
        client.publish("buffer", buffer)
        buffer[:] = b"after!"
        with broker("--listen", url):
            assert next(client.messages(_SOON_S)).payload == b"before"


def test_wills_are_bounded(url: str) -> None:
    with connect(url, reconnect=True) as client:
        with pytest.raises(motemq.BadArgument, match="64 wills at most"):
            for _ in range(65):
                client.publish("bounded/will", b"x", will=True)
        client.sync()


def test_a_program_that_does_not_read_holds_the_broker_back_and_not_its_memory(url: str) -> None:
    """The stated policy: 4 MiB, then the broker's own rule for slow receivers applies."""
    total = 40
    with connect(url, timeout_s=_SOON_S) as reader, connect(url, timeout_s=_SOON_S) as writer:
        reader.subscribe("held/back", confirm=True)
        writing = threading.Thread(
            target=lambda: [
                writer.publish("held/back", bytes(1 << 20), timeout_s=60) for _ in range(total)
            ]
        )
        writing.start()
        shell = reader._shell
        until(lambda: shell._paused)
        assert shell._subscriptions.unread_bytes < 6 * 1024 * 1024
        heard = sum(1 for _ in itertools.islice(reader.messages(10.0), total))
        writing.join(60)
        assert (heard, writing.is_alive()) == (total, False)
        reader.sync()


def test_a_publisher_that_nobody_takes_from_runs_into_its_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = connect(f"fmqp://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.5)
        with client, pytest.raises(Timeout, match="took no more bytes before the deadline"):
            for _ in range(64):
                client.publish("t", bytes(1 << 20))
        with pytest.raises(ClientError):
            client.publish("t", b"x")


def test_tls_with_more_than_its_buffers_hold(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    cert, key = authority.issue("broker")
    with broker("--listen", f"fmqps://127.0.0.1:0?cert={cert}&key={key}") as secured:
        url = f"{secured.urls['fmqps']}?ca={authority.file}"
        with connect(url, timeout_s=_SOON_S) as client:
            client.subscribe("tls/t", confirm=True)
            for number in range(2_000):
                client.publish("tls/t", b"%d" % number + bytes(3_000))
            client.sync()
            heard = [each.payload for each in itertools.islice(client.messages(_SOON_S), 2_000)]
            assert [int(each.rstrip(b"\0")) for each in heard] == list(range(2_000))
            assert client.ping() > 0


def test_who_waits_for_ever_connects(url: str) -> None:
    """The kernel's clock has an end."""
    with connect(url, timeout_s=math.inf) as client:
        assert client.ping() > 0
        client.publish("for/ever", b"x", confirm=True)


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, math.nan])
@pytest.mark.parametrize("scheme", ["fmqp", "fmqps"])
def test_a_time_that_is_over_is_a_deadline_like_any(scheme: str, timeout_s: float) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(ConnectFailed, match="did not answer within"),
    ):
        connect(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}", timeout_s=timeout_s)


def test_a_name_server_that_is_silent_takes_no_longer_than_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_up = threading.Event()

    def look_up(*_: object, **__: object) -> None:
        given_up.wait(_SOON_S)
        raise socket.gaierror(socket.EAI_AGAIN, "no name server")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(ConnectFailed, match=r"did not answer within 0\.2 s"):
        connect("fmqp://broker.example", timeout_s=0.2)
    with connect("fmqp://broker.example", timeout_s=0.2, reconnect=True, wait_s=0) as client:
        assert "did not answer within" in str(client.trouble)
    given_up.set()
