from collections.abc import Callable
from typing import Protocol, TypedDict

from umotemq.outage import Ring

class _Stream(Protocol):
    def readinto(self, buffer: bytearray | memoryview, /) -> int | None: ...
    def write(self, data: memoryview, /) -> int | None: ...
    def close(self) -> object: ...

class _Transport(Protocol):
    @property
    def where(self) -> object: ...
    def open(self) -> _Stream: ...

class _LinkOptions(TypedDict, total=False):
    rx_size: int
    tx_size: int
    timeout_ms: int
    keepalive_ms: int
    retry_ms: int
    retry_max_ms: int
    link_up: Callable[[], object] | None
    alive: Callable[[], object] | None
    on_up: Callable[[], object] | None
    on_down: Callable[[], object] | None
    outage: Ring | None

class LinkError(OSError): ...

_Text = str | bytes | bytearray

def encoded(data: _Text) -> bytes | bytearray: ...

class Link:
    rx_size: int
    tx_size: int
    timeout_ms: int
    keepalive_ms: int
    retry_ms: int
    retry_max_ms: int
    link_up: Callable[[], object] | None
    alive: Callable[[], object] | None
    on_up: Callable[[], object] | None
    on_down: Callable[[], object] | None
    outage: Ring | None
    transport: _Transport
    stream: _Stream | None
    error: LinkError | None
    up: bool
    connects: int
    discarded: int
    def __init__(self, transport: _Transport, options: _LinkOptions) -> None: ...
    def connect(self, *, timeout_ms: int = 10000) -> None: ...
    def poll(self, ms: int = 0) -> int: ...
    def run(self, ms: int | None = None) -> None: ...
    def ping(self, timeout_ms: int = 5000) -> int: ...
    def close(self) -> None: ...
