from collections.abc import Sequence

SOURCE: str

def select(block: bytes, stretches: Sequence[tuple[bool, int]]) -> bytes | None: ...
