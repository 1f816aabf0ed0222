"""The emulator's log is bounded, whatever the firmware does."""

import subprocess
from pathlib import Path

from boards.virtual import rp2040
from boards.virtual.rp2040.node import find_node

LOOP = """
import { captureConsole, log } from "%s";
captureConsole();
for (let i = 0; i < 100000; i += 1) { log("the same"); console.warn("read from", i); }
"""


def test_a_loop_over_unknown_registers_writes_a_bounded_log() -> None:
    module = (Path(rp2040.__file__).parent / "log.mjs").as_uri()
    done = subprocess.run(
        [str(find_node().node), "--input-type=module", "-e", LOOP % module],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = done.stderr.splitlines()
    assert len(lines) == 500
    assert lines.count("emulator: the same") == 1
    assert lines[-1].endswith("(log full, nothing more will be written)")
