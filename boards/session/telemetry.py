"""Let a board send its minute of telemetry by itself, and count what arrives."""

import json
import re
import time
from collections.abc import Callable

from boards.flash.find_board import find_board
from boards.inventory.target import BoardHandle
from boards.serial_port import SerialPort
from boards.session.board_session import Bridge, CheckFailed, Invalid
from boards.session.installation import TELEMETRY
from boards.session.observer import Observer, Seen
from boards.session.plan import Job
from boards.session.serial_log import SerialLog

_ARRIVAL_S = 15.0
_BACK_S = 15.0
_GOES_ON_S = 5.0  # whose last message is no older still sends
_LOOK_S = 0.1
_LINE_LIMIT = 4096
_CONNECTED = "node: connected"
_DONE = re.compile(r"node: done (\d{1,9})")
_SOFT_RESET = b"\r\x03\x03\x02\x04"  # interrupt twice, friendly REPL, Ctrl-D
_BEGIN = b"\r\x03\x03\x02import node; node.main()\r"
_WRITE_S = 5.0


def await_telemetry(
    job: Job,
    board: BoardHandle,
    log: SerialLog,
    bridge: Bridge | None,
    *,
    until: float,
    progress: Callable[[str], None],
) -> str:
    """Reset the board, wait for ``node: done N``, and compare with what an observer received.

    ``until`` is on the clock of ``time.monotonic``. Raises ``CheckFailed`` when the node fails,
    is not done in time, or a message is missing, doubled or out of order; ``Invalid`` if a virtual
    board failed because this machine held it up, or still sends when its time is up.
    """
    count = TELEMETRY["seconds"] * TELEMETRY["rate_hz"]
    topic = f"telemetry/{job.board.id}/*"
    if job.board.protocol == "lightmq":
        topic = f"lightmq/{job.board.id}/up"
    place = find_board(board, "running", deadline_s=_BACK_S)
    port = SerialPort.open(place.serial_url, tap=log.tap)
    try:
        with Observer(job.fmqp, topic) as observer:
            _restart(board, port)
            try:
                of_virtual = bridge if board.model.virtual else None
                said = await_done(port, until, log, progress, of_virtual)
            except NotDone as error:
                if board.model.virtual and goes_on(observer.seen(), time.monotonic_ns()):
                    raise Invalid(f"{error}; it still sends, and was given no more time") from None
                raise
            observer.wait_for(lambda seen: len(seen) > count, _ARRIVAL_S)
            seen = observer.seen()
    finally:
        port.close()
    if said != count:
        raise CheckFailed(f"the board says it sent {said} readings, not {count}")
    expect_all(seen, count)
    seconds = (seen[-1].at_ns - seen[0].at_ns) / 1e9
    return f"{count} readings, {count / max(seconds, 1e-9):.0f}/s"


def _restart(board: BoardHandle, port: SerialPort) -> None:
    """Press RESET; without buttons a soft reset, which also runs main.py, but on the unix port."""
    if board.buttons is not None:
        board.buttons.reset()
    elif board.model.kind == "unix":
        port.write_all(_BEGIN, _WRITE_S)
    else:
        port.write_all(_SOFT_RESET, _WRITE_S)


class NotDone(CheckFailed):
    """The board had not sent all when its time was up."""


def goes_on(seen: list[Seen], now_ns: int) -> bool:
    """Return whether the last message came just now."""
    return bool(seen) and now_ns - seen[-1].at_ns < _GOES_ON_S * 1e9


def await_done(
    port: SerialPort,
    until: float,
    log: SerialLog,
    progress: Callable[[str], None],
    bridge: Bridge | None,
) -> int:
    """Return the N of ``node: done N``; ``bridge``: of a virtual board, if it has one.

    Raises ``CheckFailed``, at the end of its time ``NotDone``. A virtual board that had its
    connection, was silent until the bridge ended that, and goes on to say that it failed, has lived
    slower than the rest of the rig: then ``Invalid``. One that stays silent has failed, and so has
    a real one, whose time is its own.
    """
    before = 0  # silences, until the node was connected: it is silent between two tries
    is_connected = False
    pending = b""
    last = ""
    while time.monotonic() < until:
        *lines, pending = (pending + port.read(_LOOK_S)).split(b"\n")
        pending = pending[-_LINE_LIMIT:]
        for line in (raw.decode(errors="replace").strip() for raw in lines):
            # On a console that the link shares, a frame that was cut short may stand before it.
            _, is_said, rest = line.partition("node: ")
            if not is_said:
                continue
            last = line = is_said + rest
            progress(line)
            if line == _CONNECTED and bridge is not None:
                before = bridge.counters.silences
                is_connected = True
            if line.startswith("node: failed"):
                if bridge is not None and is_connected and bridge.counters.silences > before:
                    raise Invalid(
                        f"the bridge ended the session of a board that was silent, and the board "
                        f"went on to say {line!r}: the rig was too slow"
                    )
                raise CheckFailed(f"the board says {line!r}")
            if done := _DONE.fullmatch(line):
                return int(done[1])
    raise NotDone(f"the board was not done in time; its last line: {last!r}; log: {log.path}")


def expect_all(seen: list[Seen], count: int) -> None:
    """Raise ``CheckFailed`` unless seq 0..count (the end message) came once each, in order."""
    try:
        numbers = [int(json.loads(message.text)["seq"]) for message in seen]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckFailed(f"a telemetry message is not as docs/node.md says: {error}") from None
    if numbers == list(range(count + 1)):
        return
    missing = sorted(set(range(count + 1)) - set(numbers))
    doubled = len(numbers) - len(set(numbers))
    raise CheckFailed(
        f"expected {count + 1} telemetry messages in order, got {len(numbers)}"
        f" ({doubled} doubled, {len(missing)} missing, first {missing[:3]})"
    )
