"""The bytes of an unfinished frame, between reads."""


class Unfinished:
    """Holds the beginning of a frame until all of it has come.

    Joining every new read to the old ones would copy a 1 MiB body that comes in 1 KiB reads
    a thousand times; here it is appended once and copied out once.
    """

    __slots__ = ("_kept", "_needed", "is_empty")

    def __init__(self) -> None:
        self._kept = bytearray()
        self._needed = 0
        self.is_empty = True

    def complete(self, data: bytes) -> bytes | None:
        """Join what was kept with a new read; None while that is still too short to parse."""
        kept = self._kept
        if not kept:
            return data
        kept += data
        if len(kept) < self._needed:
            return None
        joined = bytes(kept)
        kept.clear()
        self.is_empty = True
        return joined

    def finish(self, data: bytes, position: int) -> tuple[bytes | None, int]:
        """Join what was kept with as much of a read, from ``position`` on, as it needs.

        Returns that (None while it is still too short) and the position behind it: the rest of a
        long read need not be copied because it begins in the middle of a frame.
        """
        kept = self._kept
        end = min(len(data), position + self._needed - len(kept))
        kept += data[position:end]
        if len(kept) < self._needed:
            return None, end
        joined = bytes(kept)
        kept.clear()
        self.is_empty = True
        return joined, end

    def __len__(self) -> int:
        """How many bytes are kept."""
        return len(self._kept)

    def drop(self) -> int:
        """Forget what is kept; returns how many bytes of the frame are still to come."""
        missing = self._needed - len(self._kept)
        self._kept = bytearray()
        self.is_empty = True
        return missing

    def keep(self, rest: bytes, needed: int) -> None:
        """Keep the beginning of a frame until ``needed`` bytes of it are there."""
        self._kept = bytearray(rest)
        self.is_empty = not rest
        self._needed = needed
