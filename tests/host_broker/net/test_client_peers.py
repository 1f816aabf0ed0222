"""The public client against peers that are no broker, silent, or nobody."""

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from benchmarks.ports import port_for_later
from host_broker.client import (
    AddressError,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    Timeout,
    connect,
)
from host_broker.client.first_words import stranger


@contextlib.contextmanager
def peer(protocol: str, behave: Callable[[socket.socket], None]) -> Iterator[str]:
    """A listener that treats one connection as ``behave`` says; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)

        def serve() -> None:
            accepted, _ = listening.accept()
            with accepted:
                accepted.settimeout(20)
                behave(accepted)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{protocol}://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            thread.join(20)
            assert not thread.is_alive()


def until_closed(sock: socket.socket) -> None:
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(65536):
            continue


def answering(answer: bytes) -> Callable[[socket.socket], None]:
    def behave(sock: socket.socket) -> None:
        sock.recv(1)
        sock.sendall(answer)
        until_closed(sock)

    return behave


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:8765", "write it as fmqp://"),
        ("http://127.0.0.1", "unknown protocol 'http'"),
        ("fmqp://", "names no host"),
        ("fmqp://127.0.0.1:x", "is no address"),
        ("fmqp://127.0.0.1/kitchen", "only LightMQ, FMQP inside LightMQ, MicroMsg2 and UMQ have"),
    ],
)
def test_an_address_that_cannot_be_read(url: str, words: str) -> None:
    with pytest.raises(AddressError, match=re.escape(words)):
        connect(url)


def test_nobody_there() -> None:
    port = port_for_later()
    with pytest.raises(ConnectFailed, match=f"nothing listens at fmqp://127.0.0.1:{port}"):
        connect(f"fmqp://127.0.0.1:{port}")


def test_a_silent_peer_is_a_timeout() -> None:
    with (
        peer("fmqp", until_closed) as url,
        connect(url) as client,
        pytest.raises(Timeout, match="did not echo"),
    ):
        client.ping(0.2)
    with (
        peer("lightmq", until_closed) as url,
        pytest.raises(Timeout, match="did not answer CONNECT"),
    ):
        connect(url + "/x", timeout_s=0.2)
    accepting = bytes.fromhex("02000100")
    with peer("lightmq", answering(accepting)) as url, connect(url + "/x") as client:
        with pytest.raises(Timeout, match="did not respond to a SEND"):
            client.request("up", b"x", 0.2)
        with pytest.raises(Timeout, match="did not answer a PING"):
            client.ping(0.2)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("", "closed the connection instead of answering CONNECT"),
        ("02000109", "CONNACK code 9"),
        ("0200020000", "CONNACK has 2 bytes"),
        ("0400020001", "no CONNACK"),
        ("48454c4c4f", "opcode 0x48 is reserved"),
        ("0200010002000100", "second CONNACK"),
    ],
)
def test_a_peer_that_is_no_lightmq_broker(answer: str, words: str) -> None:
    def behave(sock: socket.socket) -> None:
        sock.recv(1)
        sock.sendall(bytes.fromhex(answer))
        if answer:
            until_closed(sock)
        else:
            sock.recv(65536)  # the rest of CONNECT, so that closing is a FIN

    with peer("lightmq", behave) as url, pytest.raises(ConnectionLost, match=words):
        connect(url + "/x", timeout_s=20.0)


def test_an_fmqp_broker_that_sends_nonsense_is_survived() -> None:
    nonsense = bytes.fromhex("8001000000007400000000000178") + b"\0\1\0\0\0\1tx"
    with peer("fmqp", answering(nonsense)) as url, connect(url) as client:
        client.publish("t", b"wake up")
        message = client.receive(20.0)
        assert message is not None
        assert (message.topic, message.payload) == ("t", b"x")


def test_what_nobody_reads_is_not_kept_for_ever() -> None:
    def flood(sock: socket.socket) -> None:
        packet = bytes.fromhex("000100100000") + b"t" + bytes(1 << 20)
        with contextlib.suppress(ConnectionError):
            while True:
                sock.sendall(packet)

    with (
        peer("fmqp", flood) as url,
        connect(url) as client,
        pytest.raises(ClientError, match="64 MiB of messages are unread"),
    ):
        client.ping(20.0)


@pytest.mark.parametrize("protocol", ["fmqp", "lightmq"])
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "speaks HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "speaks SSH"),
        (bytes.fromhex("15030300020228"), "speaks TLS .*fmqps://"),
        (b"220 mail.example ESMTP\r\n", "speaks SMTP or FTP"),
        (b'INFO {"server_id":"x"}\r\n', "speaks NATS"),
    ],
)
def test_a_stranger_is_named(protocol: str, answer: bytes, words: str) -> None:
    with (
        peer(protocol, answering(answer)) as url,
        pytest.raises(ConnectionLost, match=f"{words}.*is it the right port"),
        connect(url, timeout_s=20.0) as client,
    ):
        client.ping(20.0)


def test_no_message_of_a_broker_is_taken_for_a_stranger() -> None:
    """Every flags byte a broker sends, with lengths that come close to a stranger's words."""
    for flags in (0x00, 0x04, 0x08, 0x0C, 0x20, 0x24):
        for topic_length in range(256):
            for body in (0, 3, 0x02_0000, 0x0300_0202):
                first = bytes([flags, topic_length]) + body.to_bytes(4, "big") + b"HTTP/SSH-"
                assert stranger(first) is None
    for opcode in range(1, 0x15):  # LightMQ's, and some more
        assert stranger(bytes([opcode, 3, 1, 0])) is None


def test_who_has_never_said_a_word_is_doubted_who_has_is_not() -> None:
    with (
        peer("fmqp", lambda sock: None) as url,
        connect(url) as client,
        pytest.raises(ConnectionLost, match="right port and protocol"),
    ):
        client.ping(20.0)
    echo = bytes.fromhex("000100000001") + b"tx"
    with peer("fmqp", lambda sock: sock.sendall(echo)) as url, connect(url) as client:
        assert client.receive(20.0) is not None
        with pytest.raises(ConnectionLost) as lost:
            client.ping(20.0)
        assert "right port" not in str(lost.value)


@pytest.mark.parametrize("host", ["255.255.255.255", "nobody.invalid"])
def test_what_cannot_be_reached_is_said(host: str) -> None:
    words = {"255.255.255.255": "Network is unreachable", "nobody.invalid": "host name is unknown"}
    with pytest.raises(ConnectFailed, match=words[host]):
        connect(f"fmqp://{host}:8765", timeout_s=20.0)
