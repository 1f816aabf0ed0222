"""Both ends in simulated time on a line with seeded faults: never a wrong byte, and ends in time.

``Pair`` checks every byte that either end delivers; here is what has to come of it.
"""

import random
from dataclasses import replace

import pytest

from benchmarks.link.line import BOOT_TEXT, Faults
from tests.boards.bridge.link.pair import Pair

PATIENCE_S = 5.0
# Both ends look every 3 ms at most, and the host forgives 50 ms.
LATE_S = 0.1

_LINES = {
    "clean": Faults(),
    "flips": Faults(flip=1e-3),
    "losses": Faults(lose=1e-3),
    "doubles": Faults(double=1e-3),
    "noise": Faults(noise_every_s=0.2),
    "text": Faults(text_every_s=0.2),
    "all": Faults(
        flip=5e-4, lose=5e-4, double=5e-4, noise_every_s=0.5, noise_bytes=300, text_every_s=0.5
    ),
}


@pytest.mark.parametrize("name", _LINES)
@pytest.mark.parametrize("baud", [9600, 115200, 921600])
def test_all_arrives_whatever_the_line_does(name: str, baud: int) -> None:
    load = min(20_000, baud // 10)
    faults = _LINES[name]
    if baud == 9600:  # where a full frame takes 0.27 s
        noise_s, text_s = 10 * faults.noise_every_s, 10 * faults.text_every_s
        faults = replace(faults, noise_every_s=noise_s, text_every_s=text_s)
    for seed in range(8):
        pair = Pair(seed, baud, faults, load=load, step_ms=12 if baud == 9600 else 3)
        assert pair.run(pair.done, 60), (seed, pair.log, pair.host.counters)
        assert len(pair.log) == 1, (seed, pair.log)


@pytest.mark.parametrize("seed", range(24))
def test_a_terrible_line_delivers_no_wrong_byte(seed: int) -> None:
    """So bad that sessions break; then the next one begins, and none delivers what it must not."""
    rng = random.Random(seed)
    chances = [10 ** rng.uniform(-4, -1.7) for _ in range(3)]
    faults = Faults(*chances, noise_every_s=0.1, noise_bytes=400, text_every_s=0.3)
    pair = Pair(seed, rng.choice((9600, 115200, 921600)), faults, clock_ms=(1 << 30) - 5000)
    pair.run_for(10)
    for session in pair.log:
        for stream in (session.up, session.down):
            assert stream.delivered <= len(stream.given)


@pytest.mark.parametrize("seed", range(6))
def test_a_clean_end_of_the_board_is_complete(seed: int) -> None:
    pair = Pair(seed, load=10_000)
    pair.board_stops_at = 5000
    assert pair.run(lambda: bool(pair.log) and pair.last.host_ended is not None, 20)
    ended = pair.last.host_ended
    assert ended is not None
    assert (ended.reason, ended.complete) == ("closed by the board", True)
    assert pair.last.up.delivered == len(pair.last.up.given) >= 5000


@pytest.mark.parametrize("faults", [Faults(), Faults(flip=1e-3)], ids=["clean", "flips"])
@pytest.mark.parametrize("seed", range(6))
def test_the_end_of_the_broker_comes_after_its_last_byte(seed: int, faults: Faults) -> None:
    pair = Pair(seed, load=10_000, faults=faults)
    pair.host_stops_at = 5000
    assert pair.run(lambda: bool(pair.log) and pair.log[0].board_error is not None, 30)
    first = pair.log[0]
    assert first.host_ended is not None
    assert first.host_ended.reason == "closed by the broker"
    if first.board_error == "":
        assert first.down.delivered == len(first.down.given) >= 5000
    else:  # the CLOSE was damaged: the board learned it from the answer to what it sent next
        assert faults.flip
        assert "\\x02" in str(first.board_error)


@pytest.mark.parametrize("both", [True, False], ids=["both_ways", "to_the_board"])
@pytest.mark.parametrize("seed", range(4))
def test_a_pulled_cable_is_noticed_by_both_in_time(seed: int, both: bool) -> None:
    pair = Pair(seed, load=1 << 20)
    pair.run_for(1 + seed / 3)
    pulled = pair.now
    pair.to_board.pulled = True
    pair.to_host.pulled = both
    session = pair.last
    ended = pair.run(lambda: session.board_error is not None and session.host_ended is not None, 20)
    assert ended, session
    assert session.board_error in ("silence", "no progress")
    assert session.host_ended_at - pulled < PATIENCE_S + LATE_S
    assert session.board_ended_at - pulled < PATIENCE_S + LATE_S
    # Plugged in again, all goes on by itself.
    pair.to_board.pulled = pair.to_host.pulled = False
    assert pair.run(lambda: pair.last is not session and pair.last.down.delivered > 1000, 5)


@pytest.mark.parametrize("seed", range(4))
def test_a_cable_to_the_host_alone_is_noticed_too(seed: int) -> None:
    """The board hears keepalives and what the host resends, but nothing is acknowledged."""
    pair = Pair(seed, load=1 << 20)
    pair.run_for(1)
    session, pulled = pair.last, pair.now
    pair.to_host.pulled = True
    assert pair.run(lambda: session.board_error is not None and session.host_ended is not None, 20)
    assert max(session.host_ended_at, session.board_ended_at) - pulled < PATIENCE_S + LATE_S


@pytest.mark.parametrize("seed", range(10))
def test_a_board_reset_ends_the_old_session_at_once(seed: int) -> None:
    pair = Pair(seed, load=1 << 20)
    pair.run_for(0.5 + seed / 7)
    old, reset = pair.last, pair.now
    pair.power_on()
    pair.to_host.insert(BOOT_TEXT)
    assert pair.run(lambda: old.host_ended is not None, 2)
    assert old.host_ended is not None
    assert old.host_ended.reason == "the board opened anew"
    assert old.host_ended_at - reset < 0.5
    assert pair.run(lambda: pair.last is not old and pair.last.down.delivered > 1000, 5)


def test_a_board_that_stays_away_is_noticed_in_time() -> None:
    pair = Pair(1, load=1 << 20)
    pair.run_for(1)
    old, reset = pair.last, pair.now
    pair.power_on()
    pair._open_at = pair.now_ms + 60_000
    assert pair.run(lambda: old.host_ended is not None, 20)
    assert old.host_ended_at - reset < PATIENCE_S + LATE_S


def test_a_reset_into_the_same_session_number_is_a_new_session() -> None:
    pair = Pair(1, load=1 << 20)
    pair.run_for(1)
    old = pair.last
    random.seed(1)  # as when the board was made: the same number by bad luck
    pair.power_on()
    assert pair.run(lambda: old.host_ended is not None, 2)
    assert old.host_ended is not None
    assert old.host_ended.reason == "the board opened anew"
    assert pair.run(lambda: pair.last is not old and pair.last.down.delivered > 1000, 5)
    assert pair.last.number == old.number


def test_ends_with_different_rates_never_meet() -> None:
    pair = Pair(1)
    pair.to_host.garbled = pair.to_board.garbled = True
    pair.run_for(30)
    assert pair.log == []
    pair.to_host.garbled = pair.to_board.garbled = False
    assert pair.run(pair.done, 20)


def test_a_rate_that_changes_is_noticed_in_time() -> None:
    pair = Pair(1, load=1 << 20)
    pair.run_for(1)
    session, changed = pair.last, pair.now
    pair.to_host.garbled = pair.to_board.garbled = True
    assert pair.run(lambda: session.board_error is not None and session.host_ended is not None, 20)
    assert max(session.host_ended_at, session.board_ended_at) - changed < PATIENCE_S + LATE_S


@pytest.mark.parametrize("seed", range(4))
def test_a_restarted_bridge_is_noticed_at_once(seed: int) -> None:
    pair = Pair(seed, load=1 << 20)
    pair.run_for(1)
    session, killed = pair.last, pair.now
    pair.restart_bridge()
    assert pair.run(lambda: session.board_error is not None, 5)
    assert session.board_error is not None
    assert "\\x02" in session.board_error
    assert session.board_ended_at - killed < PATIENCE_S / 8 + LATE_S
    assert pair.run(lambda: pair.last is not session and pair.last.down.delivered > 1000, 5)


def test_an_idle_link_stays_up_and_says_little() -> None:
    pair = Pair(1, load=0)
    pair.run_for(60)
    assert len(pair.log) == 1
    assert pair.last.host_ended is None
    assert pair.last.board_error is None
    # A keepalive of 14 bytes each 625 ms.
    assert pair.to_host.carried < 100 * 14 + 50
    assert pair.to_board.carried < 100 * 14 + 50


@pytest.mark.parametrize("who", ["host", "board"])
@pytest.mark.parametrize("seed", range(4))
def test_a_reader_that_pauses_holds_the_sender_up_and_loses_nothing(seed: int, who: str) -> None:
    pair = Pair(seed, 921600, Faults(flip=3e-4), load=30_000)
    setattr(pair, f"{who}_reads", False)
    pair.run_for(20)
    assert len(pair.log) == 1
    stream = pair.last.up if who == "host" else pair.last.down
    # Eight frames at the receiver and eight at the sender are all that waits anywhere.
    assert 1 <= len(stream.given) - stream.delivered <= 16 * 243
    setattr(pair, f"{who}_reads", True)
    assert pair.run(pair.done, 20)
    assert len(pair.log) == 1


def test_what_a_reader_holds_up_costs_the_line_little() -> None:
    pair = Pair(1, 921600, load=30_000)
    pair.host_reads = False
    pair.run_for(5)
    before = pair.to_host.carried
    pair.run_for(10)
    # A frame and a keepalive each patience / 8, and acknowledgements.
    assert pair.to_host.carried - before < 10 * 8 / PATIENCE_S * (257 + 14 + 14) + 300


@pytest.mark.parametrize("patience_ms", [200, 1000, 65535])
def test_the_board_chooses_the_patience(patience_ms: int) -> None:
    pair = Pair(1, load=2000, patience_ms=patience_ms)
    assert pair.run(pair.done, 20)
    pair.run_for(0.1)  # nothing is open: silence is all that can be noticed
    session, pulled = pair.last, pair.now
    pair.to_board.pulled = pair.to_host.pulled = True
    assert pair.run(lambda: session.board_error is not None and session.host_ended is not None, 80)
    assert session.board_error == "silence"
    patience_s = patience_ms / 1000
    for at in (session.host_ended_at, session.board_ended_at):
        assert patience_s * 7 / 8 - LATE_S < at - pulled < patience_s + LATE_S
