"""Failed logins in simulated time."""

import pytest

from host_broker.access.backoff import LoginBackoff


def test_after_some_failures_the_wait_doubles_and_ends() -> None:
    backoff = LoginBackoff(failures=3, longest_s=10.0)
    now = 100.0
    waits = []
    for _ in range(8):
        now += backoff.wait_s("10.0.0.1", "alice", now)
        backoff.failed("10.0.0.1", "alice", now)
        waits.append(backoff.wait_s("10.0.0.1", "alice", now))
    assert waits == [0, 0, 1, 2, 4, 8, 10, 10]
    # Nobody else pays for it: neither the others behind the address, nor alice elsewhere.
    assert backoff.wait_s("10.0.0.1", "bob", now) == 0
    assert backoff.wait_s("10.0.0.2", "alice", now) == 0
    now += 10.0
    assert backoff.wait_s("10.0.0.1", "alice", now) == 0
    backoff.failed("10.0.0.1", "alice", now)
    assert backoff.wait_s("10.0.0.1", "alice", now) == 10  # it is remembered for a while
    now += 10.0 + 10.1
    backoff.failed("10.0.0.1", "alice", now)
    assert backoff.wait_s("10.0.0.1", "alice", now) == 0


def test_who_tries_many_names_waits_too() -> None:
    backoff = LoginBackoff(failures=3, longest_s=10.0)
    for number in range(29):
        backoff.failed("10.0.0.1", f"user{number}", 0.0)
    assert backoff.wait_s("10.0.0.1", "alice", 0.0) == 0
    backoff.failed("10.0.0.1", "user29", 0.0)
    assert backoff.wait_s("10.0.0.1", "alice", 0.0) == 1


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("uid 5", "uid 6", False),
    ],
)
def test_an_address_of_ipv6_is_its_network(one: str, other: str, same: bool) -> None:
    backoff = LoginBackoff(failures=1)
    backoff.failed(one, "", 0.0)
    for _ in range(10):
        backoff.failed(one, "", 0.0)
    assert (backoff.wait_s(other, "", 0.0) > 0) == same


def test_its_memory_is_bounded() -> None:
    backoff = LoginBackoff(failures=1)
    for number in range(30_000):
        backoff.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", "x", 0.0)
    assert len(backoff) <= 20_000


def test_who_owns_many_addresses_is_not_kept_waiting() -> None:
    """docs/security.md says so: each address has tries of its own, for every name."""
    backoff = LoginBackoff(failures=5, longest_s=60.0)
    for number in range(1000):
        address = f"10.0.{number >> 8}.{number & 255}"
        for _ in range(4):
            assert backoff.wait_s(address, "alice", 0.0) == 0.0
            backoff.failed(address, "alice", 0.0)
    assert backoff.counted == 4000
