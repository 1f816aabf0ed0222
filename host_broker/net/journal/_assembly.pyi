from collections.abc import Sequence

from host_broker.net.journal.assembly import Assembled
from host_broker.outputs import Record

SOURCE: str

def assemble(
    group: Sequence[tuple[int, list[Record]]], partitions: int, most_bytes: int
) -> list[Assembled]: ...
