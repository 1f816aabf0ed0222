"""The checks at a patient broker, which refuses doubles: right ones pass, wrong ones fail."""

from typing import Any

import pytest

from boards.checks.registry import CHECKS
from boards.session.board_session import CheckFailed
from boards.session.broker_process import PATIENT, QUICK
from boards.session.observer import Observer, connect_fmqp
from host_broker.client import Refused
from tests.boards.checks.conftest import Calls, Lay

_WRONG = "presence/wrong"


def test_a_slow_keepalive_and_a_silent_death_pass(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boards.checks.last_will.PATIENT", QUICK)
    delay, earliest, latest = (each.values[0] for each in CHECKS["will_slow"].run(lay("fmqp")))
    assert 3000 == earliest <= delay + 20 <= latest


def test_a_board_that_is_refused_nothing_passes(lay: Lay) -> None:
    delay, earliest, latest = (each.values[0] for each in CHECKS["will_reject"].run(lay("lightmq")))
    assert 0 == earliest <= delay <= latest


def test_a_board_that_is_silent_for_longer_than_it_may_fails(
    lay: Lay, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boards.checks.last_will.PATIENT", QUICK)
    session = lay("fmqp")

    def forget(name: str, arguments: dict[str, Any]) -> None:
        if name == "connect":
            arguments["options"]["keepalive_ms"] = 60_000

    calls(forget)
    with pytest.raises(CheckFailed, match="an idle link did not stay up for 4250 ms"):
        CHECKS["will_slow"].run(session)


def test_a_broker_that_lets_a_second_client_in_fails(lay: Lay) -> None:
    session = lay("lightmq")
    assert session.broker_route is not None
    own = session.broker_route.own_broker
    session.broker_route.own_broker = lambda _timing=None: own()  # type: ignore[method-assign]
    with pytest.raises(CheckFailed, match=r"a second client was let in as .*check"):
        CHECKS["will_reject"].run(session)


class _Misled(Observer):
    """Sees ``offline`` that no broker says: ours lets nobody publish the presence of a client."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(address, topic)
        self._client.subscribe(_WRONG)
        self._client.sync()


def test_a_refused_client_that_costs_the_board_its_presence_fails(
    lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = lay("lightmq")

    def refuse(_url: str, **_more: float) -> None:
        own = session.own_broker(PATIENT).addresses["fmqp"]
        with connect_fmqp(own) as other:
            other.publish(_WRONG, b"offline")
            other.ping(10.0)
        raise Refused("no", 5)

    monkeypatch.setattr("boards.checks.last_will.Observer", _Misled)
    monkeypatch.setattr("boards.checks.last_will.connect_client", refuse)
    with pytest.raises(CheckFailed, match=r"expected \[\] on lightmq/.*, got \['offline'\]"):
        CHECKS["will_reject"].run(session)
