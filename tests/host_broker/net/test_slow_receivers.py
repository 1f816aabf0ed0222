"""Slow receivers with the policies that do not pause: others are not slowed, memory is flat."""

import contextlib
import re
import socket
import time
from pathlib import Path

import pytest

from host_broker.bus.publication import pack, unpack
from host_broker.client import Client, connect
from host_broker.protocols.micromsg2.codec import (
    spell_command_frame,
    spell_extension,
    spell_handshake,
    spell_message,
)
from host_broker.protocols.micromsg2.events import Handshake
from host_broker.protocols.micromsg2.grammar import read_extensions
from host_broker.protocols.micromsg2.windows import spell_ack
from tests.host_broker.net.broker_process import BrokerProcess, broker, until
from tests.host_broker.net.certificates import Authority

BODY = bytes(8 * 1024)
COUNT = 8192  # 64 MiB
LIMITS = ("--set", "net.outbox_high_bytes=2000000", "--set", "net.outbox_low_bytes=500000")
SUBSCRIBE = bytes.fromhex("800100000000") + b"t"


def fmqp(url: str) -> Client:
    client = connect(url, timeout_s=20.0)
    return client


def flood(running: BrokerProcess, url: str) -> int:
    """Publish everything to a reader that keeps up; return how much memory the broker took."""
    with fmqp(url) as reader, fmqp(url) as publisher:
        reader.subscribe("t")
        reader.sync()
        before = running.rss_bytes()
        most = 0
        for number in range(COUNT):
            publisher.publish("t", number.to_bytes(4, "big") + BODY)
            message = reader.receive(20.0)
            assert message is not None
            assert int.from_bytes(message.payload[:4], "big") == number
            if number % 256 == 0:
                most = max(most, running.rss_bytes())
        return most - before


def numbers_of(sleeper: Client) -> list[int]:
    numbers = []
    while (message := sleeper.receive(3.0)) is not None:
        assert len(message.payload) == 4 + len(BODY)
        numbers.append(int.from_bytes(message.payload[:4], "big"))
    return numbers


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
@pytest.mark.parametrize("scheme", ["fmqp", "fmqps"])
def test_messages_for_a_sleeper_are_dropped_whole(policy: str, scheme: str, tmp_path: Path) -> None:
    query = f"?slow={policy}"
    trust = ""
    if scheme == "fmqps":
        cert, key = Authority(tmp_path, "ours").issue("broker")
        query += f"&cert={cert}&key={key}"
        trust = "?insecure=1"
    stalled = ("--set", "net.stalled_receiver_s=1")
    with broker("--listen", f"{scheme}://127.0.0.1:0{query}", *LIMITS, *stalled) as running:
        url = running.urls[scheme] + trust
        with fmqp(url) as sleeper:
            sleeper.subscribe("t")
            sleeper.sync()
            assert flood(running, url) < 16 * 1024 * 1024
            numbers = numbers_of(sleeper)
            assert 100 < len(numbers) < COUNT
            assert numbers == sorted(set(numbers))
            assert numbers[0] == 0
            # The newest survive, or the oldest.
            assert (numbers[-1] == COUNT - 1) == (policy == "drop-oldest")
            sleeper.publish("t", b"\0\0\0\0" + BODY)
            assert sleeper.receive(20.0) is not None  # as good as new
        code, stderr = running.end()
        assert code == 0
        assert "is slow: messages to it are dropped" in stderr
        told = re.search(r"was slow: (\d+) messages \((\d+) bytes\) were dropped", stderr)
        assert told is not None
        missing = COUNT - len(numbers)
        assert int(told[1]) == missing
        assert int(told[2]) == missing * (6 + 1 + 4 + len(BODY))


def test_a_sleeper_is_disconnected_at_once_if_that_is_the_policy() -> None:
    with broker("--listen", "fmqp://127.0.0.1:0?slow=disconnect", *LIMITS) as running:
        with running.raw("fmqp") as sleeper:
            sleeper.sendall(SUBSCRIBE)
            # Whose reader waits for none of it as long as a policy that pauses has it wait.
            assert flood(running, running.urls["fmqp"]) < 16 * 1024 * 1024
        code, stderr = running.end()
        assert code == 0
        assert stderr.count("its outbox is full (slow=disconnect)") == 1


def test_a_pause_holds_only_those_who_publish_to_the_sleeper() -> None:
    with broker(*LIMITS) as running, running.raw("fmqp") as sleeper, running.raw("fmqp") as busy:
        sleeper.sendall(bytes.fromhex("800100000000") + b"s")
        url = running.urls["fmqp"]
        with fmqp(url) as ordered:
            ordered.sync()
        packet = bytes.fromhex("000100002000") + b"s" + BODY
        busy.setblocking(False)
        sent = 0

        def nothing_more_is_taken() -> bool:
            nonlocal sent
            before = sent
            try:
                while True:
                    sent += busy.send(packet[sent % len(packet) :])
            except BlockingIOError:
                return sent == before and sent > 2_000_000

        until(nothing_more_is_taken)
        assert flood(running, url) < 16 * 1024 * 1024


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_the_outbox_is_used_up_to_the_last_message_that_fits(policy: str) -> None:
    """Publishers write hundreds of messages at once; what is dropped are messages, not writes."""
    count, waiting_most = 200_000, 2_000_000 // 2
    packets = [pack(0, b"t", number.to_bytes(4, "big") + bytes(96)) for number in range(count)]
    size = len(packets[0])
    with broker("--listen", f"fmqp://127.0.0.1:0?slow={policy}", *LIMITS) as running:
        with running.raw("fmqp") as sleeper, running.raw("fmqp") as publisher:
            sleeper.sendall(SUBSCRIBE)
            publisher.sendall(pack(0x80, b"done", b""))
            for start in range(0, count, 1000):
                publisher.sendall(b"".join(packets[start : start + 1000]))
            publisher.sendall(pack(0, b"done", b"!"))
            assert publisher.recv(100) == pack(0, b"done", b"!")
            received = bytearray()
            sleeper.settimeout(3.0)
            with contextlib.suppress(TimeoutError):  # it is awake now, until nothing more comes
                while data := sleeper.recv(1 << 20):
                    received += data
        numbers = [
            int.from_bytes(body[:4], "big")
            for _, topic, body in unpack(bytes(received))
            if topic == b"t"
        ]
        code, stderr = running.end()
    assert code == 0
    told = re.search(r"was slow: (\d+) messages \((\d+) bytes\) were dropped", stderr)
    assert told is not None
    assert int(told[1]) == count - len(numbers) > 1000
    assert int(told[2]) == (count - len(numbers)) * size
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 0
    if policy == "drop-oldest":
        # The newest that waited: one stretch up to the last one, as many as fit.
        stretch = 1
        while numbers[-stretch - 1] == count - 1 - stretch:
            stretch += 1
        assert numbers[-1] == count - 1
        assert waiting_most - size < stretch * size <= waiting_most


def _mm2_reader(url: str, topic: str) -> socket.socket:
    """A MicroMsg2 client with a window of one message, which it never acknowledges."""
    host, port = url.removeprefix("micromsg2://").split(":")
    reader = socket.create_connection((host, int(port)), timeout=20.0)
    hello = spell_handshake(Handshake(1, 0, "r", read_extensions(b"ack;pubsub")))
    reader.sendall(hello)
    assert reader.recv(65536)
    reader.sendall(hello + spell_command_frame("subscribe", [("topic", topic.encode())]))
    # Its own message is the answer to all that: it is heard when the subscription is there.
    reader.sendall(spell_message(1, b"topic/" + topic.encode(), b"", b"first"))
    got = b""
    while b"first" not in got:
        got += reader.recv(65536)
    return reader


def _frozen_s(url: str, topic: str) -> float:
    """How long a publisher has to wait for the receivers of a topic."""
    with fmqp(url) as publisher:
        began = time.monotonic()
        for _ in range(64):
            publisher.publish(topic, BODY)
        publisher.sync(20.0)
        return time.monotonic() - began


def test_who_acknowledges_nothing_stalls_as_who_reads_nothing() -> None:
    """A tenth of the time the next time; publishers of other topics do not notice."""
    backlog = ("--set", "micromsg2.max_backlog_bytes=1000000")
    limits = (*backlog, "--set", "net.stalled_receiver_s=4")
    listen = [f"{name}://127.0.0.1:0" for name in ("micromsg2", "fmqp")]
    with broker(*(word for each in listen for word in ("--listen", each)), *limits) as running:
        frozen = []
        for topic in ("one", "two"):
            with contextlib.closing(_mm2_reader(running.urls["micromsg2"], topic)):
                frozen.append(_frozen_s(running.urls["fmqp"], topic))
        assert frozen[0] >= 4.0
        assert 0.4 <= frozen[1] < 4.0
        assert _frozen_s(running.urls["fmqp"], "three") < 4.0
        said = running.end()[1]
        assert said.count("publishers had to wait") == 2


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest", "disconnect"])
def test_nobody_waits_for_who_acknowledges_nothing(policy: str) -> None:
    """With the other policies of its listener."""
    limits = ("--set", "micromsg2.max_backlog_bytes=1000000", "--set", "net.stalled_receiver_s=60")
    listen = [
        "--listen",
        f"micromsg2://127.0.0.1:0?slow={policy}",
        "--listen",
        "fmqp://127.0.0.1:0",
    ]
    with (
        broker(*listen, *limits) as running,
        contextlib.closing(_mm2_reader(running.urls["micromsg2"], "t")) as reader,
    ):
        with fmqp(running.urls["fmqp"]) as publisher:
            for number in range(200):
                publisher.publish("t", b"%d " % number + BODY)
            publisher.sync(20.0)
        got = b""
        for number in range(1, 80):
            if policy == "disconnect" or b"199 " in got or (number > 20 and "new" in policy):
                break
            reader.sendall(spell_extension(1, spell_ack(number)))
            got += reader.recv(65536)
        assert (b"199 " in got) == (policy == "drop-oldest")
        assert (b"2 " in got) == (policy != "disconnect")
        if policy == "disconnect":
            while got := reader.recv(65536):
                pass
            assert got == b""
