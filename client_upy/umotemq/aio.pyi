from collections.abc import Awaitable, Callable
from typing import Generic, ParamSpec, TypeVar

from typing_extensions import Self

from umotemq.link import Link, _Text
from umotemq.messages import Messages

_Client = TypeVar("_Client", bound=Link)
_P = ParamSpec("_P")

class Aio(Generic[_Client]):
    client: _Client
    def __init__(self, client: _Client) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...
    @property
    def up(self) -> bool: ...
    async def connect(self, *, timeout_ms: int = 10000) -> None: ...
    async def publish(
        self,
        topic: _Text,
        payload: _Text,
        *,
        retain: bool = False,
        will: bool = False,
        again: bool = False,
        confirm: bool = False,
        queued: bool = False,
        properties: _Text = b"",
    ) -> None: ...
    async def subscribe(
        self,
        topic: _Text,
        handler: Callable[[bytes, bytes], Awaitable[object] | object],
        *,
        queue: int = 8,
        newest: bool = False,
        feedback: bool = False,
        queued: bool = False,
        filter: _Text | tuple[_Text, ...] = (),
    ) -> None: ...
    async def unsubscribe(self, topic: _Text, **kind: bool) -> None: ...
    async def do(
        self, method: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs
    ) -> None: ...
    async def flush(self, timeout_ms: int = 5000) -> None: ...
    async def ping(self, timeout_ms: int = 5000) -> int: ...
    async def send(self, data: _Text, timeout_ms: int = 5000) -> bytes: ...
    async def post(self, data: _Text, timeout_ms: int = 5000, *, confirm: bool = False) -> None: ...
    def messages(
        self,
        topic: _Text,
        *,
        queue: int = 8,
        newest: bool = False,
        feedback: bool = False,
        queued: bool = False,
        filter: _Text | tuple[_Text, ...] = (),
    ) -> Messages: ...
