"""The event loop asks for short slices of a core, the journal's thread for none."""

import asyncio
import ctypes
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path
from struct import Struct

import pytest

from host_broker.bus.publication import pack
from host_broker.net.journal.writer import Journal
from host_broker.net.time_slice import SHORT_S, ask_for_time_slice
from host_broker.outputs import Record
from host_broker.settings import JournalSettings
from tests.host_broker.net.broker_process import broker

# sched_getattr(2), whose answer begins with size, policy, flags, nice, priority and runtime in ns.
_GET = {"x86_64": 315, "aarch64": 275, "riscv64": 275}
_ATTRIBUTES = Struct("=IIQiIQQQ")
# Linux before 6.12 says 0 of everybody.
_KERNEL = tuple(int(part) for part in platform.release().split(".")[:2])
_SHORT_NS = round(SHORT_S * 1e9) if _KERNEL >= (6, 12) else 0


def _policy_nice_slice(thread: int) -> tuple[int, int, int]:
    answer = ctypes.create_string_buffer(_ATTRIBUTES.size)
    number = _GET[platform.machine()]
    assert not ctypes.CDLL(None).syscall(number, thread, answer, _ATTRIBUTES.size, 0)
    _, policy, _, nice, _, runtime_ns, *_ = _ATTRIBUTES.unpack(answer.raw)
    return policy, nice, runtime_ns


def test_the_loop_of_a_broker_asks() -> None:
    policy, nice, _ = _policy_nice_slice(0)
    with broker() as running:
        assert _policy_nice_slice(running.process.pid) == (policy, nice, _SHORT_NS)


def test_the_thread_of_the_journal_has_what_is_usual(tmp_path: Path) -> None:
    """Though it is started by one that has asked."""
    usual = _policy_nice_slice(0)
    found: list[tuple[int, int, int]] = []

    async def write() -> None:
        ask_for_time_slice(SHORT_S)
        before = set(os.listdir("/proc/self/task"))
        journal = Journal(tmp_path, JournalSettings())
        journal.start(asyncio.get_running_loop(), pytest.fail, lambda: None)
        (thread,) = set(os.listdir("/proc/self/task")) - before
        position = journal.append(1, [Record(2, 1, "", 1, pack(0, b"a", b""))])
        await journal.reach(position, 10.0, "written")
        found.extend(map(_policy_nice_slice, (0, int(thread))))
        await journal.close(10.0)

    loop = threading.Thread(target=lambda: asyncio.run(write()))
    loop.start()
    loop.join()
    assert found == [(*usual[:2], _SHORT_NS), usual]


@pytest.mark.parametrize("nice", [0, 3])
def test_nothing_else_changes_and_it_can_be_taken_back(nice: int) -> None:
    """In a process of its own: who is nicer than before stays so."""
    text = f"""
import os
from host_broker.net.time_slice import *
from tests.host_broker.net.test_time_slice import _policy_nice_slice as said, _SHORT_NS
os.nice({nice})
policy, nice, usual = said(0)
assert ask_for_time_slice(SHORT_S)
assert said(0) == (policy, nice, _SHORT_NS)
assert ask_for_time_slice(USUAL_S)
assert said(0) == (policy, nice, usual)
"""
    subprocess.run([sys.executable, "-c", text], check=True)


def test_another_policy_is_left_as_it_is() -> None:
    text = """
import os
from host_broker.net.time_slice import *
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
assert not ask_for_time_slice(SHORT_S)
assert os.sched_getscheduler(0) == os.SCHED_BATCH
"""
    subprocess.run([sys.executable, "-c", text], check=True)
