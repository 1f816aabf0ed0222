from collections.abc import Callable
from typing import Any

from umotemq.aio import Aio
from umotemq.link import Link
from umotemq.store import _Log

class Ring:
    newest: bool
    store: _Log | None
    stamp: Callable[[bytes, int, int], bytes] | None
    sequence: int
    count: int
    dropped: int
    def __init__(
        self,
        size: int,
        newest: bool = False,
        store: _Log | None = None,
        always: bool = False,
        stamp: Callable[[bytes, int, int], bytes] | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def send(
        self, client: Link, confirm: bool, kind: object, name: object, data: bytes | bytearray
    ) -> None: ...
    def write(self, client: Link, confirm: bool, packet: bytearray) -> bool: ...
    def drain(self, client: Link) -> None: ...
    def is_full(self, client: Link) -> bool: ...
    async def wait_for_room(self, link: Aio[Any]) -> None: ...
    def answered(self, number: int) -> bool: ...
    def lost(self, waiting: int) -> None: ...
