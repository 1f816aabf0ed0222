"""Streams of numbered payloads, board to host and host to board: all come, once, in order."""

from collections.abc import Callable
from typing import Any

from boards.rig.bench import Bench, CheckFailed
from boards.rig.observer import Observer, connect_fmqp
from boards.rig.payloads import Fate, fate, numbered, told_fate

_QUIET_S = 0.3  # after the last, in which none may come twice


def expect_heard(observer: Observer, count: int, within_s: float) -> None:
    """Wait until the host has heard ``count`` messages of a board; raise if any came to harm."""
    observer.wait_for(lambda seen: len(seen) >= count, within_s)
    observer.wait_for(lambda seen: len(seen) > count, _QUIET_S)
    expect("from the board", fate([seen.payload for seen in observer.seen()], count))


def send_down(
    bench: Bench,
    topic: str,
    *,
    size: int,
    count: int,
    between: Callable[[int], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Publish ``count`` payloads of ``size`` bytes to a board; raise if any came to harm.

    ``between`` is called with the number of each message after it was published; ``options`` go to
    ``Bench.call``. Returns what the board's step ``take`` said.
    """
    with connect_fmqp(bench.broker) as host:

        def publish() -> None:
            for number in range(count):
                host.publish(bench.sent_to(topic), numbered(size, number))
                if between is not None:
                    between(number)

        result = bench.call(
            "take", kind="numbered", topic=topic, count=count, on_ready=publish, **options
        )
    expect("to the board", told_fate(result, count))
    return result


def expect(way: str, became: Fate) -> None:
    """Raise ``CheckFailed`` unless the messages of a ``way`` came once, in order, unchanged."""
    if not became.is_good:
        raise CheckFailed(f"{way}: {became}")
