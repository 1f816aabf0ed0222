from collections.abc import Callable
from typing import Literal, overload

from typing_extensions import Unpack

from umotemq.link import Link, _LinkOptions, _Transport

class _FmqpOptions(_LinkOptions, total=False):
    name: bytes | None

_Handler = Callable[[bytes, bytes], object]
_RawHandler = Callable[[memoryview, int, int, int, int], object]

class FmqpClient(Link):
    name: bytes | None
    def __init__(self, transport: _Transport, **options: Unpack[_FmqpOptions]) -> None: ...
    def publish(
        self,
        topic: bytes,
        payload: bytes | bytearray,
        cache: bool = False,
        will: bool = False,
        again: bool = False,
    ) -> None: ...
    @overload
    def subscribe(
        self,
        topic: bytes,
        handler: _Handler,
        feedback: bool = False,
        debug: bool = False,
        raw: Literal[False] = False,
    ) -> None: ...
    @overload
    def subscribe(
        self,
        topic: bytes,
        handler: _RawHandler,
        feedback: bool = False,
        debug: bool = False,
        *,
        raw: Literal[True],
    ) -> None: ...
    def unsubscribe(self, topic: bytes, feedback: bool = False) -> None: ...
