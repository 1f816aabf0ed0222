"""A bridge in reliable mode, as other programs use it: one call with what it needs."""

from boards.bridge.bridge import PortSettings, SerialBridge
from boards.bridge.counters import BridgeCounters
from boards.bridge.link_mode import LinkMode
from boards.bridge.notices import Report
from host_broker.address import Address


class ReliableBridge(SerialBridge):
    """The reliable link's end in a thread of its own; leaving the ``with`` block stops it.

    ``serial_url`` is a device or pyserial URL, ``baud`` in bits/s, ``host`` and ``port`` the
    broker's. ``report`` gets one line per event, from the thread. ``start`` raises ``PortError``.
    """

    def __init__(
        self, serial_url: str, baud: int, host: str, port: int, *, report: Report | None = None
    ) -> None:
        counters = BridgeCounters()
        super().__init__(
            PortSettings(serial_url, baud),
            Address("tcp", host, port),
            LinkMode(counters),
            counters,
            report,
        )
