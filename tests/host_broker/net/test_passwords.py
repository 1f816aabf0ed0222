"""Passwords are looked at one after the other, in a thread; the broker goes on meanwhile."""

import asyncio
import threading

from host_broker.net.access.passwords import PasswordChecks, hash_password, is_password
from host_broker.net.live_settings import LiveSettings
from host_broker.settings import AccessSettings, Settings


def test_a_hash_is_of_one_password() -> None:
    encoded = hash_password("swordfish")
    assert encoded.startswith("$argon2id$")
    assert is_password(encoded, "swordfish")
    assert not is_password(encoded, "Swordfish")
    assert not is_password("no hash", "swordfish")
    assert hash_password("swordfish") != encoded


def test_no_more_wait_than_may_and_the_loop_goes_on() -> None:
    asked: list[str] = []
    go_on = threading.Event()

    def verify(encoded: str, password: str) -> bool:
        asked.append(password)
        assert go_on.wait(30)
        return password == "right"

    async def main() -> None:
        live = LiveSettings(Settings(access=AccessSettings(max_pending_logins=2)))
        checks = PasswordChecks(live, verify)
        first = asyncio.create_task(checks.check("hash", "wrong"))
        second = asyncio.create_task(checks.check("hash", "right"))
        await asyncio.sleep(0)  # both have begun
        assert checks.pending == 2
        assert await checks.check("hash", "another") is None
        assert not first.done()
        go_on.set()
        assert [await first, await second] == [False, True]
        # What was right is known at once, as long as the user's hash is the same.
        assert await checks.check("hash", "right") is True
        assert asked == ["wrong", "right"]
        assert await checks.check("another hash", "right") is True
        assert await checks.check("hash", "wrong") is False
        assert asked == ["wrong", "right", "right", "wrong"]
        checks.close()

    asyncio.run(main())
