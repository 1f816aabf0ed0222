"""A broker with data, while a block lasts."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_END_S = 60.0


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that runs, at a port for all protocols."""

    port: int
    process: "subprocess.Popen[str]"

    def rss_bytes(self) -> int:
        """Return the memory that it has now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024


@contextlib.contextmanager
def broker(folder: Path, query: str = "") -> Iterator[Broker]:
    """Run one with its data below ``folder``; ``query``: of its address. Raises RuntimeError."""
    argv = [sys.executable, "-m", "motemq", "broker", "--data", str(folder / "data")]
    argv += ["--listen", f"auto://127.0.0.1:0{query}"]
    with (
        (folder / "said").open("w") as said,
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=said, text=True) as process,
    ):
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line:
                raise RuntimeError(f"the broker did not start: {(folder / 'said').read_text()}")
            yield Broker(int(line.rpartition(":")[2]), process)
            if process.poll() is not None:
                raise RuntimeError(f"the broker ended: {(folder / 'said').read_text()}")
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
