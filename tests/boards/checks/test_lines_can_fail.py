"""Reconnection, pings and the baseline: a good board passes, and what is wrong is named."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from boards.checks.reconnect import options_of
from boards.checks.registry import CHECKS
from boards.faults.trace import How
from boards.repl import NoReply
from boards.session.board_session import AgentError, BoardSession, CheckFailed, Invalid
from boards.session.plan import Protocol
from boards.session.verdicts import judge
from tests.boards.checks.broken_broker import BrokenBroker, Fault, Way, body_of, topic_of
from tests.boards.checks.conftest import Calls, Lay
from tests.client_upy.fault_server import FaultServer


@pytest.fixture(autouse=True)
def _readings_come_quickly() -> Iterator[None]:
    """As many as ever, and all cuts in the midst of them; only the waits between are shorter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("boards.checks.confirmed._PERIOD_MS", 50)
        patch.setattr("boards.checks.confirmed._APART_S", 0.15)
        yield


@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        ("reconnect_fin", "fmqp"),
        ("reconnect_rst", "lightmq"),
        ("reconnect_black_hole", "lightmq"),
        ("reconnect_refused", "fmqp"),
        ("reconnect_restart", "fmqp"),
        ("confirmed", "fmqp"),
        ("confirmed", "lightmq"),
        ("ping_lost", "fmqp"),
        ("ping_idle", "lightmq"),
        ("ping_idle", "fmqp"),
        ("baseline", "fmqp"),
        ("slow_line", "fmqp"),
        ("slow_line", "lightmq"),
    ],
)
def test_a_good_board_passes_and_is_measured(lay: Lay, name: str, protocol: Protocol) -> None:
    samples = CHECKS[name].run(lay(protocol)) or []
    assert [each.of for each in samples] == list(CHECKS[name].measures)
    assert all(value > 0 for each in samples for value in each.values)


def _connecting(calls: Calls, **options: int) -> None:
    def change(name: str, arguments: dict[str, Any]) -> None:
        if name == "connect":
            arguments["options"] |= options

    calls(change)


def _broken(session: BoardSession, fault: Fault) -> BrokenBroker:
    """Stand between the proxy and the run's broker."""
    assert session.broker_route is not None
    between = BrokenBroker(session.broker_route.broker, session.plan.protocol, fault)
    session.broker_route.broker = f"127.0.0.1:{between.port}"
    return between


def test_a_board_that_does_not_try_again_fails(lay: Lay, calls: Calls) -> None:
    _connecting(calls, retry_ms=0)
    with pytest.raises(CheckFailed, match=r"was not back in \d+ ms; it says 'closed'"):
        CHECKS["reconnect_fin"].run(lay("fmqp"))


def test_a_broker_that_acknowledges_what_it_loses_fails(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boards.checks.confirmed._ARRIVE_S", 1.0)  # for what never does
    session = lay("fmqp")
    own = session.own_broker()
    with FaultServer() as server:
        liar = {**own.facing, "micromsg2": f"127.0.0.1:{server.ports['micromsg2_echo']}"}
        monkeypatch.setattr(own, "facing", liar)
        lost = r"60 readings that the broker had confirmed did not arrive: \[0, 1, "
        with pytest.raises(CheckFailed, match=lost):
            CHECKS["confirmed"].run(session)


def test_a_line_that_ends_by_itself_is_ended_when_it_is_there_again(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a bad network a link may be gone in the moment in which the rig is to end it."""
    session = lay("fmqp")
    cut, asked = session.route.cut, []

    def gone(how: How) -> tuple[int, int]:
        asked.append(how)
        at_ns, count = cut(how)
        return at_ns, 0 if len(asked) == 2 else count

    monkeypatch.setattr(session.route, "cut", gone)
    CHECKS["confirmed"].run(session)
    assert asked[:3] == ["rst", "fin", "fin"]


def test_a_board_that_has_to_encrypt_is_given_time_for_its_handshake(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = lay("fmqp")
    assert options_of(session)["answer_ms"] == 1000
    monkeypatch.setattr(BoardSession, "by_tls", True)
    assert options_of(session)["answer_ms"] == options_of(session, answer_ms=2000)["answer_ms"]
    assert options_of(session)["answer_ms"] >= 5000


@pytest.mark.parametrize("name", ["pubsub_down", "ping_idle"])
def test_a_frame_that_was_cut_short_before_an_answer_is_no_failure(lay: Lay, name: str) -> None:
    """It can come on a console that the link shares, where nobody had read for a while."""
    session = lay("fmqp")
    noisy = (
        "import builtins, sys\n"
        "if not hasattr(builtins, 'said'):\n"
        "    builtins.said = print\n"
        "def cut_short(*words):\n"
        "    sys.stdout.write('\\0\\x07\\x15\\x01q')\n"
        "    said(*words)\n"
        "builtins.print = cut_short\n"
    )
    session.repl.exec(noisy, deadline_s=10)
    CHECKS[name].run(session)


def test_a_board_that_is_not_confirmed_fails(lay: Lay, monkeypatch: pytest.MonkeyPatch) -> None:
    session = lay("lightmq")
    own = session.own_broker()
    monkeypatch.setattr("boards.checks.confirmed._TIMEOUT_MS", 4000)
    monkeypatch.setattr("boards.checks.confirmed._CUTS", ())
    with FaultServer() as server:
        deaf = {**own.facing, "micromsg2": f"127.0.0.1:{server.ports['micromsg2_deaf']}"}
        monkeypatch.setattr(own, "facing", deaf)
        with pytest.raises(CheckFailed, match="readings were not confirmed in"):
            CHECKS["confirmed"].run(session)


def test_a_broker_of_the_rig_that_dies_is_no_verdict_on_the_board(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And there is another one for the next try."""
    session = lay("fmqp")
    own = session.own_broker()
    monkeypatch.setattr("boards.checks.confirmed._TIMEOUT_MS", 3000)
    real = session.route.cut

    def killed(how: How) -> tuple[int, int]:
        process = own._process
        assert process is not None
        process.kill()
        process.wait(10)
        return real(how)

    monkeypatch.setattr(session.route, "cut", killed)
    result = judge(CHECKS["confirmed"], session, {})
    assert (result.outcome, result.fault) == ("error", None)
    assert "the rig's own broker is gone: it ended with exit code -9" in result.message
    assert "readings were not confirmed in" in result.message
    monkeypatch.undo()
    assert judge(CHECKS["confirmed"], session, {}).outcome == "passed"


def test_a_subscription_that_is_forgotten_fails(lay: Lay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boards.checks.reconnect._BACK_MS", 3000)
    session = lay("fmqp")
    subscribed = 0

    def forget(way: Way, packet: bytes) -> list[bytes]:
        nonlocal subscribed
        if way == "up" and packet[0] & 0xC0 == 0x80 and topic_of(packet).startswith(b"check/"):
            subscribed += 1
            return [packet] if subscribed == 1 else []
        return [packet]

    with (
        _broken(session, forget),
        pytest.raises(CheckFailed, match="heard 0 messages instead of 5: it is not subscribed"),
    ):
        CHECKS["reconnect_rst"].run(session)


def test_a_message_that_comes_twice_after_it_fails(lay: Lay) -> None:
    session = lay("fmqp")

    def double(way: Way, packet: bytes) -> list[bytes]:
        return [packet, packet] if way == "down" and body_of(packet)[:1] == b"#" else [packet]

    with (
        _broken(session, double),
        pytest.raises(CheckFailed, match=r"heard a message twice: \[(\d+), \1"),
    ):
        CHECKS["reconnect_fin"].run(session)


def test_a_board_that_hammers_the_broker_fails(lay: Lay, calls: Calls) -> None:
    _connecting(calls, retry_ms=2, retry_max_ms=2)
    with pytest.raises(CheckFailed, match="tried again sooner than 100 ms"):
        CHECKS["reconnect_refused"].run(lay("fmqp"))


def test_a_board_that_gives_up_for_long_fails(
    lay: Lay, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boards.checks.reconnect._TRY_S", 2.0)
    _connecting(calls, retry_ms=60_000)
    with pytest.raises(CheckFailed, match="tried 0 times in 2 s, not 1"):
        CHECKS["reconnect_black_hole"].run(lay("fmqp"))


def test_a_fault_that_did_nothing_is_no_verdict(lay: Lay, monkeypatch: pytest.MonkeyPatch) -> None:
    session = lay("lightmq")
    monkeypatch.setattr(session.route, "cut", lambda _how: (1, 1))
    with pytest.raises(Invalid, match="never down"):
        CHECKS["reconnect_rst"].run(session)


def test_a_lost_pong_that_is_noticed_late_fails(lay: Lay, calls: Calls) -> None:
    _connecting(calls, answer_ms=3500)
    with pytest.raises(CheckFailed, match=r"noticed after \d{4} ms, expected 1000 to \d{4} ms"):
        CHECKS["ping_lost"].run(lay("fmqp"))


def test_a_board_that_notices_nothing_fails(
    lay: Lay, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boards.checks.ping._NOTICED_MS", 500)
    with pytest.raises(CheckFailed, match="without an answer the link is still up"):
        CHECKS["ping_lost"].run(lay("lightmq"))


def test_a_link_that_chatters_fails(lay: Lay, calls: Calls) -> None:
    _connecting(calls, keepalive_ms=50)
    with pytest.raises(CheckFailed, match=r"expected 1 to \d+ pings in \d+ ms of an idle link"):
        CHECKS["ping_idle"].run(lay("fmqp"))


def test_a_link_that_never_pings_fails(lay: Lay, calls: Calls) -> None:
    _connecting(calls, keepalive_ms=60_000)
    with pytest.raises(CheckFailed, match=r"expected 1 to .* got 0"):
        CHECKS["ping_idle"].run(lay("fmqp"))


def test_a_line_that_swallows_bytes_fails(
    lay: Lay, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boards.checks.baseline._PIECE_MS", 500)
    session = lay("fmqp")
    lead_to = session.route.lead_to

    def away(_to: str) -> None:
        session.route.set_mode("black_hole")
        lead_to(session.broker)

    monkeypatch.setattr(session.route, "lead_to", away)
    with pytest.raises(AgentError, match=r"0 of \d+ bytes came back"):
        CHECKS["baseline"].run(session)


def test_a_burst_that_was_held_back_passes(lay: Lay) -> None:
    CHECKS["stream_held_back"].run(lay("fmqp"))  # raises nothing


def test_a_message_that_is_lost_while_it_is_held_back_fails(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boards.checks.streams._ARRIVAL_S", 10.0)  # for 10,000 through Python
    session = lay("fmqp")
    seen = 0

    def lose(way: Way, packet: bytes) -> list[bytes]:
        nonlocal seen
        seen += way == "up" and topic_of(packet).endswith(b"held_back")
        return [] if way == "up" and seen == 4_000 else [packet]

    with (
        _broken(session, lose),
        session.disturbed(),
        pytest.raises(CheckFailed, match=r"expected 10000 .*, got 9\d{3}: \d+ missing"),
    ):
        CHECKS["stream_held_back"].run(session)


_SAYS_THAT_ALL_IS_SENT = """
from umotemq.tcp import Tcp
_open = Tcp.open
class Hasty:
    def __init__(self, sock):
        self.sock = self.pollable = sock
        self.readinto = sock.readinto
        self.close = sock.close
    def write(self, data):
        self.sock.write(data)
        return len(data)
Tcp.open = lambda self: Hasty(_open(self))
"""


def test_a_board_that_drops_what_nobody_takes_fails(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boards.checks.streams._ARRIVAL_S", 2.0)
    session = lay("fmqp")
    session.repl.exec(_SAYS_THAT_ALL_IS_SENT, deadline_s=10)
    with pytest.raises((CheckFailed, AgentError), match=r"missing|send_numbered: LinkError"):
        CHECKS["stream_held_back"].run(session)


def test_a_line_that_holds_nothing_back_is_no_verdict(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = lay("fmqp")
    monkeypatch.setattr(session.route, "set_mode", lambda _mode, **_more: 1)
    with pytest.raises(Invalid, match=r"all was handed over within \d+ ms: nothing held it back"):
        CHECKS["stream_held_back"].run(session)


def test_a_slow_line_that_is_not_slow_is_no_verdict(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = lay("fmqp")
    monkeypatch.setattr(session.route, "set_mode", lambda _mode, **_more: 1)
    with pytest.raises(Invalid, match="the line was not slow"):
        CHECKS["slow_line"].run(session)


def test_a_board_that_takes_a_slow_line_for_a_dead_one_fails(lay: Lay, calls: Calls) -> None:
    _connecting(calls, answer_ms=250)
    with pytest.raises(AgentError, match=r"ping: LinkError: .'timeout'"):
        CHECKS["slow_line"].run(lay("fmqp"))


_TIMES_WRONGLY = """
from umotemq.fmqp import FmqpClient
_ping = FmqpClient.ping
def ping(self, timeout_ms):
    took = _ping(self, timeout_ms)
    return {told}
FmqpClient.ping = ping
"""
_CLOCK_IS_SLOW = """
import agent
_now = agent.ticks_us
agent.ticks_us = lambda: _now() // 8
"""


@pytest.mark.parametrize(("told", "mean_ms"), [("1000", r"-?\d"), ("took // 2", r"1\d\d")])
def test_a_board_that_does_not_see_how_slow_it_is_fails(lay: Lay, told: str, mean_ms: str) -> None:
    session = lay("fmqp")
    session.repl.exec(_TIMES_WRONGLY.format(told=told), deadline_s=10)
    with pytest.raises(CheckFailed, match=f"by the board's clock it was {mean_ms} ms in the mean"):
        CHECKS["slow_line"].run(session)


def test_a_board_whose_machine_is_busy_is_held_to_its_own_clock(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its model is called: an emulated processor's time goes slower than ours."""
    session = lay("fmqp")
    real = replace(session.target.model, virtual=False)
    monkeypatch.setattr(session.target, "model", real)
    session.repl.exec(_TIMES_WRONGLY.format(told="took // 8") + _CLOCK_IS_SLOW, deadline_s=10)
    CHECKS["slow_line"].run(session)


def test_a_message_that_is_lost_on_a_slow_line_fails(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boards.checks.slow_line._ARRIVAL_S", 2.0)
    session = lay("fmqp")
    seen = 0

    def lose(way: Way, packet: bytes) -> list[bytes]:
        nonlocal seen
        seen += way == "up" and topic_of(packet).endswith(b"slow_line")
        return [] if way == "up" and seen == 7 else [packet]

    with (
        _broken(session, lose),
        pytest.raises(CheckFailed, match=r"from the board: .* missing"),
    ):
        CHECKS["slow_line"].run(session)


_SENDS_SLOWLY = """
import node, time
_send = node.Connection.send
def send(self, topic, payload):
    time.sleep_ms(10)
    _send(self, topic, payload)
node.Connection.send = send
"""
_SLOWLY: dict[str, Any] = {"size": 32, "count": 150, "deadline_s": 0.7}


def test_a_board_that_is_heard_is_slow_and_not_hung(lay: Lay) -> None:
    session = lay("fmqp")
    topic = session.topic("slow")
    session.connect()
    session.repl.exec(_SENDS_SLOWLY, deadline_s=10)
    done = session.call("send_numbered", topic=topic, while_heard=True, **_SLOWLY)
    assert done["us"] > 1_500_000
    with pytest.raises(NoReply, match=r"not done within 0\.7 s"):
        session.call("send_numbered", topic=topic, **_SLOWLY)


def test_a_board_that_is_not_heard_any_more_hangs(lay: Lay) -> None:
    session = lay("fmqp")
    session.connect()
    session.route.set_mode("black_hole")
    with pytest.raises(NoReply, match=r"not done within 0\.7 s"):
        session.call("send_numbered", topic=session.topic("slow"), while_heard=True, **_SLOWLY)


def test_what_comes_back_slowly_is_not_lost(lay: Lay) -> None:
    """A board waits for the answer behind its own messages as long as these come."""
    session = lay("fmqp")
    topic = session.topic("echo")
    slow = threading.Event()

    def slowly(way: Way, packet: bytes) -> list[bytes]:
        if way == "down" and topic_of(packet) == topic.encode():
            slow.wait(0.05)  # nobody sets it: that is how slow the line is
        return [packet]

    with _broken(session, slowly), session.disturbed():
        session.connect()
        session.call("subscribe", topic=topic)
        session.repl.exec("import traffic\ntraffic._ALL_MS = 1000", deadline_s=10)
        done = session.call("send_numbered", topic=topic, size=32, count=50)
    assert (done["heard"]["count"], done["heard"]["missing"]) == (50, 0)
    assert done["us"] > 2_000_000
