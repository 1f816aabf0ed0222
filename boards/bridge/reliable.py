"""A bridge in reliable mode, as other programs use it: one call with what it needs."""

from collections.abc import Callable

from boards.bridge.bridge import SerialBridge
from boards.bridge.console_end import ConsoleEnd
from boards.bridge.counters import BridgeCounters
from boards.bridge.link_mode import LinkMode
from boards.bridge.notices import Report
from boards.bridge.port_settings import PortSettings
from host_broker.address import Address


class ReliableBridge(SerialBridge):
    """The reliable link's end in a thread of its own; leaving the ``with`` block stops it.

    ``serial_url`` is a device or pyserial URL, ``baud`` in bits/s, ``host`` and ``port`` the
    broker's. ``report`` gets one line per event, from the thread. ``start`` raises ``PortError``.
    ``console``: the line is the board's console; ``console_url`` is then where that goes on.
    ``locate``: see ``SerialBridge``. Raises ``ConsoleError``.
    """

    def __init__(
        self,
        serial_url: str,
        baud: int,
        host: str,
        port: int,
        *,
        console: bool = False,
        locate: Callable[[], str] | None = None,
        report: Report | None = None,
    ) -> None:
        counters = BridgeCounters()
        self._link = LinkMode(counters)
        end = ConsoleEnd(self._link) if console else None
        super().__init__(
            PortSettings(serial_url, baud),
            Address("tcp", host, port),
            self._link,
            counters,
            report,
            end,
            locate,
        )

    @property
    def console_url(self) -> str:
        """The terminal on which the board's console is, "" if its line carries none."""
        return self.console.path if self.console is not None else ""

    @property
    def stray_bytes(self) -> int:
        """Bytes of the board so far that were no part of the link: noise, text, damaged frames."""
        return self._link.link.counters.stray_bytes

    @property
    def resent_frames(self) -> int:
        """Frames that had to be sent to the board again, so far."""
        return self._link.link.counters.resent

    def make_noise(self, data: bytes) -> None:
        """Spoil the next frame that brings the board anything with ``data``, before and within it:
        for tests of what a bad line costs."""
        self.ask(lambda: self._link.spoil_next(data))
