"""Memory that many connections share, so that many of them are no way round the limit of one."""


class Budget:
    """Bytes: taken before they are used, given back once. ``left`` is what may still be taken."""

    __slots__ = ("left",)

    def __init__(self, limit: int) -> None:
        self.left = limit

    def take(self, count: int) -> bool:
        """Take bytes; False, and nothing is taken, if so many are not left."""
        if count > self.left:
            return False
        self.left -= count
        return True

    def give(self, count: int) -> None:
        """Give back what was taken."""
        self.left += count
