"""What a board's steps tell the rig while they run."""

from typing import Protocol


class Reporter(Protocol):
    """What the steps tell the parent."""

    def progress(self, text: str) -> None:
        """Say what is going on within a step."""

    def about(self, **facts: str) -> None:
        """Say on which ``port`` the board is, and what ``firmware`` it says that it runs."""

    def bridge_line(self, text: str) -> None:
        """Log a line of the bridge."""
