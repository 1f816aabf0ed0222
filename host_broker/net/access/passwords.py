"""Argon2: a hash takes some 50 ms and 64 MiB, so it is made in a thread, one after the other."""

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from host_broker.net.live_settings import LiveSettings

_MOST_VERIFIED = 1024  # secrets that were right, remembered


def hash_password(password: str) -> str:
    """Return what is kept of a password."""
    from argon2 import PasswordHasher

    return PasswordHasher().hash(password)


def is_password(encoded: str, password: str) -> bool:
    """Whether a password has this hash."""
    # Only now: a broker without users need not load it.
    from argon2 import PasswordHasher
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return PasswordHasher().verify(encoded, password)
    except (VerificationError, InvalidHashError, ValueError):
        return False


class PasswordChecks:
    """Checks passwords, ``access.max_pending_logins`` at most, in one thread.

    A password that was right is known at once the next time, since HTTP clients say it with every
    request. What is remembered is a keyed hash, in this process only; another hash in the users
    file makes it another question.
    """

    def __init__(
        self, live: LiveSettings, verify: Callable[[str, str], bool] = is_password
    ) -> None:
        self._live = live
        self._verify = verify
        self._loop = asyncio.get_running_loop()
        self._thread: ThreadPoolExecutor | None = None
        self.refused = 0  # because too many wait, since the start
        self._pending = 0
        self._key = secrets.token_bytes(32)
        self._verified: OrderedDict[bytes, None] = OrderedDict()

    @property
    def pending(self) -> int:
        """How many wait."""
        return self._pending

    def is_known(self, encoded: str, password: str) -> bool:
        """Whether this password was right before."""
        return self._digest(encoded, password) in self._verified

    async def check(self, encoded: str, password: str) -> bool | None:
        """Return whether the password is right; None if too many wait."""
        digest = self._digest(encoded, password)
        if digest in self._verified:
            self._verified.move_to_end(digest)
            return True
        if self._pending >= self._live.access.max_pending_logins:
            self.refused += 1
            return None
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="passwords")
        self._pending += 1
        try:
            right = await self._loop.run_in_executor(self._thread, self._verify, encoded, password)
        finally:
            self._pending -= 1
        if right:
            self._verified[digest] = None
            if len(self._verified) > _MOST_VERIFIED:
                self._verified.popitem(last=False)
        return right

    def close(self) -> None:
        """Begin no more; one that has begun ends by itself."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _digest(self, encoded: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{encoded}\0{password}".encode(errors="replace"), "sha256")
