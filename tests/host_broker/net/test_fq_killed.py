"""Queues on disk, and a broker that is killed while it gives what is in them."""

import signal
import ssl
import urllib.request
from pathlib import Path

import pytest

from tests.host_broker.net.broker_process import broker, until
from tests.host_broker.net.certificates import Authority
from tests.host_broker.net.fq_client import FqClient, fq_client, submit

_LISTEN = ("--listen", "fq://127.0.0.1:0")
_MANY = 1_000


def test_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    """R26, R35: what was on its way when the broker was killed may come again, with its id.

    Nothing else does: it is the end of what has come, and before all that has not.
    """
    data = ("--data", str(tmp_path / "data"))
    numbers = [number.to_bytes(16, "big") for number in range(_MANY)]
    # What is done with is not on file at the kill: nobody waits for that.
    with broker(*data, *_LISTEN, "--set", "journal.flush_s=60") as running:
        port = running.ports["fq"]
        with FqClient(port, b"d\0disk:public,permanent", data=False) as consumer:
            consumer.bind_permanently(b"e", b"prefix:")
            with fq_client(port, b"sender") as sender:
                for number in numbers[:-1]:
                    sender.publish(b"e", b"r%d" % (number[-1] % 7), number, number)
                # The answer of what is submitted then is for all that was read before it, too.
                until(lambda: f'"msgs_in": "{_MANY - 1}"' in _statistics(port))
                submit(port, "e", numbers[-1])
            consumer.open_data()
            first = consumer.payloads(_MANY // 2)
            running.end(signal.SIGKILL)
            first += consumer.rest()
            ids = consumer.last_ids
    assert first == numbers[: len(first)]
    with (
        broker(*data, *_LISTEN) as running,
        fq_client(running.ports["fq"], b"d\0disk:public") as consumer,
    ):
        again = [consumer.receive()[3]]
        while again[-1] != numbers[-1]:
            again.append(consumer.receive()[3])
        assert again == numbers[-len(again) :]
        assert len(first) + len(again) >= _MANY
        common = len(first) + len(again) - _MANY
        assert common > 0
        assert consumer.last_ids[:common] == ids[len(first) - common :]


@pytest.mark.parametrize(
    ("by_tls", "sent"),
    [(False, signal.SIGKILL), (True, signal.SIGKILL), (False, signal.SIGTERM)],
)
def test_what_a_slow_consumer_has_not_got_is_not_lost(
    tmp_path: Path, by_tls: bool, sent: signal.Signals
) -> None:
    """More than the kernel takes is on its way: none of that is done with before it is sent."""
    authority = Authority(tmp_path, "ours")
    certificate, key = authority.issue("broker")
    tls = ssl.create_default_context(cafile=authority.file) if by_tls else None
    also = ("--listen", f"fqs://127.0.0.1:0?cert={certificate}&key={key}")
    limits = ("--set", "journal.flush_s=0.01", "--set", "net.drain_s=0.2")
    data = ("--data", str(tmp_path / "data"), *limits)
    bodies = [number.to_bytes(4, "big") * 500 for number in range(6_000)]
    with broker(*data, *_LISTEN, *also) as running:
        port = running.ports["fq"]
        where = running.ports["fqs" if by_tls else "fq"]
        with FqClient(where, b"d\0disk:public,permanent", tls=tls) as consumer:
            consumer.bind_permanently(b"e", b"prefix:")
            with fq_client(port, b"sender") as sender:
                for body in bodies[:-1]:
                    sender.publish(b"e", b"r", body)
                until(lambda: f'"msgs_in": "{len(bodies) - 1}"' in _statistics(port))
                submit(port, "e", bodies[-1])
            running.end(sent)
            first = consumer.rest()
    assert first == bodies[: len(first)]
    assert len(first) < len(bodies)
    with (
        broker(*data, *_LISTEN) as running,
        fq_client(running.ports["fq"], b"d\0disk:public") as consumer,
    ):
        again = [consumer.receive()[3]]
        while again[-1] != bodies[-1]:
            again.append(consumer.receive()[3])
    assert again == bodies[-len(again) :]
    assert len(first) + len(again) >= len(bodies)


def test_a_queue_that_a_kill_has_left_is_named_and_ends_with_its_client(tmp_path: Path) -> None:
    """R36: as in fqd it waits for its client; whoever logs in has it, and nobody after that."""
    data = ("--data", str(tmp_path / "data"))
    with broker(*data, *_LISTEN) as running:
        port = running.ports["fq"]
        with (
            FqClient(port, b"left\0disk:public", data=False) as consumer,
            fq_client(port, b"sender") as sender,
        ):
            consumer.bind(b"e", b"prefix:")
            sender.publish(b"e", b"r", b"1")
            until(lambda: '"msgs_in": "1"' in _statistics(port))
            submit(port, "e", b"2")
            running.end(signal.SIGKILL)
    with broker(*data, *_LISTEN) as running:
        with fq_client(running.ports["fq"], b"left\0disk:public") as consumer:
            assert consumer.payloads(2) == [b"1", b"2"]
        until(lambda: _statistics(running.ports["fq"]).count('"left"') == 0)
        _, said = running.end()
    assert "the queue fq/left on disk, with 2 messages, was not permanent" in said
    with broker(*data, *_LISTEN) as running:
        _, said = running.end()
    assert "fq/left" not in said


def _statistics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats.json", timeout=20) as answer:
        return bytes(answer.read()).decode()
