"""The one background thread with an event loop that every synchronous client shares.

It begins with the first client and ends with the last one: a program without clients has one
thread less, and may fork.
"""

import asyncio
import os
import sys
import threading

NAME = "motemq-client"

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_users = 0
# Loops of the process that we were forked from. Closing one would tell the kernel to forget file
# descriptors that are the parent's; so a child keeps them as they are.
_inherited: list[asyncio.AbstractEventLoop] = []


def acquire() -> asyncio.AbstractEventLoop:
    """Return the running loop; ``release`` it once."""
    global _loop, _thread, _users
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_run, args=(_loop,), name=NAME, daemon=True)
            _thread.start()
        _users += 1
        return _loop


def release() -> None:
    """Give the loop back; the thread of the last user ends before this returns."""
    global _loop, _thread, _users
    with _lock:
        _users -= 1
        if _users or _loop is None or _thread is None:
            return
        loop, thread = _loop, _thread
        _loop = _thread = None
    loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join()


def is_ours() -> bool:
    """Whether this is called in the background thread, which must not wait for itself."""
    return threading.current_thread().name == NAME


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.run_until_complete(_wind_down())
    loop.close()


async def _wind_down() -> None:
    """Who was interrupted while connecting left a task, who was forgotten a transport to close."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for _ in range(2):
        await asyncio.sleep(0)


def _forget_in_child() -> None:
    global _lock, _loop, _thread, _users
    _lock = threading.Lock()
    if _loop is not None:
        _inherited.append(_loop)
    _loop, _thread, _users = None, None, 0


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_in_child)
