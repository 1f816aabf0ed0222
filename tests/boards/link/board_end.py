"""The board's end of a simulated line."""

from benchmarks.link.line import Direction


class BoardEnd:
    """The board's end of a line, as a transport and stream of umotemq; ``None`` is "not now"."""

    pollable = None
    where = "simulated line"

    def __init__(self, to_host: Direction, to_board: Direction) -> None:
        self._to_host = to_host
        self._to_board = to_board

    def open(self) -> "BoardEnd":
        return self

    def readinto(self, buffer: bytearray) -> int | None:
        data = self._to_board.read(len(buffer))
        buffer[: len(data)] = data
        return len(data) or None

    def write(self, data: memoryview) -> int | None:
        return self._to_host.write(data) or None

    def close(self) -> None:
        """Nothing: a line stays."""
