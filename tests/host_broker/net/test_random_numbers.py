"""Random numbers cost one call of the system for many."""

import os
import re
from array import array
from pathlib import Path

import pytest

from host_broker.client import connect
from host_broker.net.random_numbers import DRAWN_AT_ONCE, unguessable_u16
from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.events import Connack, Send
from tests.host_broker.net.broker_process import broker

_MESSAGES = 1000
# Says at the end how often the system was asked for random bytes, by whatever name.
_COUNTING = """
import atexit, os, random, sys
asked = 0
of_the_system = os.urandom
def urandom(size):
    global asked
    asked += 1
    return of_the_system(size)
os.urandom = random._urandom = urandom
atexit.register(lambda: print(f"asked {asked} times", file=sys.stderr))
"""


def test_many_come_from_one_call_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[bytes] = []
    of_the_system = os.urandom

    def urandom(size: int) -> bytes:
        drawn.append(of_the_system(size))
        return drawn[-1]

    monkeypatch.setattr(os, "urandom", urandom)
    draw = unguessable_u16()
    assert not drawn  # nothing is drawn in advance of the first
    numbers = [draw() for _ in range(2 * DRAWN_AT_ONCE + 1)]
    assert len(drawn) == 3
    assert numbers == list(array("H", b"".join(drawn)))[: len(numbers)]


def test_two_sources_differ_and_all_numbers_occur() -> None:
    draw, other = unguessable_u16(), unguessable_u16()
    numbers = [draw() for _ in range(100_000)]
    assert numbers != [other() for _ in range(100_000)]
    assert 0 <= min(numbers) < 100 and 65_435 < max(numbers) <= 65_535


def test_messages_to_lightmq_do_not_ask_the_system_each(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_COUNTING)
    counting = f"export PYTHONPATH='{tmp_path}';"
    with broker(shell_prefix=counting) as running, running.raw("lightmq") as board:
        codec = Codec("client")
        board.sendall(codec.connect("board"))
        taken = 0
        with connect(running.urls["fmqp"], timeout_s=20.0) as publisher:
            while taken < _MESSAGES:
                for event in codec.receive_data(board.recv(65536)):
                    if isinstance(event, Connack):
                        for number in range(_MESSAGES):
                            publisher.publish("lightmq/board/down", b"%d" % number)
                    elif isinstance(event, Send):
                        assert event.data == b"%d" % taken
                        taken += 1
        code, said = running.end()
        assert code == 0
        (asked,) = map(int, re.findall(r"asked (\d+) times", said))
        assert asked < _MESSAGES // 10
