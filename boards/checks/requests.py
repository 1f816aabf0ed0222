"""Requests and responses of LightMQ, both ways: each gets its own answer, in time or not at all.

Every answer must be the request backwards, so one that was meant for another request shows.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from boards.checks.declared import Check, Measurement, Samples
from boards.checks.payloads import patterned
from boards.checks.pubsub import BUFFER_BYTES
from boards.session.board_session import BoardSession, CheckFailed
from boards.session.observer import connect_fmqp
from host_broker.client import Client, ClientError, Message, connect

_OVERHEAD = 6  # of a SEND: opcode, length, id, flags
_SIZES = (1, 2, 16, 255, 256, 257, BUFFER_BYTES - _OVERHEAD - 1, BUFFER_BYTES - _OVERHEAD)
_ROUNDS = 20
_CALLERS = 3
_ANSWER_S = 10.0
_DEADLINE_MS = 250
_SLICE_S = 0.05
_JOIN_S = 10.0
_TAKE_MS = 30_000

RTT_UP = Measurement("request_up_rtt", "us", "lower")
RTT_DOWN = Measurement("request_down_rtt", "us", "lower")


def request_up(board: BoardSession) -> list[Samples]:
    """The board asks: every SEND gets its own SENDRESP, at every critical size."""
    sizes = [*_SIZES, *[32] * _ROUNDS]
    with _responder(board), board.session():
        result = board.call("request", sizes=sizes, timeout_ms=int(_ANSWER_S * 1000))
    _expect_answers(sizes, ["good"] * len(sizes), result["answers"])
    return [Samples(RTT_UP, [float(took) for _, took in result["answers"][len(_SIZES) :]])]


def request_deadline(board: BoardSession) -> None:
    """The board's deadline holds; an answer that comes after it is not taken for the next one's."""
    with board.session(), _responder(board, holds_first=True):
        first = board.call("request", sizes=[20], timeout_ms=_DEADLINE_MS)["answers"]
        second = board.call("request", sizes=[20], timeout_ms=8000, seed=100)["answers"]
    _expect_answers([20], ["late"], first)
    _expect_answers([20], ["good"], second)
    took_ms = first[0][1] / 1000
    if not _DEADLINE_MS * 0.9 <= took_ms <= _DEADLINE_MS + 1000:
        raise CheckFailed(f"gave up after {took_ms:.0f} ms, the deadline was {_DEADLINE_MS} ms")


def request_down(board: BoardSession) -> list[Samples]:
    """The host asks: every call gets its own answer, at every critical size, also in parallel."""
    payloads = [patterned(size, seed) for seed, size in enumerate([*_SIZES, *[32] * _ROUNDS])]
    askers = [
        _Asker(board, payloads if not place else [patterned(40 + place, n) for n in range(_ROUNDS)])
        for place in range(_CALLERS)
    ]

    def start() -> None:
        for asker in askers:
            asker.thread.start()

    count = sum(len(asker.payloads) for asker in askers)
    with board.session():
        result = board.call(
            "take",
            kind="requests",
            count=count,
            timeout_ms=_TAKE_MS,
            quiet_ms=200,
            on_ready=start,
            deadline_s=45.0,
        )
        for asker in askers:
            asker.thread.join(_JOIN_S)
    for place, asker in enumerate(askers):
        if asker.wrong or len(asker.took_us) != len(asker.payloads):
            why = asker.wrong or f"{len(asker.took_us)} of {len(asker.payloads)} were answered"
            raise CheckFailed(f"caller {place + 1} of {_CALLERS}: {why}")
    if result["count"] != count:
        raise CheckFailed(f"{count} requests were asked, the board heard {result['count']}")
    return [Samples(RTT_DOWN, askers[0].took_us[len(_SIZES) :])]


class _Asker:
    """Calls the board with each payload in turn, in a thread."""

    def __init__(self, board: BoardSession, payloads: list[bytes]) -> None:
        self.payloads = payloads
        self.took_us: list[float] = []
        self.wrong = ""
        self._url, self._called = f"fmqp://{board.broker}", board.client_id
        self.thread = threading.Thread(target=self._ask, name="asker", daemon=True)

    def _ask(self) -> None:
        try:
            with connect(self._url, calls=self._called) as client:
                for payload in self.payloads:
                    began = time.perf_counter()
                    answer = client.call(self._called, payload, _ANSWER_S)
                    self.took_us.append((time.perf_counter() - began) * 1e6)
                    if answer != payload[::-1]:
                        self.wrong = f"{len(payload)} bytes got an answer that is not theirs"
                        return
        except ClientError as error:
            self.wrong = str(error)


@contextmanager
def _responder(board: BoardSession, *, holds_first: bool = False) -> Iterator[None]:
    """Answer what the board SENDs while the block lasts.

    ``holds_first``: the first request is answered when the second is there, just before it. A clock
    would not do: that of an emulated board is not ours.
    """
    with connect_fmqp(board.broker) as host:
        host.subscribe(f"lightmq/{board.client_id}/up/*")
        host.sync()
        stop = threading.Event()
        thread = threading.Thread(
            target=_respond, args=(host, stop, holds_first), name="responder", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(_JOIN_S)


def _respond(host: Client, stop: threading.Event, holds_first: bool) -> None:
    held: list[Message] = []
    try:
        while not stop.is_set():
            message = host.receive(_SLICE_S)
            if message is None:
                continue
            held.append(message)
            if not holds_first:
                for request in held:
                    stem, _, number = request.topic.rpartition("/up/")
                    host.publish(f"{stem}/answer/{number}", request.payload[::-1])
                held.clear()
            holds_first = False
    except ClientError:
        return  # the broker is gone: the board's own step tells


def _expect_answers(sizes: list[int], wanted: list[str], answers: list[Any]) -> None:
    for size, want, (how, took_us) in zip(sizes, wanted, answers, strict=True):
        if how != want:
            raise CheckFailed(
                f"a request of {size} bytes: expected a {want} answer, it was {how} after "
                f"{took_us / 1000:.0f} ms"
            )


CHECKS = (
    Check("request_up", request_up, ("lightmq",), measures=(RTT_UP,), deadline_s=60.0, alone=True),
    Check("request_deadline", request_deadline, ("lightmq",)),
    Check("request_down", request_down, ("lightmq",), measures=(RTT_DOWN,), deadline_s=75.0),
)
