"""Streams of numbered payloads, board to host and host to board: all come, once, in order."""

from collections.abc import Callable
from typing import Any

from boards.checks.payloads import StreamResult, board_result, numbered, stream_result
from boards.session.board_session import BoardSession, CheckFailed
from boards.session.observer import Observer, connect_fmqp

_QUIET_S = 0.3  # after the last, in which none may come twice


def expect_heard(observer: Observer, count: int, within_s: float) -> None:
    """Wait until the host has heard ``count`` messages of a board; raise if any came to harm."""
    observer.wait_for(lambda seen: len(seen) >= count, within_s)
    observer.wait_for(lambda seen: len(seen) > count, _QUIET_S)
    expect("from the board", stream_result([seen.payload for seen in observer.seen()], count))


def send_down(
    board: BoardSession,
    topic: str,
    *,
    size: int,
    count: int,
    between: Callable[[int], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Publish ``count`` payloads of ``size`` bytes to a board; raise if any came to harm.

    ``between`` is called with the number of each message after it was published; ``options`` go to
    ``BoardSession.call``. Returns what the board's step ``take`` said.
    """
    with connect_fmqp(board.broker) as host:

        def publish() -> None:
            for number in range(count):
                host.publish(board.sent_to(topic), numbered(size, number))
                if between is not None:
                    between(number)

        result = board.call(
            "take", kind="numbered", topic=topic, count=count, on_ready=publish, **options
        )
    expect("to the board", board_result(result, count))
    return result


def expect(way: str, became: StreamResult) -> None:
    """Raise ``CheckFailed`` unless the messages of a ``way`` came once, in order, unchanged."""
    if not became.is_good:
        raise CheckFailed(f"{way}: {became}")
