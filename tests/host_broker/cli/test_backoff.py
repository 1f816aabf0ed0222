"""What counts as a loss, and what is said of it: without brokers."""

import pytest

from host_broker.cli.reconnecting import Reconnection
from host_broker.client import ClientError, ConnectFailed, Refused


def _reconnection(said: list[str], *, again: bool = True) -> Reconnection:
    return Reconnection(again=again, say=said.append, sleep=lambda seconds: None)


def test_a_refusal_is_an_outage_only_after_an_acceptance() -> None:
    said: list[str] = []
    reconnection = _reconnection(said)
    refused = Refused("another client has this name", 4)
    with pytest.raises(Refused):
        reconnection.lost(refused)
    assert reconnection.well() is False
    reconnection.lost(refused)
    assert reconnection.well() is True
    assert said == ["trying again: another client has this name"]


def test_what_is_no_loss_is_raised() -> None:
    with pytest.raises(ClientError, match="full"):
        _reconnection([]).lost(ClientError("full"))
    with pytest.raises(ConnectFailed):
        _reconnection([], again=False).lost(ConnectFailed("nobody"))


def test_a_new_outage_is_said_again() -> None:
    said: list[str] = []
    reconnection = _reconnection(said)
    for _ in range(2):
        for reason in ("lost", "nobody", "nobody", "lost"):
            reconnection.lost(ConnectFailed(reason))
        reconnection.well()
    assert said == ["trying again: lost", "trying again: nobody"] * 2
