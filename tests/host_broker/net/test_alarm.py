"""A timer that is a file, and an event loop that waits for it instead of with timeouts."""

import asyncio
import contextlib
import functools
import os
import resource
import select
import socket
import threading
import time
from math import inf

import pytest

from host_broker.net.connection.alarm import Alarm
from host_broker.net.connection.poller import Poller, event_loop
from host_broker.net.connection.stream import Stream

WITHIN_S = 60.0


def _readable(alarm: Alarm, within_s: float) -> bool:
    return bool(select.select([alarm.fd], [], [], within_s)[0])


def test_it_can_be_read_from_its_time_on_and_not_before() -> None:
    with contextlib.closing(Alarm()) as alarm:
        assert alarm.at == inf
        at = time.monotonic() + 0.05
        alarm.set(at)
        assert alarm.at == at
        assert not alarm.clear()
        assert alarm.at == at
        assert _readable(alarm, WITHIN_S)
        assert time.monotonic() >= at
        assert alarm.clear()
        assert alarm.at == inf
        assert not alarm.clear()
        assert not _readable(alarm, 0)


@pytest.mark.parametrize("at", [0.0, -1.0, 1e-9])
def test_a_time_that_is_over_is_now(at: float) -> None:
    with contextlib.closing(Alarm()) as alarm:
        alarm.set(at)
        assert _readable(alarm, WITHIN_S)
        assert alarm.clear()


def test_another_time_replaces_the_one_before() -> None:
    with contextlib.closing(Alarm()) as alarm:
        alarm.set(time.monotonic() + 3600)
        alarm.set(time.monotonic())
        assert _readable(alarm, WITHIN_S)
        alarm.set(time.monotonic() + 3600)
        assert not _readable(alarm, 0)


def test_who_has_no_more_files_is_told() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    taken = contextlib.ExitStack()
    try:
        with taken, pytest.raises(OSError, match="Too many open files"):
            for _ in range(201):
                taken.enter_context(contextlib.closing(Alarm()))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _called(loop: asyncio.AbstractEventLoop, after_s: float) -> None:
    event = asyncio.Event()
    loop.call_later(after_s, event.set)
    async with asyncio.timeout(WITHIN_S):
        await event.wait()


def test_an_earlier_time_counts_and_one_that_nobody_wants_any_more_does_no_harm() -> None:
    called: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(3600, called.append, "never")
        await asyncio.sleep(0)
        await _called(loop, 0.02)
        loop.call_later(0.01, called.append, "cancelled").cancel()
        began = loop.time()
        await _called(loop, 0.1)
        assert loop.time() - began >= 0.1

    with asyncio.Runner(loop_factory=functools.partial(event_loop, Poller())) as runner:
        runner.run(main())
    assert called == []


class Counting(asyncio.Protocol):
    """Counts reads."""

    def __init__(self) -> None:
        self.reads = 0
        self.wanted = 0
        self.reached = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        if self.reads == self.wanted:
            self.reached.set()


def test_callbacks_come_while_sockets_never_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a wait for one that is far away is told to the kernel once, not with every read."""
    times: list[float] = []
    set_alarm = Alarm.set

    def counted(alarm: Alarm, at: float) -> None:
        times.append(at)
        set_alarm(alarm, at)

    monkeypatch.setattr(Alarm, "set", counted)
    poller = Poller()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, peer = socket.socketpair()
        ours.setblocking(False)
        counting = Counting()
        stream = Stream(ours, counting, poller, loop)
        stream.start()
        loop.call_later(3600, lambda: None)
        stop = threading.Event()

        def talk() -> None:
            with contextlib.suppress(OSError):
                while not stop.is_set():
                    peer.send(b"x")

        thread = threading.Thread(target=talk)
        thread.start()
        try:
            await _called(loop, 0.05)
            times.clear()
            counting.wanted = counting.reads + 200
            await asyncio.wait_for(counting.reached.wait(), WITHIN_S)
        finally:
            stop.set()
            peer.close()
            thread.join()
            stream.close()

    with asyncio.Runner(loop_factory=functools.partial(event_loop, poller)) as runner:
        runner.run(main())
    assert len(times) < 5, f"{len(times)} times for 200 reads"


def test_a_loop_that_is_closed_keeps_no_file() -> None:
    before = set(os.listdir("/proc/self/fd"))
    event_loop(Poller()).close()
    assert set(os.listdir("/proc/self/fd")) == before
