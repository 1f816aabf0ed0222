"""Publications as nobody has tuned for: topics and payloads of many lengths, drawn from a seed.

The same seed gives the same publications on every machine and for every broker.
"""

import math
import random
import string

DEFAULT_SEED = 15
MAX_LEVELS = 6
SPREAD = 0.7  # standard deviation of the logarithm of a payload's length
MAX_PAYLOAD_BYTES = 65_000  # what each protocol that is measured can carry

_MAX_LEVEL_LENGTH = 12
_LETTERS = string.ascii_lowercase + string.digits + "-_"

Publication = tuple[str, bytes]  # topic, payload


class Mixture:
    """Draws topics and publications.

    ``seed``: equal seeds draw the same. ``salt``: what is drawn for, so that two workloads of one
    seed do not have the same topics.
    """

    def __init__(self, seed: int, salt: str) -> None:
        self._random = random.Random(f"{seed}/{salt}")

    def topics(self, count: int, first_level: str = "") -> tuple[str, ...]:
        """Draw different topics of one to six levels, each level of one to twelve letters.

        With ``first_level`` all begin with it and have two to six levels.
        """
        drawn: dict[str, None] = {}
        while len(drawn) < count:
            levels = [first_level] if first_level else []
            total = self._random.randint(len(levels) + 1, MAX_LEVELS)
            while len(levels) < total:
                length = self._random.randint(1, _MAX_LEVEL_LENGTH)
                levels.append("".join(self._random.choices(_LETTERS, k=length)))
            drawn["/".join(levels)] = None
        return tuple(drawn)

    def payload(self, median_bytes: int, least_bytes: int = 1) -> bytes:
        """Draw random bytes; their count is log-normal around the median."""
        length = round(self._random.lognormvariate(math.log(median_bytes), SPREAD))
        return self._random.randbytes(min(max(length, least_bytes), MAX_PAYLOAD_BYTES))

    def publications(
        self, topics: tuple[str, ...], count: int, median_bytes: int
    ) -> tuple[Publication, ...]:
        """Draw publications: each under any of the topics, all of them as likely."""
        drawn = self._random.choices(topics, k=count)
        return tuple((topic, self.payload(median_bytes)) for topic in drawn)
