from collections.abc import Iterable, Sequence

from host_broker.net.journal.assembly import Assembled
from host_broker.outputs import Buffer, Record

SOURCE: str

class Assembler:
    @property
    def messages(self) -> int: ...
    def __init__(self, partitions: int, most_bytes: int) -> None: ...
    def add(self, time_ns: int, records: Sequence[Record]) -> None: ...
    def take(self, most_bytes: int) -> list[Assembled]: ...

def whole_blocks(
    group: Iterable[tuple[int, Sequence[Record]]], most_bytes: int, numbers: list[int], mark: int
) -> list[Buffer]: ...
