from collections.abc import Callable
from types import EllipsisType
from typing import Literal, overload

from typing_extensions import Unpack

from umotemq.link import Link, _LinkOptions, _Text, _Transport

class _FmqpOptions(_LinkOptions, total=False):
    name: str | bytes | None

_Handler = Callable[[bytes, bytes], object]
_RawHandler = Callable[[memoryview, int, int, int, int], object]

class FmqpClient(Link):
    name: str | bytes | None
    def __init__(self, transport: _Transport, **options: Unpack[_FmqpOptions]) -> None: ...
    def publish(
        self,
        topic: _Text,
        payload: _Text,
        flags: EllipsisType = ...,  # the others by name
        retain: bool = False,
        will: bool = False,
        again: bool = False,
        confirm: bool = False,
    ) -> None: ...
    @overload
    def subscribe(
        self,
        topic: _Text,
        handler: _Handler,
        *,
        feedback: bool = False,
        debug: bool = False,
        raw: Literal[False] = False,
    ) -> None: ...
    @overload
    def subscribe(
        self,
        topic: _Text,
        handler: _RawHandler,
        *,
        feedback: bool = False,
        debug: bool = False,
        raw: Literal[True],
    ) -> None: ...
    def unsubscribe(self, topic: _Text, *, feedback: bool = False) -> None: ...
