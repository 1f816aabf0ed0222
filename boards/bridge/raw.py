"""A bridge in raw mode, as other programs use it: one call with what it needs."""

from boards.bridge.bridge import SerialBridge
from boards.bridge.counters import BridgeCounters
from boards.bridge.notices import Report
from boards.bridge.port_settings import PortSettings
from boards.bridge.raw_mode import RawMode
from host_broker.address import Address


class RawBridge(SerialBridge):
    """A transparent pipe in a thread of its own; leaving the ``with`` block stops it.

    ``serial_url`` is a device or pyserial URL, ``baud`` in bits/s, ``host`` and ``port`` the
    broker's. ``silence_s``: seconds without a byte of the board after which its session is closed.
    ``report`` gets one line per event, from the thread. ``start`` raises ``PortError``.
    """

    def __init__(
        self,
        serial_url: str,
        baud: int,
        host: str,
        port: int,
        *,
        silence_s: float = 2.0,
        report: Report | None = None,
    ) -> None:
        counters = BridgeCounters()
        self._raw = RawMode(counters, silence_s=silence_s)
        broker = Address("tcp", host, port)
        super().__init__(PortSettings(serial_url, baud), broker, self._raw, counters, report)

    @property
    def silence_s(self) -> float:
        """Seconds; a change counts at once."""
        return self._raw.silence_s

    @silence_s.setter
    def silence_s(self, value: float) -> None:
        self._raw.silence_s = value
        self.wake()
