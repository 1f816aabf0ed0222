"""Calls of other clients of the broker: as the protocol has them, or by topics."""

import secrets
import time
from dataclasses import dataclass

from host_broker.client.arguments import payload_bytes
from host_broker.client.inbox import Mark
from host_broker.client.sessions import CALLS_BY_TOPICS, by_topics, with_who_can
from host_broker.client.shell import Settings, Shell
from host_broker.client.subscriptions import Subscribed
from host_broker.client_errors import BadArgument, NotSupported, NotThere, Timeout
from host_broker.client_session import Ability, CallByTopics, Message, Publication

_LOOK_S = 0.2  # how soon it is noticed that nobody is there any more
_MOST_CALLERS = 32  # connections that are kept for calls
_MOST_INTERESTS = 1000  # clients of whom we are told whether they are there


@dataclass(slots=True)
class _Caller:
    """A connection that is for calls of one client only."""

    shell: Shell
    calls: int = 0  # under way


def _require_name(target: str) -> None:
    if not isinstance(target, str):
        raise TypeError(f"a client's name is str, not {type(target).__name__}")
    try:
        target.encode()
    except UnicodeEncodeError as error:
        raise BadArgument(f"no client has the name {target!r}: {error}") from error


class Calling:
    """The calls of one client."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._callers: dict[str, _Caller] = {}
        self._interests: dict[str, tuple[Subscribed, bool]] = {}  # of whom we call: is it there?

    async def open(self) -> None:
        """Connect. Raises ``NotThere`` if it is only for calls of a client that is not there."""
        target = self._shell.settings.calls
        if target is None:
            return await self._shell.open()
        _require_name(target)
        self._require_calls()
        await self._shell.open()
        if Ability.CALL not in self._shell.can:
            try:
                await self._require_there(target, by_topics()(target, ""))
            except BaseException:
                await self._shell.close(0.0)
                raise

    async def close(self, timeout_s: float) -> None:
        """Close all connections."""
        for caller in self._callers.values():
            await caller.shell.close(timeout_s)
        await self._shell.close(timeout_s)

    async def call(self, target: str, payload: bytes, timeout_s: float | None) -> bytes:
        """Ask a client of the broker and return the payload of its answer."""
        payload = payload_bytes(payload)
        _require_name(target)
        self._require_calls()
        settings = self._shell.settings
        limit_s = settings.timeout_s if timeout_s is None else timeout_s
        return await self._call(target, payload, limit_s)

    def _require_calls(self) -> None:
        shell = self._shell
        if Ability.CALL not in shell.can and not shell.can >= CALLS_BY_TOPICS:
            raise with_who_can(NotSupported(f"{shell.address} has no {Ability.CALL.value}"))

    async def _call(self, target: str, payload: bytes, limit_s: float) -> bytes:
        shell = self._shell
        if Ability.CALL not in shell.can:
            return await self._call_by_topics(target, payload, limit_s)
        if shell.session.calls_anyone or shell.settings.calls == target:
            return await shell.call(target, payload, limit_s)
        caller = self._callers.pop(target, None)
        if caller is None or caller.shell.closed:
            settings = Settings(timeout_s=shell.settings.timeout_s, calls=target)
            caller = _Caller(Shell(shell.address, settings))
            await caller.shell.open()
        self._callers[target] = caller  # the one used last is the last
        caller.calls += 1
        try:
            return await caller.shell.call(target, payload, limit_s)
        finally:
            caller.calls -= 1
            await self._close_some()

    async def _close_some(self) -> None:
        """Keep no more connections than may be, but for calls that are under way."""
        idle = [target for target, caller in self._callers.items() if not caller.calls]
        for target in idle[: max(0, len(self._callers) - _MOST_CALLERS)]:
            caller = self._callers.pop(target)
            await caller.shell.close(0.0)

    async def _call_by_topics(self, target: str, payload: bytes, limit_s: float) -> bytes:
        shell = self._shell
        call = by_topics()(target, secrets.token_hex(8))
        call.check(payload)
        until = time.monotonic() + limit_s
        await self._require_there(target, call)
        answers = shell.subscribe((call.reply, call.done), uncounted=True)
        try:
            shell.claim(answers)
            shell.publish(Publication(call.request, payload))
            answer = b""
            while True:
                left_s = until - time.monotonic()
                if left_s <= 0:
                    raise Timeout(f"'{target}' did not answer in time")
                message = await shell.next_of(answers, min(left_s, _LOOK_S))
                if message is None:
                    # Perhaps it went just before the question came.
                    await self._require_there(target, call)
                if not isinstance(message, Message):
                    continue
                if message.topic == call.reply:
                    answer = message.payload
                elif message.topic == call.done:
                    error = call.error(message.payload)
                    if error is not None:
                        raise error
                    return answer
        finally:
            shell.unsubscribe(answers)

    async def _require_there(self, target: str, call: CallByTopics) -> None:
        shell = self._shell
        if target not in self._interests:
            interest = shell.subscribe((call.interest,), feedback=True, confirm=True)
            shell.claim(interest)
            await shell.active(interest, None)
            self._interests[target] = (interest, False)
            if len(self._interests) > _MOST_INTERESTS:
                shell.unsubscribe(self._interests.pop(next(iter(self._interests)))[0])
        if not self._is_there(target, call):
            await shell.sync(None)  # it may have come just now
            if not self._is_there(target, call):
                raise NotThere(
                    f"{shell.address}: no client '{target}' takes calls there now; is it connected?"
                )

    def _is_there(self, target: str, call: CallByTopics) -> bool:
        """Take what feedback has told."""
        shell = self._shell
        interest, there = self._interests[target]
        with shell.lock:
            while (item := shell.take(interest)) is not None:
                if isinstance(item, Mark):
                    there = there and item.active  # lost: nobody is known to be there
                elif item.topic == call.interest:
                    there = bool(item.payload)
            self._interests[target] = (interest, there)
        return there
