"""Whether to look again for a while instead of sleeping: when it has paid off, it will.

To wake a sleeping core takes microseconds, sometimes many. Looking costs the core that looks, so
it is only for when messages come at short distances, and only if the user asks for it.
"""

import os

_LONG = 4.0  # times the most we would look; a longer sleep says no more than this
_WEIGHT = 0.25  # of the last wait: a pause ends the looking after one vain try, or two


class BusyPoll:
    """Knows from the last waits whether the next is likely to be short.

    ``most_s``: seconds that one wait may look before it sleeps; 0 = never look.
    ``worth``: whether the next wait should.
    """

    __slots__ = ("_expected_s", "most_s", "worth")

    def __init__(self, most_s: float = 0.0) -> None:
        self.most_s = most_s
        self.worth = False
        self._expected_s = _LONG * most_s

    def waited(self, passed_s: float) -> None:
        """Learn from a wait of so many seconds, looking and sleeping together."""
        short_s = min(passed_s, _LONG * self.most_s)
        self._expected_s += (short_s - self._expected_s) * _WEIGHT
        self.worth = self._expected_s < self.most_s


def busy_poll_s(busy_poll_us: int) -> float:
    """Return the seconds to look that a setting in microseconds gives this process.

    None, if it may run on one core only: looking would keep away those we look for.
    """
    return busy_poll_us * 1e-6 if len(os.sched_getaffinity(0)) > 1 else 0.0
