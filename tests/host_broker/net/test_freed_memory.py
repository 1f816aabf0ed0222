"""What a broker frees is not given back to the kernel with every read."""

import subprocess
import sys

# A process of its own: the setting is a process's. The count of faults is the kernel's.
_FAULTS = """
import resource, sys
from host_broker.net.freed_memory import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
else:
    # What glibc does by itself, without the threshold that it moves when a block is freed.
    import ctypes
    assert ctypes.CDLL(None).mallopt(-3, 128 * 1024)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytes(bytearray(256 * 1024))
before = faults()
for _ in range(1000):
    block = bytearray(256 * 1024)
    del block
print(faults() - before)
"""


def _faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_memory_of_reads_is_used_again() -> None:
    assert _faults("kept") < 1000  # less than a page of each block
    assert _faults("given back") > 10_000
