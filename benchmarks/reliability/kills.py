"""Kill a broker at random instants under mixed load, and look for what was acknowledged.

The load goes on through every fall. Some of the kills come while the broker starts. At the end
every publication that was acknowledged must be in the journal, what went to a queue must have been
heard by its consumer, every batch with a number must be there once and whole, and of every retained
topic the last message that was acknowledged or a later one be kept.
A broker may say that the tail of a segment is torn: what the kernel was writing when it was killed,
hence acknowledged to nobody. Anything else that it says is a failure.
"""

import ctypes
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.count import journalled
from benchmarks.ports import port_for_later
from benchmarks.reliability.load import (
    FmqpPublisher,
    HttpPublisher,
    LightmqPublisher,
    MicroMsg2Publisher,
    NumberedPublisher,
    Publisher,
    QueueConsumer,
    RetainedPublisher,
    read_kept,
)
from benchmarks.reliability.power_loss import Disk

_START_S = 60.0
_DRAIN_S = 60.0
_LONGEST_S = 0.6  # between the start and the kill
_DURING_START = 0.15  # of the kills
_PR_SET_PDEATHSIG = 1
# Of a segment's tail, or of one that has not even a header.
_TORN_TAIL = re.compile(
    r"broker: journal: torn: \S+\.mjl(, offset \d+: the last \d+ bytes were never whole.*|"
    r": .*; it has no message)"
)
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a campaign found; ``lost`` and ``twice`` are publications, ``stale`` retained topics.

    ``tails``: how many torn tails the brokers said there were.
    """

    kills: int
    acknowledged: int
    journalled: int
    lost: Sequence[tuple[str, bytes]]
    twice: Sequence[tuple[str, bytes]]
    torn: Sequence[tuple[str, int]]  # batches with a number that are there in part
    stale: Sequence[str]
    start_s: Sequence[float]
    tails: int

    @property
    def exact(self) -> bool:
        """Whether every promise was kept."""
        return not (self.lost or self.twice or self.torn or self.stale)


def campaign(
    folder: Path,
    kills: int,
    seed: int,
    options: Sequence[str] = (),
    disk: Disk | None = None,
    tell: Callable[[int], object] = lambda done: None,
) -> Outcome:
    """Kill a broker with its data in ``folder`` so often; ``options`` are further ones of it.

    With a ``disk``, whose root is ``folder``, the machine loses its power instead. Every other time
    nothing is left but what was synced, else some files may be as they were at the end.

    ``tell`` is told after each kill how many there were. Raises ``RuntimeError`` if the broker does
    not start again, or says what it must not.
    """
    drawn = random.Random(seed)
    port = port_for_later()
    argv = [sys.executable, "-m", "motemq", "broker", "--data", str(folder)]
    argv += ["--listen", f"auto://127.0.0.1:{port}", *options]
    publishers: list[Publisher] = [
        *(FmqpPublisher(port, f"f{number}") for number in range(2)),
        *(RetainedPublisher(port, f"r{number}") for number in range(2)),
        *(LightmqPublisher(port, f"l{number}") for number in range(3)),
        *(MicroMsg2Publisher(port, f"m{number}") for number in range(2)),
        *(HttpPublisher(port, f"h{number}") for number in range(2)),
        *(NumberedPublisher(port, f"n{number}") for number in range(2)),
    ]
    consumer = QueueConsumer(port, "q0", ["kill/queue/m0", "kill/queue/m1"])
    for publisher in (*publishers, consumer):
        publisher.start()
    start_s: list[float] = []
    tails = 0
    try:
        for turn in range(kills):
            began = time.monotonic()
            process = _spawn(argv, disk)
            if drawn.random() < _DURING_START:
                time.sleep(drawn.uniform(0.0, _LONGEST_S))
            else:
                _wait_until_listening(process)
                start_s.append(time.monotonic() - began)
                time.sleep(drawn.uniform(0.0, _LONGEST_S))
            process.kill()
            _, said = process.communicate()
            if process.returncode != -signal.SIGKILL:
                raise RuntimeError(f"the broker ended by itself: {said.decode()}")
            tails += torn_tails(said)
            if disk is not None:
                disk.lose_power(drawn if turn % 2 else None)
            tell(turn + 1)
    finally:
        process = _spawn(argv, disk)
        _wait_until_listening(process)
        for publisher in publishers:
            publisher.stop()
        acknowledged = set().union(*(publisher.acknowledged for publisher in publishers))
        queued = {each for each in acknowledged if each[0] in consumer.queues}
        unheard = consumer.drain(queued, _DRAIN_S)
        consumer.stop()
    kept = read_kept(port, [f"kill/kept/{name}/{n}" for name in ("r0", "r1") for n in range(10)])
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=_START_S)
    if process.returncode:
        raise RuntimeError(f"the broker ended with {process.returncode}: {said.decode()}")
    tails += torn_tails(said)
    for publisher in (*publishers, consumer):
        if publisher.failure is not None:
            raise publisher.failure
    return _outcome(kills, folder, publishers, unheard, kept, start_s, tails)


def _outcome(
    kills: int,
    folder: Path,
    publishers: Sequence[Publisher],
    unheard: set[tuple[str, bytes]],
    kept: dict[str, bytes],
    start_s: Sequence[float],
    tails: int,
) -> Outcome:
    found = Counter(journalled(folder / "journal").values())
    acknowledged = set().union(*(publisher.acknowledged for publisher in publishers))
    torn, stale, twice = [], [], []
    for publisher in publishers:
        if isinstance(publisher, NumberedPublisher):
            for number, batch in publisher.batches.items():
                counts = {found[each] for each in batch}
                twice += [each for each in batch if found[each] > 1]
                if len(counts) > 1:
                    torn.append((publisher.name, number))
        elif isinstance(publisher, RetainedPublisher):
            # Payloads of one publisher ascend.
            stale += [
                topic
                for topic, payload in publisher.kept.items()
                if not payload <= kept.get(topic, b"") <= publisher.sent[topic]
            ]
    lost = [each for each in acknowledged if not found[each] or each in unheard]
    return Outcome(
        kills,
        len(acknowledged),
        sum(found.values()),
        lost,
        twice,
        torn,
        stale,
        start_s,
        tails,
    )


def torn_tails(said: bytes) -> int:
    """Return how many torn tails a broker has found; RuntimeError if it has said anything else."""
    lines = said.decode().splitlines()
    for line in lines:
        if not _TORN_TAIL.fullmatch(line):
            raise RuntimeError(f"the broker said: {said.decode()}")
    return len(lines)


def _spawn(argv: Sequence[str], disk: Disk | None) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        argv,
        env=None if disk is None else dict(disk.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
    )


def _wait_until_listening(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdout is not None  # noqa: S101 - for mypy; it is a pipe
    ready, _, _ = select.select([process.stdout], [], [], _START_S)
    if not (ready and process.stdout.readline().startswith(b"listening")):
        process.kill()
        _, said = process.communicate()
        raise RuntimeError(f"the broker did not start: {said.decode()}")
