from collections.abc import Callable
from typing import Literal

from typing_extensions import Unpack

from umotemq.link import Link, _LinkOptions, _Text, _Transport

class _LightmqOptions(_LinkOptions, total=False):
    handler: Callable[[bytes], _Text | None] | None
    on_response: Callable[[bytes], object] | None
    dialect: Literal["spec", "gbaranski"]
    window: int

class LightmqClient(Link):
    handler: Callable[[bytes], _Text | None] | None
    on_response: Callable[[bytes], object] | None
    dialect: Literal["spec", "gbaranski"]
    window: int
    client_id: bytes
    code: int | None
    oversized: int
    unanswered: int
    def __init__(
        self, transport: _Transport, client_id: str | bytes, **options: Unpack[_LightmqOptions]
    ) -> None: ...
    def send(self, data: _Text, timeout_ms: int = 5000) -> bytes: ...
    def post(self, data: _Text, timeout_ms: int = 5000, *, confirm: bool = False) -> None: ...
    def flush(self, timeout_ms: int = 5000) -> None: ...
