"""What a bridge tells people: every event once, a trouble once until it is over."""

from collections.abc import Callable

Report = Callable[[str], None]


class Notices:
    """Passes lines on to ``report``; ``trouble`` is what does not work just now, or ``""``."""

    def __init__(self, report: Report | None) -> None:
        self._report = report or (lambda _line: None)
        self.trouble = ""

    def say(self, line: str) -> None:
        """Tell that something happened."""
        self._report(line)

    def complain(self, line: str) -> None:
        """Tell what does not work; the same again is not said until ``over``."""
        if line != self.trouble:
            self.trouble = line
            self._report(line)

    def over(self) -> None:
        """It works."""
        self.trouble = ""
