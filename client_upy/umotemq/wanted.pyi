from collections.abc import Callable

from umotemq.fmqp import FmqpClient

class Publisher:
    on_change: Callable[[bool], object] | None
    def __init__(
        self,
        client: FmqpClient,
        topic: bytes,
        on_change: Callable[[bool], object] | None = None,
    ) -> None: ...
    @property
    def wanted(self) -> bool: ...
    def publish(self, payload: bytes | bytearray, cache: bool = False) -> bool: ...
