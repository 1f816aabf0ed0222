"""The line alone, in the same run: so that a slow one is not blamed on the protocols above it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from boards.checks.declared import Check, Measurement, Samples
from boards.checks.ping import ping_bytes
from boards.session.board_session import (
    BUSY_SILENCE_S,
    HANG_UP_SILENCE_S,
    BoardSession,
    CheckFailed,
    set_silence,
)

_COUNT = 50
_TOTAL_NETWORK = 65_536
_TOTAL_SERIAL = 8_192
_PIECE_MS = 20_000
_CALL_S = 80.0
_IDLE_S = 10.0

RTT = Measurement("baseline_rtt", "us", "lower")
RATE = Measurement("baseline_rate", "bytes/s", "higher")


def baseline(board: BoardSession) -> list[Samples]:
    """Plain bytes come back over the board's own way to the broker, without a protocol."""
    total = _TOTAL_SERIAL if "serial" in board.plan.has else _TOTAL_NETWORK
    host = board.route.address[0]
    with _echo_server(host) as port, board.disturbed(f"{host}:{port}"):
        if board.bridge is not None and not board.bridge.wait_idle(_IDLE_S):
            raise CheckFailed("the bridge's last session did not end; the board still sends")
        set_silence(board.bridge, BUSY_SILENCE_S)
        result = board.call(
            "echo",
            size=ping_bytes(board),
            count=_COUNT,
            total=total,
            timeout_ms=_PIECE_MS,
            deadline_s=_CALL_S,
        )
        set_silence(board.bridge, HANG_UP_SILENCE_S)
    times = [float(value) for value in result["rtt_us"]]
    if len(times) != _COUNT:
        raise CheckFailed(f"expected {_COUNT} round trips, got {len(times)}")
    rate = 1e6 * total / max(result["us"], 1)
    return [Samples(RTT, times), Samples(RATE, [rate])]


@contextmanager
def _echo_server(host: str) -> Iterator[int]:
    """Send back what each connection sends, on an ephemeral port of ``host``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        thread = threading.Thread(target=_serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
            thread.join()


def _serve(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            line, _ = listener.accept()
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with line, suppress(OSError):
                while data := line.recv(65536):
                    line.sendall(data)


CHECKS = (
    Check("baseline", baseline, needs=frozenset({"proxy"}), measures=(RTT, RATE), alone=True),
)
