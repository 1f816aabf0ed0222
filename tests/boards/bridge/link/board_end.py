"""The board's end of a simulated line."""

from benchmarks.link.line import Direction


class BoardEnd:
    """The board's end of a line, as a transport and stream of umotemq; ``None`` is "not now"."""

    pollable = None
    where = "simulated line"

    def __init__(self, to_host: Direction, to_board: Direction, holds: int = 0) -> None:
        """``holds``: the line is a console that holds so many bytes unread."""
        self._to_host = to_host
        self._to_board = to_board
        self._flip = 0
        self.holds = holds

    def open(self) -> "BoardEnd":
        return self

    def readinto(self, buffer: bytearray) -> int | None:
        data = self._to_board.read(len(buffer))
        if self.holds:
            data = self._without_disguise(data)
        buffer[: len(data)] = data
        return len(data) or None

    def write(self, data: memoryview) -> int | None:
        return self._to_host.write(data) or None

    def _without_disguise(self, data: bytes) -> bytes:
        plain = bytearray()
        for byte in data:
            assert byte not in (1, 2, 3, 4, 5, 13), "the REPL would act upon it"
            if byte == 16:
                self._flip = 64
            else:
                plain.append(byte ^ self._flip)
                self._flip = 0
        return bytes(plain)

    def close(self) -> None:
        """Nothing: a line stays."""
