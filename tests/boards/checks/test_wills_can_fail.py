"""Last wills: a right one passes, a wrong one fails, and no verdict rests on an unproven cause."""

import time
from typing import Any

import pytest

from boards.checks.registry import CHECKS
from boards.faults.control import Mode, Route
from boards.faults.trace import How
from boards.session.board_session import AgentError, BoardSession, CheckFailed, Invalid
from boards.session.broker_process import BrokerTiming
from boards.session.observer import connect_fmqp
from boards.session.plan import Protocol
from tests.boards.checks.conftest import Calls, Lay


@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        *((name, "fmqp") for name in ("will_clean", "will_fin", "will_rst", "will_reboot")),
        *((name, "lightmq") for name in ("will_rst", "will_takeover")),
        ("will_silent", "fmqp"),
        ("will_power", "lightmq"),
    ],
)
def test_a_right_will_passes_and_is_measured(lay: Lay, name: str, protocol: Protocol) -> None:
    values = {each.of.metric: each.values for each in CHECKS[name].run(lay(protocol))}
    ((delay,), (earliest,), (latest,)) = (
        values["will_delay"],
        values["will_earliest"],
        values["will_latest"],
    )
    assert earliest - 20 <= delay <= latest
    assert (earliest > 0) == (name in ("will_silent", "will_power"))


def _publish(session: BoardSession, topic: str, text: str) -> None:
    with connect_fmqp(session.broker) as other:
        other.publish(topic, text.encode())
        other.ping(10.0)


def test_a_will_that_is_forgotten_fails(lay: Lay, calls: Calls) -> None:
    session = lay("fmqp")

    def forget(name: str, arguments: dict[str, Any]) -> None:
        if name == "connect":
            arguments["will"] = None

    calls(forget)
    with pytest.raises(CheckFailed, match=r"nothing came in 1000 ms and \d{4,5} ms more"):
        CHECKS["will_rst"].run(session)


def test_a_will_with_other_content_fails(lay: Lay, calls: Calls) -> None:
    session = lay("fmqp")

    def change(name: str, arguments: dict[str, Any]) -> None:
        if name == "connect":
            arguments["will"] = [arguments["will"][0], "went"]

    calls(change)
    with pytest.raises(CheckFailed, match=r"exactly one 'gone' on .*, got \['went'\]"):
        CHECKS["will_fin"].run(session)


def test_a_will_that_comes_twice_fails(lay: Lay, monkeypatch: pytest.MonkeyPatch) -> None:
    session = lay("fmqp")
    cut = session.route.cut

    def twice(how: How) -> tuple[int, int]:
        done = cut(how)
        _publish(session, session.topic("will_rst"), "gone")
        return done

    monkeypatch.setattr(session.route, "cut", twice)
    with pytest.raises(CheckFailed, match=r"exactly one 'gone' on .*, got \['gone', 'gone'\]"):
        CHECKS["will_rst"].run(session)


def test_a_will_before_the_end_fails(lay: Lay, calls: Calls) -> None:
    session = lay("fmqp")

    def publish(name: str, _arguments: dict[str, Any]) -> None:
        if name == "ping":
            _publish(session, session.topic("will_rst"), "gone")

    calls(publish)
    with pytest.raises(CheckFailed, match="'gone' arrived before the end"):
        CHECKS["will_rst"].run(session)


_SLEEPS_BEFORE_A_PING = """
import time
from umotemq.fmqp import FmqpClient
_ping = FmqpClient.ping
_pings = 0
def ping(self, timeout_ms):
    global _pings
    _pings += 1
    if _pings == 2:  # the first one confirms its will
        time.sleep_ms(2500)
    return _ping(self, timeout_ms)
FmqpClient.ping = ping
"""


def _rig_sleeps(monkeypatch: pytest.MonkeyPatch, calls: Calls, step: str) -> None:
    """Have the rig be late with this step, for longer than its brokers are patient."""
    brief = BrokerTiming("brief", 1.5, 0.75, 0.75, "takeover")
    monkeypatch.setattr("boards.checks.last_will.QUICK", brief)
    monkeypatch.setattr("boards.checks.last_will.PATIENT", brief)
    real = BoardSession.own_broker
    monkeypatch.setattr(BoardSession, "own_broker", lambda self, _timing=None: real(self, brief))

    def sleep(name: str, _arguments: dict[str, Any]) -> None:
        if name == step:
            time.sleep(2.2)

    calls(sleep)


@pytest.mark.parametrize("name", ["will_silent", "will_power", "will_carried"])
def test_a_rig_that_is_late_with_a_step_is_no_verdict(
    lay: Lay, calls: Calls, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Between two steps nobody serves the board's link: its broker is right to give it up."""
    session = lay("fmqp" if name != "will_carried" else "lightmq")
    _rig_sleeps(monkeypatch, calls, "ping")
    with pytest.raises(Invalid, match="the rig was too slow"):
        CHECKS[name].run(session)


@pytest.mark.parametrize(("name", "protocol"), [("will_power", "fmqp"), ("will_reboot", "lightmq")])
def test_a_board_whose_network_is_mute_when_it_is_asked_to_ping_fails(
    lay: Lay, calls: Calls, name: str, protocol: Protocol
) -> None:
    """It was asked, and its broker gave it up meanwhile: that is no fault of the rig's."""
    session = lay(protocol)

    def mute(name: str, _arguments: dict[str, Any]) -> None:
        if name == "ping":
            session.route.set_mode("black_hole")

    calls(mute)
    with pytest.raises((AgentError, CheckFailed), match="ping"):
        CHECKS[name].run(session)


def test_a_board_that_is_held_up_when_it_is_asked_to_ping_is_no_verdict(
    lay: Lay, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on when its broker has given it up, and has told it so."""
    session = lay("fmqp")
    _rig_sleeps(monkeypatch, calls, "none")
    session.repl.exec(_SLEEPS_BEFORE_A_PING, deadline_s=10)
    with pytest.raises(Invalid, match="this machine held the board up"):
        CHECKS["will_silent"].run(session)


def test_a_rig_that_is_late_before_an_idle_link_is_no_verdict(
    lay: Lay, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = lay("fmqp")
    _rig_sleeps(monkeypatch, calls, "live")
    with pytest.raises(Invalid, match="the rig was too slow"):
        CHECKS["will_slow"].run(session)


def test_a_board_that_says_no_keepalive_fails(lay: Lay, calls: Calls) -> None:
    """Its link is served all the time, so that its silence is its own."""
    session = lay("fmqp")

    def mute(name: str, arguments: dict[str, Any]) -> None:
        if name == "connect":
            arguments["options"]["keepalive_ms"] = 60_000

    calls(mute)
    with pytest.raises(CheckFailed, match="an idle link did not stay up"):
        CHECKS["will_slow"].run(session)


def test_a_will_of_a_client_that_may_still_live_fails(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = lay("fmqp")
    set_mode = session.route.set_mode

    def early(mode: Mode, **more: float) -> int:
        since = set_mode(mode, **more)
        if mode == "black_hole":
            with connect_fmqp(session.own_broker().addresses["fmqp"]) as other:
                other.publish(session.topic("will_silent"), b"gone")
                other.ping(10.0)
        return since

    monkeypatch.setattr(session.route, "set_mode", early)
    with pytest.raises(CheckFailed, match="not before 3000 ms was right"):
        CHECKS["will_silent"].run(session)


def test_a_will_that_comes_late_fails(lay: Lay, monkeypatch: pytest.MonkeyPatch) -> None:
    session = lay("fmqp")
    cut = session.route.cut

    def long_ago(how: How) -> tuple[int, int]:
        at_ns, count = cut(how)
        return at_ns - 60_000_000_000, count

    monkeypatch.setattr(session.route, "cut", long_ago)
    with pytest.raises(Invalid, match="not proven to be a FIN on the way"):
        CHECKS["will_fin"].run(session)
    monkeypatch.setattr("boards.checks.last_will._expect_cause", lambda *_proof: None)
    with pytest.raises(CheckFailed, match=r"came after 6\d{4} ms, at the latest 1000 ms"):
        CHECKS["will_fin"].run(session)


def test_a_board_that_is_present_under_another_name_fails(
    lay: Lay, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boards.checks.last_will._ONLINE_S", 0.5)
    session = lay("lightmq")

    def rename(name: str, arguments: dict[str, Any]) -> None:
        if name == "connect":
            arguments["client_id"] = "unexpected"

    calls(rename)
    with pytest.raises(CheckFailed, match="expected presence 'online', got"):
        CHECKS["will_rst"].run(session)


def test_another_end_than_was_asked_for_is_no_verdict(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = lay("fmqp")
    cut = session.route.cut
    monkeypatch.setattr(session.route, "cut", lambda _how: cut("fin"))
    with pytest.raises(Invalid, match="not proven to be a RST on the way"):
        CHECKS["will_rst"].run(session)


def test_a_cut_that_cut_nothing_is_no_verdict(lay: Lay, monkeypatch: pytest.MonkeyPatch) -> None:
    session = lay("fmqp")
    monkeypatch.setattr(session.route, "cut", lambda _how: (1, 0))
    with pytest.raises(Invalid, match="0 connections were cut"):
        CHECKS["will_fin"].run(session)


def test_a_black_hole_that_says_goodbye_is_no_verdict(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = lay("lightmq")
    cut, set_mode = session.route.cut, session.route.set_mode

    def leaky(mode: Mode, **more: float) -> int:
        return cut("fin")[0] if mode == "black_hole" else set_mode(mode, **more)

    monkeypatch.setattr(session.route, "set_mode", leaky)
    with pytest.raises(Invalid, match="not proven to be silence"):
        CHECKS["will_silent"].run(session)


def test_a_power_cut_that_cut_nothing_is_no_verdict(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = lay("fmqp")
    monkeypatch.setattr("boards.virtual.control.BoardControl.power", lambda _self, *, on: None)
    with pytest.raises(Invalid, match="was not switched off"):
        CHECKS["will_power"].run(session)


def test_without_a_proxy_there_is_no_verdict(lay: Lay) -> None:
    session = lay("fmqp")
    assert session.broker_route is not None
    session.broker_route.route = None
    with pytest.raises(Invalid, match="no fault proxy"):
        CHECKS["will_fin"].run(session)


def test_the_route_is_whole_again_after_a_check(lay: Lay) -> None:
    session = lay("fmqp")
    CHECKS["will_fin"].run(session)
    route: Route = session.route
    session.connect()
    last = route.traces()[-1]
    assert last.dialled_ns > 0 and not last.cut
    session.hang_up()
