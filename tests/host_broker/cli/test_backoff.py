"""What counts as a loss, and what is said of it: without brokers."""

import pytest

from host_broker.cli.outages import Outages
from host_broker.client import ClientError, ConnectFailed, ConnectionLost, Refused, Timeout
from host_broker.client.backoff import Backoff


def test_a_refusal_is_an_outage_only_after_an_acceptance() -> None:
    backoff = Backoff()
    refused = Refused("another client has this name", 4)
    assert not backoff.is_loss(refused)
    backoff.well()
    assert backoff.is_loss(refused)


@pytest.mark.parametrize("kind", [ConnectFailed, ConnectionLost, Timeout])
def test_what_another_try_may_help_is_a_loss(kind: type[ClientError]) -> None:
    assert Backoff().is_loss(kind("nobody"))
    assert not Backoff().is_loss(ClientError("full"))


def test_an_outage_that_was_told_ends_with_a_word() -> None:
    said: list[str] = []
    outages = Outages(said.append, lambda: said.append("restored"))
    outages(None)
    outages(Refused("another client has this name", 4))
    outages(None)
    outages(None)
    assert said == ["trying again: another client has this name", "restored"]


def test_a_new_outage_is_said_again() -> None:
    said: list[str] = []
    outages = Outages(said.append)
    for _ in range(2):
        for reason in ("lost", "nobody", "nobody", "lost"):
            outages(ConnectFailed(reason))
        outages(None)
    assert said == ["trying again: lost", "trying again: nobody"] * 2
