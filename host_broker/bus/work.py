"""How much of the index one client makes the broker look at, counted and bounded."""


class Work:
    """Steps through the index: one for each node looked at.

    ``left`` is what whoever acts now may still spend; when it is gone, searches find no more.
    ``steps`` counts all since the start, so that a test can tell what something costs.
    """

    __slots__ = ("left", "steps")

    def __init__(self, left: int = 1 << 62) -> None:
        self.left = left
        self.steps = 0

    def spend(self, steps: int) -> None:
        """Count steps that were made."""
        self.steps += steps
        self.left -= steps
