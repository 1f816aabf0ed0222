"""The settings as they are now: SIGHUP replaces those that can change while the broker runs."""

from host_broker.settings import NetSettings, Settings


class LiveSettings:
    """Where parts of the edge look whenever they need a setting that can change."""

    def __init__(self, settings: Settings) -> None:
        self.all = settings

    @property
    def net(self) -> NetSettings:
        """Sockets and buffers."""
        return self.all.net
