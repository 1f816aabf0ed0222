from typing import Protocol

from typing_extensions import Unpack

from umotemq.link import _Text, _Transport
from umotemq.micromsg2 import MicroMsg2Client, _MicroMsg2Options

class _Source(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...

class _FragmentOptions(_MicroMsg2Options, total=False):
    message_size: int

class FragmentClient(MicroMsg2Client):
    message_size: int
    def __init__(self, transport: _Transport, **options: Unpack[_FragmentOptions]) -> None: ...
    def publish_from(
        self,
        topic: _Text,
        length: int,
        source: _Source,
        *,
        queued: bool = False,
        properties: _Text = b"",
    ) -> None: ...
