"""A queue's message is acknowledged when the program has finished with it: what a killed, failed,
closed or reconnecting program had not comes back, in order, and marked."""

import asyncio
import gc
import itertools
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from host_broker.client import BadArgument, Client, Message, connect, connect_async
from tests.host_broker.cli.cutting import relay
from tests.host_broker.net.broker_process import BrokerProcess, broker, until

_SOON_S = 30.0
_CONSUMER = """
import sys, motemq
with motemq.connect(sys.argv[1]) as client:
    client.subscribe(sys.argv[2], confirm=True)
    for message in client.messages():
        sys.stdin.readline()
        print(int(message.payload), (message.properties or {}).get("redelivered", 0), flush=True)
"""


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker("--listen", "micromsg2://127.0.0.1:0", "--listen", "fmqp://127.0.0.1:0") as process:
        yield process


@pytest.fixture(scope="module")
def url(running: BrokerProcess) -> str:
    return running.urls["micromsg2"]


def _filled(url: str, queue: str, count: int) -> None:
    with connect(url) as client:
        for number in range(count):
            client.publish(queue, b"%d" % number)
        client.sync(_SOON_S)


def _next(client: Client) -> Message:
    message = client.receive(_SOON_S)
    assert message is not None
    return message


def _mark(message: Message) -> int:
    found: Any = (message.properties or {}).get("redelivered", 0)
    return int(found)


def _expect_at_least_once(heard: list[tuple[int, int]], count: int) -> int:
    """Every number came, for the first time in order; who came again is marked. Returns how many
    came again."""
    first = list(dict.fromkeys(number for number, _ in heard))
    assert first == list(range(count))
    seen = set()
    for number, mark in heard:
        assert mark or number not in seen, f"{number} came again without a mark"
        seen.add(number)
    return len(heard) - count


def test_what_a_killed_program_had_not_finished_with_comes_back(url: str) -> None:
    """Killed in the middle of what it does with a message, wherever that is."""
    count, kills, dice = 3000, 8, random.Random(18)
    most = count // (2 * kills)  # messages of one program: some are left for the last one
    _filled(url, "killed", count)
    heard: list[tuple[int, int]] = []
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", _CONSUMER, url, "killed"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n" * most)
        process.stdin.flush()
        heard += [_line(each) for each in itertools.islice(process.stdout, dice.randint(1, most))]
        process.send_signal(signal.SIGKILL)
        # What it has printed it has done, though it was not waited for.
        heard += [_line(each) for each in process.stdout if each.endswith("\n")]
        process.wait(_SOON_S)
        process.stdin.close()
        process.stdout.close()
    with connect(url) as client:
        client.subscribe("killed", confirm=True)
        while len({number for number, _ in heard}) < count:
            message = _next(client)
            heard.append((int(message.payload), _mark(message)))
    # Some that it had finished with may come again: their acks were under way.
    assert _expect_at_least_once(heard, count) < kills * 1000


def _line(text: str) -> tuple[int, int]:
    number, mark = text.split()
    return int(number), int(mark)


def test_a_hundred_consumers_that_die(url: str) -> None:
    """Each is reset at some message; together they had all of them."""
    count, dice = 2000, random.Random(4)
    _filled(url, "dying", count)
    heard: list[tuple[int, int]] = []
    for _ in range(100):
        client = connect(f"{url}?window={dice.randint(1, 60)}")
        client.subscribe("dying", confirm=True)
        for _ in range(dice.randint(0, 18)):  # fewer than there are, all together
            message = _next(client)
            heard.append((int(message.payload), _mark(message)))
        client.abort()
    with connect(url) as client:
        client.subscribe("dying", confirm=True)
        while len({number for number, _ in heard}) < count:
            message = _next(client)
            heard.append((int(message.payload), _mark(message)))
    _expect_at_least_once(heard, count)


def test_what_was_not_taken_is_for_the_next(url: str) -> None:
    """Read from the socket is not taken; and closing in order says that the last one is done."""
    _filled(url, "few", 500)
    for first in (0, 1, 2):
        with connect(url) as client:
            client.subscribe("few", confirm=True)
            message = _next(client)
            assert (int(message.payload), _mark(message)) == (first, int(first > 0))
    with connect(url) as client:
        client.subscribe("few", confirm=True)
        assert [int(_next(client).payload) for _ in range(497)] == list(range(3, 500))
        assert client.receive(0) is None


def test_who_fails_with_a_message_has_not_finished_with_it(url: str) -> None:
    _filled(url, "failing", 3)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), connect(url) as client:
            client.subscribe("failing", confirm=True)
            for message in client.messages():
                1 // int(message.payload)
    with connect(url) as client:
        client.subscribe("failing", confirm=True)
        heard = [_next(client) for _ in range(3)]
        assert [(int(each.payload), _mark(each)) for each in heard] == [(0, 1), (1, 1), (2, 1)]


def test_asyncio_is_the_same(url: str) -> None:
    _filled(url, "looped", 10)

    async def fail_at(number: int) -> None:
        async with connect_async(url) as client:
            jobs = await client.subscribe("looped", confirm=True)
            async for message in jobs:
                if int(message.payload) == number:
                    raise ZeroDivisionError

    async def rest() -> list[int]:
        async with connect_async(url) as client:
            await client.subscribe("looped", confirm=True)
            heard = []
            while len(heard) < 5:
                message = await client.receive(_SOON_S)
                assert message is not None
                heard.append(int(message.payload))
            return heard

    with pytest.raises(ZeroDivisionError):
        asyncio.run(fail_at(3))
    assert asyncio.run(rest()) == [3, 4, 5, 6, 7]
    with connect(url) as client:
        client.subscribe("looped", confirm=True)
        assert [int(_next(client).payload) for _ in range(2)] == [8, 9]


def test_a_task_that_is_cancelled_while_it_connects_leaves_nothing_behind(url: str) -> None:
    """Wherever it is by then; what is told to nobody would be shown by the loop."""
    told: list[dict[str, Any]] = []

    async def connected() -> None:
        async with connect_async(url):
            await asyncio.sleep(_SOON_S)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, what: told.append(what))
        for turns in range(60):
            task = asyncio.create_task(connected())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        async with connect_async(url) as client:
            assert await client.ping() > 0
        gc.collect()

    asyncio.run(main())
    assert told == []


def test_who_unsubscribes_gives_back_what_it_did_not_take(url: str) -> None:
    """And what it has in hand it has finished with, as nothing more is asked for."""
    _filled(url, "left", 50)
    with connect(url) as client, connect(url) as other:
        jobs = client.subscribe("left", confirm=True)
        assert [int(m.payload) for m in itertools.islice(jobs, 5)] == [0, 1, 2, 3, 4]
        jobs.unsubscribe()
        assert jobs.receive(0) is None
        client.sync()
        other.subscribe("left", confirm=True)
        assert [int(_next(other).payload) for _ in range(45)] == list(range(5, 50))
        # It can take on with something else: nothing that it has left keeps its window full.
        again = client.subscribe("topic/left/t", confirm=True)
        for number in range(3000):
            other.publish("topic/left/t", b"%d" % number)
        assert [int(m.payload) for m in itertools.islice(again, 3000)] == list(range(3000))


def test_who_does_not_read_gets_no_more_than_a_window(url: str) -> None:
    """R26: and others get what there is beyond it."""
    _filled(url, "window", 30)
    with connect(f"{url}?window=10") as idle, connect(url) as busy:
        jobs = idle.subscribe("window", confirm=True)
        busy.subscribe("window", confirm=True)
        assert [int(_next(busy).payload) for _ in range(20)] == list(range(10, 30))
        assert busy.receive(0) is None
        assert [int(m.payload) for m in itertools.islice(jobs, 10)] == list(range(10))


def test_topics_are_acknowledged_as_they_come(url: str) -> None:
    """Nothing of them comes again, so who reads late holds no window."""
    with connect(f"{url}?window=5") as client:
        client.subscribe("topic/late/t", confirm=True)
        for number in range(100):
            client.publish("topic/late/t", b"%d" % number)
        client.sync()
        assert [int(_next(client).payload) for _ in range(100)] == list(range(100))


def test_two_readers_of_one_queue_on_a_connection(url: str) -> None:
    """The broker knows one consumer; a message is finished with when both have."""
    with pytest.raises(ZeroDivisionError), connect(url) as client:
        one, two = client.subscribe("shared"), client.subscribe("shared")
        for reader in (one, two):
            client._shell.claim(reader._subscribed)
        # Only now: what comes before the second one is read is the first one's.
        _filled(url, "shared", 4)
        assert [int(m.payload) for m in itertools.islice(one, 4)] == [0, 1, 2, 3]
        assert [int(m.payload) for m in itertools.islice(two, 3)] == [0, 1, 2]
        raise ZeroDivisionError
    with connect(url) as client:
        client.subscribe("shared", confirm=True)
        assert [int(_next(client).payload) for _ in range(2)] == [2, 3]


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - the client tells nobody of it
        await asyncio.sleep(0.001)


def test_who_waits_is_given_what_another_reader_leaves(url: str) -> None:
    _filled(url, "handed", 3)

    async def main() -> None:
        async with connect_async(url) as client:
            one = await client.subscribe("handed")
            assert await one.receive(_SOON_S)
            inbox_of = client._shell._subscriptions.inbox_of
            async with asyncio.timeout(_SOON_S):
                await _until(lambda: len(inbox_of(one._subscribed).items) == 2)
                two = await client.subscribe("handed")
                waiting = asyncio.ensure_future(two.receive(_SOON_S))
                await _until(lambda: bool(inbox_of(two._subscribed).waiting))
                await one.unsubscribe()
                for wanted in (b"1", b"2"):
                    message = await waiting
                    assert isinstance(message, Message)
                    assert message.payload == wanted
                    waiting = asyncio.ensure_future(two.receive(0))

    asyncio.run(main())


def test_a_reconnecting_consumer_gets_what_it_had_not_finished_with(running: BrokerProcess) -> None:
    """In order, once more only what it had in hand, and marked."""
    count = 3000
    _filled(running.urls["micromsg2"], "cut", count)
    cuts = {200, 201, 900, 2500}  # distinct messages
    heard: dict[int, int] = {}
    again = 0
    with relay(running.ports["micromsg2"], ()) as cutting:
        url = cutting.url.replace("fmqp", "micromsg2")
        with connect(url, reconnect=True, timeout_s=_SOON_S) as client:
            client.subscribe("cut")
            while len(heard) < count:
                message = _next(client)
                number = int(message.payload)
                if number in heard:
                    assert _mark(message)
                    again += 1
                    continue
                heard[number] = _mark(message)
                if len(heard) in cuts:
                    before = client.connections
                    cutting.cut_now()
                    until(lambda before=before: client.connections > before)
    assert list(heard) == list(range(count))
    # What was in hand, and what it had finished with that the broker was not told any more.
    assert len(cuts) <= again < len(cuts) * 1000


def test_json_is_decoded_where_it_is_asked_for(url: str) -> None:
    """The extension is required of the broker, and what is none is refused before it is sent."""
    value = {"celsius": 21.5, "room": "küche", "at": None, "all": [True, {"deep": -3}]}
    with connect(f"{url}/board?json=1") as board, connect(url) as desk:
        for client in (board, desk):
            client.subscribe("topic/json/t", confirm=True)
        board.publish("topic/json/t", json=value, confirm=True)
        board.publish("topic/json/t", b" [1, 2]\n", confirm=True)
        for client in (board, desk):
            assert _next(client).json() == value
            assert _next(client).json() == [1, 2]
        with pytest.raises(BadArgument, match="is not JSON"):
            board.publish("topic/json/t", b"21,5")
        with pytest.raises(BadArgument, match="not both"):
            board.publish("topic/json/t", b"1", json=1)
        with pytest.raises(BadArgument, match="no JSON can say"):
            board.publish("topic/json/t", json=float("nan"))
        with pytest.raises(TypeError):
            board.publish("topic/json/t", json={1, 2})
        assert board.ping() > 0  # it lives
        for none in (b"21,5", b"\xff", b"NaN", b"[" * 100_000):
            desk.publish("topic/json/t", none, confirm=True)
            message = _next(board)
            assert message.payload == none
            with pytest.raises(ValueError, match="payload of topic/json/t is not JSON"):
                message.json()
        desk.publish("topic/json/t", json=None, confirm=True)
        assert _next(board).json() is None


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("window=0", "a number from 1 to 32767, not '0'"),
        ("window=32768", "not '32768'"),
        ("window=0000000000099999", "not '0000000000099999'"),
        ("window=x", "not 'x'"),
        ("json=yes", "json is 1 or 0, not 'yes'"),
    ],
)
def test_options_that_cannot_be(url: str, option: str, words: str) -> None:
    with pytest.raises(BadArgument, match=words):
        connect(f"{url}?{option}")


def test_properties_are_what_they_are(url: str) -> None:
    """R40: numbers, text and dates, there and back."""
    noon = datetime(2014, 10, 13, 12, 0, 0, 250_000, timezone(timedelta(hours=1)))
    said = {"n": -5, "x": 0.1, "big": 2**63 - 1, "room": "küche; 1%", "at": noon, "raw": b"\xff"}
    with connect(url) as client:
        client.subscribe("topic/props", filter="n<N0;room&T%25", confirm=True)
        client.publish("topic/props", b"1", properties=said)
        client.publish("topic/props", b"2", properties={"n": 1, "room": "%"})
        client.publish("topic/props", b"3", properties={"n": -1, "room": "%"})
        message = _next(client)
        assert message.properties == said
        assert message.properties["at"] == datetime(2014, 10, 13, 11, 0, 0, 250_000, UTC)
        assert _next(client).payload == b"3"
        with pytest.raises(BadArgument, match="a date has a timezone"):
            client.publish("topic/props", b"", properties={"at": datetime(2026, 1, 1)})
        wrong: Any = [1]
        with pytest.raises(BadArgument, match="text, a number or a date, not list"):
            client.publish("topic/props", b"", properties={"at": wrong})
