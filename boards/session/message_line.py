"""The serial line that carries a board's messages, and the bridge that is its other end."""

from boards.bridge.bridge import RawBridge, ReliableBridge
from boards.bridge.poll_thread import Report

Bridge = RawBridge | ReliableBridge

# Longer than the keepalive, shorter than the node's silence between two tries (docs/node.md).
SILENCE_S = 2.0


def start_bridge(
    url: str, baud: int, broker: tuple[str, int], *, reliable: bool, report: Report
) -> Bridge:
    """Join the line at ``url`` (``baud`` bits/s) to ``broker``. Raises ``PortError``."""
    if reliable:
        return ReliableBridge(url, baud, *broker, report=report).start()
    return RawBridge(url, baud, *broker, silence_s=SILENCE_S, report=report).start()


def set_silence(bridge: Bridge | None, silence_s: float) -> None:
    """Have a raw bridge end a session after so long without a byte; a reliable one knows ends."""
    if isinstance(bridge, RawBridge):
        bridge.silence_s = silence_s
