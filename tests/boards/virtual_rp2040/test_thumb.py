"""The fast instruction loop against rp2040js' own core, and against the manual."""

import os
import subprocess
from pathlib import Path

import pytest

from boards.virtual import rp2040
from boards.virtual.rp2040.node import ensure_rp2040js, find_node

LOCKSTEP = Path(__file__).with_name("thumb_lockstep.mjs")
EMULATOR = Path(rp2040.__file__).parent


@pytest.mark.parametrize("seed", [1, 20261121])
def test_instructions_do_what_the_slow_core_does(seed: int) -> None:
    tools = find_node()
    done = subprocess.run(
        [str(tools.node), str(LOCKSTEP), str(EMULATOR), str(seed), "20000"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "RP2040JS": str(ensure_rp2040js(tools))},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "20000 instructions alike\n"
