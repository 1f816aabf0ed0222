"""kill -9 of every part of a running pipeline, under load: each message is in the tables once.

``python -m benchmarks pipeline-faults`` does it twenty times each.
"""

import random

import pytest

from benchmarks.faults import kills


@pytest.mark.timeout(2400)  # three starts of Spark, on a machine that may be busy
def test_whoever_is_killed_nothing_is_lost_or_doubled() -> None:
    told: list[str] = []
    victims = (kills.EXECUTOR, kills.BROKER, kills.DRIVER)
    found = kills.run(victims, 200.0, random.Random(7), told.append, longest_s=2.0)
    assert len(told) == len(victims)
    assert found.silver.journal > 100
    assert found.exact, found
