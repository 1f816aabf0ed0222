"""The real thing: a package from outside, found by its entry point, spoken by ``nc``."""

import re
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.host_broker.cli.processes import END_S, ended, run, subscribed
from tests.host_broker.net.broker_process import BrokerProcess, broker, until
from tests.host_broker.net.certificates import Authority
from tests.host_broker.own_protocol.installed import Netcat, finding

Start = Callable[..., Netcat]


@pytest.fixture(scope="module")
def running(line_package: Path) -> Iterator[BrokerProcess]:
    listen = ["line://127.0.0.1:0", "auto://127.0.0.1:0"]
    arguments = [word for each in listen for word in ("--listen", each)]
    with broker(*arguments, shell_prefix=finding(line_package)) as process:
        yield process


@pytest.fixture(params=["line", "auto"])
def port(request: pytest.FixtureRequest, running: BrokerProcess) -> str:
    return str(running.ports[request.param])


def test_people_talk(port: str, nc: Start) -> None:
    reader, writer = nc("127.0.0.1", port), nc("127.0.0.1", port)
    reader.say("sub talk/* where body > 20", "sub talk/* where unit = K")
    assert [reader.hear(), reader.hear()] == ["ok 1", "ok 2"]
    writer.say("pub talk/1 : 21", "pub talk/2 : 19", "pub talk/3 unit=K : 300", "quit")
    assert writer.rest() == "bye\n"
    assert [reader.hear(), reader.hear()] == ["msg 1 talk/1 : 21", "msg 1,2 talk/3 unit=K : 300"]
    reader.say("unsub 1", "nonsense", "quit")
    assert reader.hear() == "ok"
    assert reader.hear().startswith("err no verb 'nonsense'")
    assert reader.rest() == "bye\n"


@pytest.mark.parametrize("first", ["keep", "ping", "put", "sub", "take", "will"])
def test_one_port_knows_it_by_its_first_word(first: str, running: BrokerProcess, nc: Start) -> None:
    """And by no fewer letters: the word comes in two writes."""
    lines = {"ping": "ping", "take": "take q 1", "sub": "sub first"}
    person = nc("127.0.0.1", str(running.ports["auto"]))
    assert person.process.stdin is not None
    said = lines.get(first, f"{first} first : x")
    person.process.stdin.write(said[:1].encode())
    person.say(said[1:], "ping")
    heard = person.hear()
    while heard != "pong":
        assert not heard.startswith("err"), heard
        heard = person.hear()


def test_programs_of_other_protocols_hear_it_and_are_heard(
    running: BrokerProcess, nc: Start
) -> None:
    fmqp = f"fmqp://127.0.0.1:{running.ports['auto']}"
    person = nc("127.0.0.1", str(running.ports["line"]))
    listener = subscribed(fmqp, "from/person", "--count", "1", "-v")
    person.say("pub from/person mood=good : hello", "sub from/program")
    assert person.hear() == "ok 1"
    assert ended(listener) == (0, b"from/person hello\n", b"")
    assert run("pub", fmqp, "from/program", "good morning").returncode == 0
    assert person.hear() == "msg 1 from/program : good morning"


def test_a_queue_outlives_who_takes_from_it(port: str, nc: Start) -> None:
    queue = f"q{port}"
    writer, one, other = (nc("127.0.0.1", port) for _ in range(3))
    writer.say(f"put {queue} : a", f"put {queue} : b", f"put {queue} : c", "ping")
    assert writer.hear() == "pong"
    one.say(f"take {queue} 2")
    assert [one.hear(), one.hear(), one.hear()] == [
        "ok",
        f"job 1 {queue} : a",
        f"job 2 {queue} : b",
    ]
    one.say(f"ack {queue} 1")
    assert one.hear() == f"job 3 {queue} : c"
    other.say(f"take {queue} 5")
    assert other.hear() == "ok"
    one.close()
    assert [other.hear(), other.hear()] == [f"again 2 {queue} : b", f"again 3 {queue} : c"]


def test_a_full_queue_makes_its_publisher_wait(line_package: Path) -> None:
    """80 MB go through a broker that keeps a hundred messages, in order, none lost."""
    count, body = 40_000, "x" * 2000
    arguments = ["--listen", "line://127.0.0.1:0", "--set", "line.queue_messages=100"]
    with broker(*arguments, shell_prefix=finding(line_package)) as running:
        before = running.rss_bytes()
        writer, reader = running.raw("line"), running.raw("line")

        def put() -> None:
            writer.settimeout(60)
            for number in range(0, count, 100):
                lines = [f"put q : {each} {body}\n" for each in range(number, number + 100)]
                writer.sendall("".join(lines).encode())

        thread = threading.Thread(target=put)
        with writer, reader:
            reader.sendall(b"take q 50\n")
            lines = reader.makefile("rb")
            assert lines.readline() == b"ok\n"
            thread.start()
            highest = before
            for number in range(count):
                line = lines.readline()
                assert line.startswith(b"job %d q : %d x" % (number + 1, number)), line[:40]
                if number % 25 == 24:
                    numbers = range(number - 23, number + 2)
                    reader.sendall(b"".join([b"ack q %d\n" % each for each in numbers]))
                if number % 5000 == 0:
                    highest = max(highest, running.rss_bytes())
            lines.close()
            thread.join(60)
        assert highest - before < 40_000_000


def test_a_unix_socket(line_package: Path, tmp_path: Path, nc: Start) -> None:
    listen = ["--listen", f"line+unix://{tmp_path}/line.sock"]
    with broker(*listen, shell_prefix=finding(line_package)):
        person = nc("-U", str(tmp_path / "line.sock"))
        person.say("ping", "quit")
        assert person.rest() == "pong\nbye\n"


def test_tls(line_package: Path, tmp_path: Path) -> None:
    """At a listener of its own, and where the protocol is told by what is inside of TLS."""
    authority = Authority(tmp_path, "ours")
    cert, key = authority.issue("broker")
    listen = [f"{scheme}://127.0.0.1:0?cert={cert}&key={key}" for scheme in ("lines", "auto")]
    arguments = [word for each in listen for word in ("--listen", each)]
    context = ssl.create_default_context(cafile=str(authority.file))
    with broker(*arguments, shell_prefix=finding(line_package)) as running:
        for scheme in ("lines", "auto"):
            with (
                running.raw(scheme) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
            ):
                secure.sendall(b"ping\nquit\n")
                with secure.makefile("rb") as lines:
                    assert lines.read() == b"pong\nbye\n"


def test_its_settings_are_the_brokers(line_package: Path, tmp_path: Path, nc: Start) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("[line]\nmax_errors = 7\nmax_line = 30\n")
    options = ["--config", str(config), "--set", "line.max_errors=2"]
    listen = ["--listen", "line://127.0.0.1:0"]
    with broker(*listen, *options, shell_prefix=finding(line_package)) as running:
        person = nc("127.0.0.1", str(running.ports["line"]))
        person.say("pub a : " + "x" * 30, "no", "ping")
        assert person.hear() == "err a line is longer than 30 bytes"
        heard = person.rest().splitlines()
        assert len(heard) == 1
        assert heard[0].startswith("err no verb 'no'")


def test_properties_above_a_limit_refuse_that_publication_only(line_package: Path) -> None:
    """The largest that a publication may have come whole; one byte or one property more is an
    error, and what comes after it on the same connection is taken."""
    many = [f"{number}=x" for number in range(65)]
    taken = ["n" * 255 + "=x", "n=" + "v" * 64 * 1024, " ".join(many[:64])]
    refused = ["n" * 256 + "=x", "n=" + "v" * (64 * 1024 + 1), " ".join(many)]
    said = [f"pub p {properties} : body\n" for both in zip(taken, refused, strict=True)
            for properties in both]  # fmt: skip
    listen = ["--listen", "line://127.0.0.1:0", "--set", "line.max_line=1048576"]
    with (
        broker(*listen, shell_prefix=finding(line_package)) as running,
        running.raw("line") as person,
        person.makefile("rb") as lines,
    ):
        person.settimeout(END_S)
        person.sendall(b"sub p\n")
        assert lines.readline() == b"ok 1\n"
        person.sendall("".join(said).encode() + b"ping\n")
        heard = [lines.readline().decode() for _ in range(len(said) + 1)]
    assert [line for line in heard if not line.startswith("err")] == [
        *[f"msg 1 p {properties} : body\n" for properties in taken],
        "pong\n",
    ]
    errors = [line for line in heard if line.startswith("err")]
    limits = ("1 to 255", "65536", "at most 64 ")
    assert [limit in error for limit, error in zip(limits, errors, strict=True)] == [True] * 3


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("line.max_line=3", "line.max_line is 3; it must be a whole number from 16 to 1048576"),
        ("line.length=3", "unknown key 'line.length'; [line] has: idle_timeout_s, max_errors"),
    ],
)
def test_a_wrong_setting_is_named(
    setting: str, said: str, line_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(line_package))
    done = run("broker", "--ephemeral", "--listen", "line://127.0.0.1:0", "--set", setting)
    assert done.returncode == 2
    assert said in re.sub(r"\s+", " ", done.stderr.decode())


def test_programs_are_told_what_else_the_broker_speaks(
    line_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(line_package))
    done = run("sub", "line://127.0.0.1:1", "a")
    assert done.returncode == 2
    said = re.sub(r"\s+", " ", done.stderr.decode())
    assert "the package that brings line:// has no client for it" in said
    assert "can speak fmqp, lightmq" in said


def test_silence_ends_a_connection(line_package: Path, nc: Start) -> None:
    options = ["--listen", "line://127.0.0.1:0", "--set", "line.idle_timeout_s=0.3"]
    with broker(*options, shell_prefix=finding(line_package)) as running:
        assert nc("127.0.0.1", str(running.ports["line"])).rest() == ""


def test_a_will_is_published_when_nc_is_killed(running: BrokerProcess, nc: Start) -> None:
    reader, other = (nc("127.0.0.1", str(running.ports["line"])) for _ in range(2))
    reader.say("sub killed")
    assert reader.hear() == "ok 1"
    other.say("will killed : yes", "ping")
    assert other.hear() == "pong"
    other.close()
    assert reader.hear() == "msg 1 killed : yes"


def test_who_comes_while_the_broker_stops_is_told_so(line_package: Path, nc: Start) -> None:
    """It stops as long as a reader has not taken what it was sent, more than sockets hold."""
    listen = ["--listen", "line://127.0.0.1:0", "--listen", "fmqp://127.0.0.1:0"]
    options = ["--set", "net.drain_s=60", "--set", "net.outbox_high_bytes=64_000_000"]
    with broker(*listen, *options, shell_prefix=finding(line_package)) as running:
        port = str(running.ports["line"])
        with running.raw("line") as sleeper:
            sleeper.sendall(b"sub big\n")
            assert sleeper.recv(5) == b"ok 1\n"
            writer = nc("127.0.0.1", port)
            writer.say(*[f"pub big : {'x' * 50_000}"] * 300, "ping")
            assert writer.hear() == "pong"
            running.process.send_signal(signal.SIGTERM)

            def stopping() -> bool:
                """FMQP has no word for it, so its listener closes first."""
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", running.ports["fmqp"])) != 0

            until(stopping)
            late = nc("127.0.0.1", port)
            late.say("ping")
            assert late.rest() == "err the broker is stopping\n"
        assert running.wait()[0] == 0


def test_who_has_not_installed_it_is_told_what_there_is() -> None:
    done = run("broker", "--ephemeral", "--listen", "line://127.0.0.1:0")
    assert done.returncode == 2
    assert b"unknown protocol 'line'; there are: fmqp, fmqps" in b" ".join(done.stderr.split())
