"""What holds this process up is seen, as far as it would hold up another one."""

import time

from boards.session.scheduling_delay import SchedulingDelay


def test_a_process_that_is_held_up_is_seen() -> None:
    with SchedulingDelay() as stalls:
        began = time.monotonic()
        assert 3**2_000_000 & 1  # one step of the interpreter: no other thread runs meanwhile
        held_ms = (time.monotonic() - began) * 1e3
        until = time.monotonic() + 10
        while stalls.worst_ms < held_ms - 15:  # it may have been napping when that began
            assert time.monotonic() < until
            time.sleep(0.01)
    assert held_ms > 50
