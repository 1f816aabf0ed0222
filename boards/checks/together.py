"""Boards with each other, through the broker: many to one, then one to many.

Each worker drives its own board; they keep step by short words through the broker itself, as
MicroPython's run-multitests does: ``ready``, ``sent``, ``done``. The first board that speaks FMQP
collects, then sends; a board that speaks LightMQ has no topics of its own choice and is reached by
its paths. When a partner fails, this board has no verdict: the partner has one.
"""

import time

from boards.checks.declared import Check
from boards.checks.payloads import patterned
from boards.checks.pubsub import expect_digests
from boards.session.board_session import BoardSession, CheckFailed, Group, NotRun
from boards.session.observer import connect_fmqp
from host_broker.client import Client

_MOST_KEPT = 250  # messages that a board tells one by one
_EACH = 20
_ASIDE_S = 60.0  # for a partner's part
# How long a board listens, by its own clock: an emulated one's is slow on a busy machine.
_TAKE_MS, _TAKE_EMULATED_MS = 40_000, 10_000
_TAKE_S = 90.0
_FILLER = b"filler"
_ALIVE_S = 1.5  # a raw line that is silent for longer than 8 s is closed by its bridge


class _Partners:
    """The other boards' workers, as words on the broker."""

    def __init__(self, board: BoardSession, group: Group, host: Client) -> None:
        self._board, self._host = board, host
        self._stem = f"rig/together/{group.token}"
        self._said: set[tuple[str, str]] = set()
        host.subscribe(f"{self._stem}/*/*")
        host.sync()

    def say(self, word: str) -> None:
        # Retained: who subscribes later hears it, too.
        self._host.publish(f"{self._stem}/{word}/{self._board.plan.id}", b"1", retain=True)

    def wait(self, word: str, ids: list[str], *, keep_alive: bool = True) -> None:
        """Return when all of them have said it. Raises ``NotRun`` if one cannot, or is late."""
        until = time.monotonic() + _ASIDE_S
        while missing := [id for id in ids if (word, id) not in self._said]:
            if failed := [id for what, id in self._said if what == "failed"]:
                raise NotRun(f"{failed[0]} could not do its part")
            if time.monotonic() > until:
                raise NotRun(f"{missing[0]} was not {word} within {_ASIDE_S:g} s")
            message = self._host.receive(_ALIVE_S)
            if message is not None:
                what, _, id = message.topic.removeprefix(f"{self._stem}/").partition("/")
                if message.payload:
                    self._said.add((what, id))
            elif keep_alive:
                self._board.call("ping")

    def fill(self, topic: str, count: int) -> None:
        """Publish so many fillers behind what was sent, and processed, before.

        A board that waits for ``count`` messages has them then, whatever was lost, and need not
        wait until its time is up.
        """
        for _ in range(count):
            self._host.publish(topic, _FILLER)

    def forget(self, words: tuple[str, ...]) -> None:
        for word in words:
            self._host.publish(f"{self._stem}/{word}/{self._board.plan.id}", b"", retain=True)


def boards_together(board: BoardSession) -> None:
    """Boards exchange messages through the broker: all to one, then one to all, none is lost."""
    group = board.group
    if group is None or len(group.peers) < 2:
        raise NotRun("no other board came")
    collector = next((id for id, protocol in group.peers if protocol == "fmqp"), None)
    if collector is None:
        raise NotRun("no board of these speaks FMQP")
    with connect_fmqp(board.broker) as host:
        partners = _Partners(board, group, host)
        words = ("here", "ready", "sent", "open", "done", "failed")
        try:
            board.connect()
            partners.say("here")
            partners.wait("here", [id for id, _ in group.peers])
            part = _collect if board.plan.id == collector else _contribute
            part(board, group, partners, collector)
            partners.say("done")
            partners.wait("done", [id for id, _ in group.peers])
            board.hang_up()
        except BaseException:
            partners.say("failed")
            raise
        finally:
            # Whoever still waits has heard it, or hears nothing at all and says so.
            partners.forget(words[:-1])


def _collect(board: BoardSession, group: Group, partners: _Partners, _collector: str) -> None:
    others = [(id, protocol) for id, protocol in group.peers if id != board.plan.id]
    each = _each(group)
    topic = _topic(group, "up")
    for id, protocol in others:
        if protocol == "lightmq":
            board.call("subscribe", topic=f"lightmq/{id}.check/up")
    count = each * len(others)

    def begin() -> None:
        partners.say("ready")
        partners.wait("sent", [id for id, _ in others], keep_alive=False)
        partners.fill(topic, count)

    result = board.call(
        "take",
        topic=topic,
        count=count,
        timeout_ms=_take_ms(board),
        on_ready=begin,
        deadline_s=_TAKE_S,
    )
    # Judged at the end: the others wait for their part, whatever became of ours.
    partners.wait("open", [id for id, _ in others])
    to = [f"lightmq/{id}.check/down" for id, protocol in others if protocol == "lightmq"]
    for target in [_topic(group, "down"), *to]:
        board.call("send_sizes", topic=target, sizes=[_size(group, board.plan.id)] * each)
        partners.fill(target, each)
    # Between two boards there is no order: each one's messages have a size of their own.
    for place, (id, _protocol) in enumerate(others):
        size = _size(group, id)
        wanted = [patterned(size, seed) for seed in range(each)]
        heard = [["", length, check] for _, length, check in result["messages"] if length == size]
        try:
            expect_digests("", wanted, heard)
        except CheckFailed as error:
            raise CheckFailed(f"from {id}, {place + 1} of {len(others)}: {error}") from None


def _contribute(board: BoardSession, group: Group, partners: _Partners, collector: str) -> None:
    each = _each(group)
    partners.wait("ready", [collector])
    sizes = [_size(group, board.plan.id)] * each
    board.call("send_sizes", topic=_topic(group, "up"), sizes=sizes)
    partners.say("sent")
    topic = _topic(group, "down")
    result = board.call(
        "take",
        topic=topic,
        count=each,
        timeout_ms=_take_ms(board),
        on_ready=lambda: partners.say("open"),
        deadline_s=_TAKE_S,
    )
    size = _size(group, collector)
    wanted = [patterned(size, seed) for seed in range(each)]
    heard = [message for message in result["messages"] if message[1] != len(_FILLER)]
    if not heard:
        # Either the collector has failed, which it says, or nothing came of what it sent.
        partners.wait("done", [collector])
    expect_digests(topic if board.is_fmqp else "", wanted, heard)


def _take_ms(board: BoardSession) -> int:
    is_emulated = board.target.model.virtual and "serial" in board.plan.has
    return _TAKE_EMULATED_MS if is_emulated else _TAKE_MS


def _each(group: Group) -> int:
    return min(_EACH, _MOST_KEPT // len(group.peers))


def _size(group: Group, id: str) -> int:
    return 16 + [each for each, _ in group.peers].index(id)


def _topic(group: Group, way: str) -> str:
    return f"check/together.{group.token}/{way}"


CHECKS = (Check("boards_together", boards_together, needs=frozenset({"peer"}), deadline_s=300.0),)
