from collections.abc import Callable

from umotemq.fmqp import FmqpClient
from umotemq.link import _Text

class Publisher:
    on_change: Callable[[bool], object] | None
    def __init__(
        self,
        client: FmqpClient,
        topic: _Text,
        on_change: Callable[[bool], object] | None = None,
    ) -> None: ...
    @property
    def wanted(self) -> bool: ...
    def publish(self, payload: _Text, *, retain: bool = False) -> bool: ...
