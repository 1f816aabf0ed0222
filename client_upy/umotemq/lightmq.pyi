from collections.abc import Callable
from typing import Literal

from typing_extensions import Unpack

from umotemq.link import Link, _LinkOptions, _Transport

class _LightmqOptions(_LinkOptions, total=False):
    handler: Callable[[bytes], bytes | bytearray | None] | None
    on_response: Callable[[bytes], object] | None
    dialect: Literal["spec", "gbaranski"]
    window: int

class LightmqClient(Link):
    handler: Callable[[bytes], bytes | bytearray | None] | None
    on_response: Callable[[bytes], object] | None
    dialect: Literal["spec", "gbaranski"]
    window: int
    client_id: bytes
    code: int | None
    def __init__(
        self, transport: _Transport, client_id: bytes, **options: Unpack[_LightmqOptions]
    ) -> None: ...
    def send(self, data: bytes | bytearray, timeout_ms: int = 5000) -> bytes: ...
    def post(self, data: bytes | bytearray, timeout_ms: int = 5000) -> None: ...
    def flush(self, timeout_ms: int = 5000, leave: int = 0) -> None: ...
