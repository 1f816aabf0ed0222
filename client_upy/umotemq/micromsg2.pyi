from collections.abc import Callable
from typing import Literal, overload

from typing_extensions import Unpack

from umotemq.link import Link, _LinkOptions, _Text, _Transport

class _MicroMsg2Options(_LinkOptions, total=False):
    name: str | bytes
    window: int
    secret: str | bytes

_Handler = Callable[[bytes, bytes], object]
_RawHandler = Callable[[memoryview, int, int, int, int], object]
_Filter = _Text | tuple[_Text, ...]

class MicroMsg2Client(Link):
    name: str | bytes
    window: int
    secret: str | bytes
    def __init__(self, transport: _Transport, **options: Unpack[_MicroMsg2Options]) -> None: ...
    @property
    def properties(self) -> bytes: ...
    def publish(
        self,
        topic: _Text,
        payload: _Text,
        *,
        queued: bool = False,
        properties: _Text = b"",
        confirm: bool = False,
    ) -> None: ...
    @overload
    def subscribe(
        self,
        topic: _Text,
        handler: _Handler,
        *,
        queued: bool = False,
        filter: _Filter = (),
        raw: Literal[False] = False,
    ) -> None: ...
    @overload
    def subscribe(
        self,
        topic: _Text,
        handler: _RawHandler,
        *,
        queued: bool = False,
        filter: _Filter = (),
        raw: Literal[True],
    ) -> None: ...
    def unsubscribe(self, topic: _Text, *, queued: bool = False) -> None: ...
