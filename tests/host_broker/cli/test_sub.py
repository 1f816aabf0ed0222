"""``motemq sub`` as a process, hearing a real broker."""

import json
import re
import signal
import socket
from datetime import UTC, datetime

import pytest

from benchmarks.ports import port_for_later
from tests.host_broker.cli.processes import END_S, ended, error_line, fmqp, run, started, subscribed
from tests.host_broker.net.broker_process import BrokerProcess, broker, line_of


def test_several_topics_and_wildcards_with_their_names(url: str) -> None:
    process = subscribed(url, "several/a", "several/*/x", "--count", "3", "-v")
    with fmqp(url) as client:
        for topic in ("several/a", "several/b", "several/b/x", "several/c/x"):
            client.publish(topic, topic[-1].encode())
    assert ended(process) == (0, b"several/a a\nseveral/b/x x\nseveral/c/x x\n", b"")


def test_a_line_is_one_line_and_harmless_to_a_terminal(url: str) -> None:
    process = subscribed(url, "harm\n/*", "--count", "4", "-v")
    with fmqp(url) as client:
        for payload in (b"two\nlines\r", b"\x1b[2J\x07", "21,5 °C\t\\n".encode(), b"\xff\x00"):
            client.publish("harm\n/less", payload)
    lines = [
        b"harm\\n/less two\\nlines\\r\n",
        b"harm\\n/less \\x1b[2J\\x07\n",
        "harm\\n/less 21,5 °C\t\\n\n".encode(),
        b"harm\\n/less \\xff\\x00\n",
    ]
    assert ended(process) == (0, b"".join(lines), b"")


@pytest.mark.parametrize(
    ("option", "printed"),
    [(["--hex"], b"00ff0a\n6869\n"), (["--output", "raw"], b"\x00\xff\nhi")],
    ids=["hex", "raw"],
)
def test_exact_bytes(url: str, option: list[str], printed: bytes) -> None:
    process = subscribed(url, "exact", "--count", "2", *option)
    with fmqp(url) as client:
        client.publish("exact", b"\x00\xff\n")
        client.publish("exact", b"hi")
    assert ended(process) == (0, printed, b"")


def test_json_says_everything(url: str) -> None:
    with fmqp(url) as client:
        client.publish("json/kept", "früher".encode(), retain=True)
        client.sync()
        before = datetime.now(UTC)
        process = subscribed(url, "json/*", "--count", "4", "--json")
        client.publish("json/kept", b"later", retain=True)
        client.publish("json/binary", b"\xff\x00")
        client.publish("json/will", b"bye", will=True)
    code, stdout, _ = ended(process)
    assert code == 0
    messages = [json.loads(line) for line in stdout.splitlines()]
    plain = {"encoding": "utf-8", "cache": False, "will": False, "feedback": False, "kept": False}
    for message in messages:
        heard = datetime.fromisoformat(message.pop("ts"))
        assert before <= heard <= datetime.now(UTC)
    assert messages == [
        {**plain, "topic": "json/kept", "payload": "früher", "cache": True, "kept": True},
        {**plain, "topic": "json/kept", "payload": "later", "cache": True},
        {**plain, "topic": "json/binary", "payload": "/wA=", "encoding": "base64"},
        {**plain, "topic": "json/will", "payload": "bye", "will": True},
    ]


def test_what_is_kept_can_be_had_alone_or_left_out(url: str) -> None:
    with fmqp(url) as client:
        for name in (b"a", b"b"):
            client.publish(f"kept/{name.decode()}", name, retain=True)
        client.sync()
        done = run("sub", url, "kept/*", "--retained-only")
        assert (done.returncode, sorted(done.stdout.split())) == (0, [b"a", b"b"])
        done = run("sub", url, "kept/nothing", "--retained-only")
        assert (done.returncode, done.stdout) == (0, b"")
        process = subscribed(url, "kept/*", "--no-retained", "--count", "1")
        client.publish("kept/a", b"new", retain=True)
        assert ended(process) == (0, b"new\n", b"")


def test_feedback_tells_how_many_subscribe(url: str) -> None:
    process = subscribed(url, "counted", "--feedback", "-v", "--count", "4")
    with fmqp(url) as one, fmqp(url) as two:
        one.subscribe("counted")
        one.sync()
        two.subscribe("counted")
        two.sync()
    code, stdout, _ = ended(process)
    assert code == 0
    assert stdout == b"counted 1\ncounted 2\ncounted 1\ncounted 0\n"


def test_a_debug_subscription_is_not_counted(url: str) -> None:
    process = subscribed(url, "quiet", "--feedback", "--count", "1")
    quiet = subscribed(url, "quiet", "--debug-subscription", "--count", "1")
    loud = subscribed(url, "quiet", "--count", "1")
    assert ended(process) == (0, b"1\n", b"")
    with fmqp(url) as client:
        client.publish("quiet", b"both hear it")
    assert ended(quiet) == ended(loud) == (0, b"both hear it\n", b"")


def test_the_brokers_own_numbers_are_numbers(url: str) -> None:
    done = run("sub", url, "$/info/clients", "--count", "1", "-v")
    assert (done.returncode, done.stdout) == (0, b"$/info/clients 1\n")


def test_it_prints_at_once_and_ends_with_130_on_ctrl_c(url: str) -> None:
    process = subscribed(url, "t")
    with fmqp(url) as client:
        client.publish("t", b"now")
    assert line_of(process, END_S) == "now\n"
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, b"", b"")


def test_time_that_is_over_is_fine_without_a_count(url: str) -> None:
    done = run("sub", url, "silence", "--timeout", "0.3")
    assert (done.returncode, done.stdout) == (0, b"")


def test_messages_that_do_not_come_are_told(url: str) -> None:
    done = run("sub", url, "silence", "--count", "2", "--timeout", "0.3")
    assert done.returncode == 124
    assert b"sub: error: 0 of 2 messages came within 0.3 s" in done.stderr


def test_a_reader_that_goes_away_ends_it_quietly(url: str) -> None:
    process = subscribed(url, "t")
    assert process.stdout is not None
    process.stdout.close()
    with fmqp(url) as client:
        client.publish("t", b"unread")
    assert process.stderr is not None
    assert process.wait(timeout=END_S) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_it_says_when_the_broker_is_gone() -> None:
    with broker() as mortal:
        process = subscribed(mortal.urls["fmqp"], "t")
        mortal.end(signal.SIGKILL)
        code, _, stderr = ended(process)
    assert code == 1
    assert re.fullmatch(rb"sub: error: .*(closed|lost).*\n", stderr)


def test_it_waits_for_a_broker_and_comes_back_after_a_loss() -> None:
    url = f"fmqp://127.0.0.1:{port_for_later()}"
    arguments = (url, "t", "--reconnect", "--count", "2", "--timeout", "60")
    process = started("sub", *arguments, says=rb"sub: trying again: nothing listens at ")
    for payload in (b"one", b"two"):
        with broker("--listen", url) as mortal, fmqp(url) as client:
            while error_line(process) != b"subscribed\n":
                pass  # every line before says that it tries again; error_line has a deadline
            client.publish("t", payload)
            assert line_of(process, END_S) == payload.decode() + "\n"
            mortal.end(signal.SIGKILL)
    assert ended(process)[0] == 0


def test_no_try_begins_after_the_time_is_over() -> None:
    url = f"fmqp://127.0.0.1:{port_for_later()}"
    done = run("sub", url, "t", "--reconnect", "--timeout", "0.5")
    assert done.returncode == 1
    assert re.search(rb"sub: trying again: .*\nsub: error: nothing listens", done.stderr)


def test_a_broker_that_says_nothing_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"fmqp://127.0.0.1:{silent.getsockname()[1]}"
        done = run("sub", url, "t", "--answer-within", "0.2")
    assert done.returncode == 1
    expected = (
        b"sub: error: the broker did not answer within 0.2 s of subscribing; "
        b"is it the right port and protocol?\n"
    )
    assert done.stderr == expected


def test_topics_can_be_left_out(url: str) -> None:
    process = subscribed(url, "out/*", "-T", "out/loud", "-T", "/*/b/", "-C", "2", "-v")
    with fmqp(url) as client:
        for name in ("a", "loud", "b", "c"):
            client.publish(f"out/{name}", b"x")
    assert ended(process) == (0, b"out/a x\nout/c x\n", b"")


def test_what_is_kept_can_be_cleared(url: str) -> None:
    with fmqp(url) as client:
        for name in ("a", "b", "precious"):
            client.publish(f"clear/{name}", b"x", retain=True)
        client.sync()
    arguments = ("clear/*", "$/info/*", "--retained-only", "-v", "-T", "$/*/*")
    done = run("sub", url, *arguments, "-T", "clear/precious", "--remove-retained")
    assert (done.returncode, sorted(done.stdout.split())) == (
        0,
        [b"clear/a", b"clear/b", b"x", b"x"],
    )
    done = run("sub", url, "clear/*", "$/info/clients", "--retained-only", "-v")
    assert sorted(done.stdout.splitlines()) == [b"$/info/clients 1", b"clear/precious x"]


def test_it_clears_no_topic_of_the_broker(url: str) -> None:
    done = run("sub", url, "$/info/clients", "--retained-only", "--remove-retained")
    assert (done.returncode, done.stdout) == (0, b"1\n")
    done = run("sub", url, "$/info/clients", "--retained-only")
    assert done.stdout == b"1\n"


def test_its_own_will(url: str) -> None:
    with fmqp(url) as client:
        client.subscribe("ears/status")
        client.sync()
        will = ("--will-topic", "ears/status", "--will-payload", "deaf", "--will-retain")
        process = subscribed(url, "t", *will)
        client.sync()
        assert client.receive(0.0) is None
        process.kill()
        message = client.receive(20.0)
        assert message is not None
        assert message.payload == b"deaf"
        ended(process)
    assert run("sub", url, "ears/status", "--retained-only").stdout == b"deaf\n"


def test_quiet_says_nothing_but_errors(url: str) -> None:
    done = run("sub", url, "silence", "-q", "-W", "0.2")
    assert (done.returncode, done.stderr) == (0, b"")
    done = run("sub", url, "silence", "-q", "-W", "0.2", "-C", "1")
    assert (done.returncode, done.stderr.count(b"\n")) == (124, 1)


@pytest.mark.parametrize(
    "options",
    [
        ["--json", "--hex"],
        ["--output", "raw", "-v"],
        ["--output", "raw", "--json"],
        ["--retained-only", "--no-retained"],
        ["--hex", "--format", "%p"],
        ["-v", "--format", "%p"],
        ["--pretty"],
        ["--remove-retained", "--no-retained"],
        ["--remove-retained", "--feedback"],
        ["--will-topic", "w"],
        ["--will-retain"],
        ["--count", "0"],
        ["--timeout", "0"],
    ],
)
def test_options_that_exclude_each_other(url: str, options: list[str]) -> None:
    assert run("sub", url, "t", *options).returncode == 2


def test_lightmq(running: BrokerProcess) -> None:
    process = subscribed(f"{running.urls['lightmq']}/ears", "down", "--count", "1", "-v")
    with fmqp(running.urls["fmqp"]) as client:
        client.publish("lightmq/ears/down", b"do it")
    assert ended(process) == (0, b"down do it\n", b"")
