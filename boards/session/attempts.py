"""How often a check is done: again only where the rig could not do its part."""

from collections.abc import Callable


def attempted(once: Callable[[int], str], recover: Callable[[], None], *, tries: int) -> str:
    """Call ``once`` with 1, 2, … until it comes to a verdict, at most ``tries`` times.

    It returns an outcome; "error" is none. After whatever did not pass ``recover`` is called.
    Returns the last outcome.
    """
    outcome = "error"
    for number in range(1, tries + 1):
        outcome = once(number)
        if outcome != "passed":
            recover()
        if outcome != "error":
            break
    return outcome
