from typing import Any

from typing_extensions import Self

class Uart:
    where: str
    uart: Any
    pollable: Any
    def __init__(
        self,
        id: int,
        baud: int,
        tx: int | None = None,
        rx: int | None = None,
        size: int = 4096,
        quiet_ms: int = 2500,
        **more: Any,
    ) -> None: ...
    def open(self) -> Self: ...
    def close(self) -> None: ...
    def readinto(self, buffer: bytearray | memoryview) -> int | None: ...
    def write(self, data: bytes | bytearray | memoryview) -> int | None: ...
