"""Every fault on every transport, both drivers: noticed in time, and survived."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.client_upy.interpreters import Interpreter, run_checks

# How many processes share the matrix of a transport; they mostly wait. A serial line is slow: it
# has to be silent before each session.
_PARTS = {"tcp": 1, "tls": 1, "uart": 6}
_TWO, _MICROMSG2 = "fmqp+lightmq", "micromsg2"
_WAYS = [(through, protocols) for protocols in (_TWO, _MICROMSG2) for through in _PARTS]
# Faults that each driver has to notice; and what else it does.
_NOTICED = {_TWO: 30, _MICROMSG2: 16}
_ELSE = {
    _TWO: ["awake", "fmqp bytewise", "lightmq bytewise", "watchdog"],
    _MICROMSG2: ["awake", "micromsg2 bytewise", "watchdog"],
}
_INTERPRETERS = ["cpython", "micropython-32", "micropython-mpy", "micropython-1.26"]


@pytest.mark.parametrize("interpreter", _INTERPRETERS, indirect=True)
def test_faults_are_noticed_in_time(
    interpreter: Interpreter, fault_folder: Path, say: Callable[[str], None]
) -> None:
    # TLS takes its contexts from this heap, and the checks' own code is more than those: without
    # them 64 KB would do. MicroMsg2 is as much code as both others.
    with_tls = {
        protocols: replace(
            interpreter, command=tuple(_roomy(word, quarters) for word in interpreter.command)
        )
        for protocols, quarters in ((_TWO, 5), (_MICROMSG2, 6))
    }
    ways = [(*way, driver) for way in _WAYS for driver in ("sync", "aio")]
    with ThreadPoolExecutor(sum(_PARTS[through] for through, _, _ in ways)) as pool:
        runs = {
            (through, protocols, driver): [
                pool.submit(
                    run_checks,
                    with_tls[protocols] if through == "tls" else interpreter,
                    "faults",
                    str(fault_folder / f"{through}.json"),
                    through,
                    f"{part}/{_PARTS[through]}",
                    protocols,
                    driver,
                )
                for part in range(_PARTS[through])
            ]
            for through, protocols, driver in ways
        }
    for (through, protocols, driver), parts in runs.items():
        text = "".join(part.result() for part in parts)
        noticed = [int(ms) for ms in re.findall(r"noticed in (\d+) ms", text)]
        assert len(noticed) == _NOTICED[protocols]
        assert sorted(re.findall(rf"^(.*), {through}: (?!noticed)", text, re.M)) == _ELSE[protocols]
        worst = max(noticed)
        what = f"{len(noticed)} faults of {protocols}, {through}, {driver}"
        say(f"{what}: the latest was noticed in {worst} ms")


def _roomy(word: str, quarters: int) -> str:
    """Return an argument, with so many quarters of the heap if it says how large that is."""
    return re.sub(r"=(64|128)k$", lambda heap: f"={int(heap[1]) * quarters // 4}k", word)
