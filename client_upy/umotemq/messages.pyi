from collections.abc import Awaitable, Callable
from typing import Any

from typing_extensions import Self

from umotemq.aio import Aio
from umotemq.link import _Text

async def subscribe(
    link: Aio[Any],
    topic: _Text,
    handler: Callable[[bytes, bytes], Awaitable[object] | object],
    options: dict[str, Any],
) -> None: ...
async def unsubscribe(link: Aio[Any], topic: _Text, kind: dict[str, bool]) -> None: ...

class Messages:
    dropped: int
    def __init__(
        self,
        link: Aio[Any],
        topic: _Text,
        queue: int = 8,
        newest: bool = False,
        **options: Any,
    ) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, kind: object, *_: object) -> None: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> tuple[bytes, bytes]: ...
    async def close(self, finished: bool = True) -> None: ...
