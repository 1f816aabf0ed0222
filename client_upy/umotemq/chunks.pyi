from collections.abc import Callable
from typing import Protocol

from typing_extensions import Unpack

from umotemq.fmqp import FmqpClient, _FmqpOptions
from umotemq.link import _Text, _Transport

class _Source(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...

class _ChunkOptions(_FmqpOptions, total=False):
    skip_limit: int

class ChunkClient(FmqpClient):
    skip_limit: int
    def __init__(self, transport: _Transport, **options: Unpack[_ChunkOptions]) -> None: ...
    def receive(self, topic: _Text, handler: Callable[[int, int, memoryview], object]) -> None: ...
    def publish_from(
        self, topic: _Text, length: int, source: _Source, *, retain: bool = False
    ) -> None: ...
