"""A request of many tiny messages is published in steps, and others are served in between."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from host_broker.bus.publication import pack
from host_broker.net.http.publish import count_publications
from host_broker.net.http.publishing import Busy, Publishing
from tests.host_broker.net.gated_disk import Gate, gated_disk
from tests.host_broker.net.journal_decoder import read_journal
from tests.host_broker.net.served import Served, served, there, until

_PACKET = pack(0, b"t/a", b"x")
_COUNT = 1024 * 1024 // len(_PACKET)
_MOST_PACKETS = 2048  # of a step
_STEP_BYTES = 128 * 1024  # that wait for the journal


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    with gated_disk(monkeypatch) as made:
        yield made[0]


def _publishing(broker: Served) -> Publishing:
    return broker.call(lambda: Publishing(broker.server, broker.broker, broker.journal, 2_000_000))


async def _turns(until: "asyncio.Future[int | None]") -> int:
    """Return how many turns of the event loop there are until a future is done."""
    turns = 0
    while not until.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


def test_counting_pauses_every_so_many_packets() -> None:
    async def work() -> None:
        counting = asyncio.ensure_future(count_publications(_PACKET * _COUNT))
        turns = await _turns(counting)
        assert counting.result() == _COUNT
        assert turns >= _COUNT // _MOST_PACKETS

    asyncio.run(work())


@pytest.mark.parametrize(
    "wrong", [b"\0", b"\0\1\0\0\0\1a", b"\x80\1\0\0\0\0a", b"\0\1\0\0\0\0a" * 5000 + b"\0\1"]
)
def test_what_is_not_whole_publications_is_not_counted(wrong: bytes) -> None:
    assert asyncio.run(count_publications(wrong)) is None


def test_publishing_pauses_and_takes_smaller_steps_when_they_take_long() -> None:
    with served() as broker:
        publishing = _publishing(broker)
        steps: list[int] = []
        received = broker.server.received

        def slow(connection: int, data: bytes) -> None:
            steps.append(len(data) // len(_PACKET))
            received(connection, data)
            if 40 <= len(steps) < 60:
                time.sleep(0.01)  # a machine that is slow

        with patch.object(broker.server, "received", slow):
            done = broker.begin(publishing.publish(_PACKET * _COUNT))
            assert done.result(60) == _COUNT
    assert sum(steps) == _COUNT
    assert max(steps) <= _MOST_PACKETS
    assert steps[50] == min(steps) == steps[0]


def test_no_more_of_it_waits_for_the_journal_than_a_step(tmp_path: Path, gate: Gate) -> None:
    """So the answers of others do, too."""
    with served(data=tmp_path, journal={"flush_s": 60.0}) as broker:
        publishing, journal = _publishing(broker), broker.journal
        assert journal is not None
        other = broker.connect()
        echo = pack(0, b"echo", b"!")
        broker.say(other, b"\x80\4\0\0\0\0echo")
        there(other)
        gate.close()
        done = broker.begin(publishing.publish(_PACKET * _COUNT))
        gate.wait_until_reached()
        other.sendall(echo)
        for _ in range(20):
            broker.call(lambda: None)
        published = broker.call(lambda: broker.broker.stats.publications)
        assert (published - 1) * len(_PACKET) <= 2 * _STEP_BYTES
        assert not done.done()
        gate.open()
        assert until(other, echo) == echo
        assert done.result(60) == _COUNT


@pytest.mark.parametrize("name", ["", "spark 7.0"])
def test_a_broker_that_stops_amid_a_request_does_not_say_that_all_is_published(
    tmp_path: Path, name: str
) -> None:
    with served(data=tmp_path) as broker:
        publishing = _publishing(broker)
        received = broker.server.received
        steps = 0

        def stops(connection: int, data: bytes) -> None:
            nonlocal steps
            steps += 1
            if steps == 10:
                broker.broker.stopping()
            received(connection, data)

        with patch.object(broker.server, "received", stops):
            done = broker.begin(publishing.publish(_PACKET * _COUNT, name))
            with pytest.raises(Busy, match="the broker is stopping"):
                done.result(60)
    there = read_journal(tmp_path / "journal")
    assert (sum(map(len, there.values())) == 0) == bool(name)  # a name: all of it, or nothing


def test_a_broker_that_has_stopped_takes_no_request(tmp_path: Path) -> None:
    with served(data=tmp_path) as broker:
        publishing = _publishing(broker)
        assert broker.wait(publishing.publish(_PACKET)) == 1
        broker.call(lambda: broker.broker.stop(time.monotonic()))
        with pytest.raises(Busy, match="the broker is stopping"):
            broker.wait(publishing.publish(_PACKET))
