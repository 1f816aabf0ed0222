"""A broker and a continuous pipeline as processes that can be killed and started again."""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

_START_S = 300.0  # Spark, on a machine that has much else to do
_CATCH_UP_S = 20.0
_FINISH_S = 900.0
_END_S = 120.0
_ENDING_S = 2.0  # in which Java begins to end, and its executors may go on
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class Failed(Exception):
    """A process did not do its part; the text has its last words."""


class Broker:
    """``motemq broker`` with its data in ``data``; after a kill at the same port."""

    def __init__(self, data: Path, *options: str) -> None:
        self._data = data
        self._options = options
        self.port = 0
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        listen = f"auto://127.0.0.1:{self.port}"
        process = _spawn("broker", "--data", str(self._data), "--listen", listen, *self._options)
        self.port = int(line(process, b"listening", _START_S).rpartition(b":")[2])
        return process

    def kill(self) -> None:
        """Kill it (-9), and start it again."""
        self._process.kill()
        self._process.communicate()
        self._process = self._start()

    def end(self) -> None:
        """End it."""
        _end(self._process)


class Pipeline:
    """``motemq pipeline run`` from ``broker`` to tables in ``folder``."""

    def __init__(self, folder: Path, port: int, spark: Mapping[str, str]) -> None:
        self.tables = folder / "tables"
        self._config = folder / "run.toml"
        self._port = port
        self._spark = spark
        # So few that what waits after a fall is more than one batch.
        self._configure(max_rows=20_000)
        self._process: subprocess.Popen[bytes] | None = None

    def _configure(self, max_rows: int) -> None:
        settings = "".join(f'"{name}" = "{value}"\n' for name, value in self._spark.items())
        self._config.write_text(
            f'[source]\nbrokers = "http://127.0.0.1:{self._port}"\nmax_rows = {max_rows}\n'
            f'[tables]\nfolder = "tables"\n[spark]\n{settings}'
        )

    def start(self) -> None:
        """Start it, and wait until it runs."""
        self._process = _spawn("pipeline", "run", str(self._config))
        line(self._process, b"pipeline: running", _START_S)

    def kill(self) -> None:
        """Kill its driver (-9); Java ends by itself, or is killed while it waits for executors."""
        if self._process is None:
            raise Failed("the pipeline was not started")
        java = descendants(self._process.pid)
        has_executors = bool(self.executors())
        self._process.kill()
        self._process.communicate()
        if has_executors:
            # They are our Java's children, and as deaf to SIGTERM as it is (a real cluster's are
            # not). Spark waits 10 s for them, then starts others until Java has ended: a dozen and
            # more, which nobody ends, and which keep the next driver from its work for a minute.
            time.sleep(_ENDING_S)
            for pid in java:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        _gone(java)

    def kill_an_executor(self, choice: float) -> bool:
        """Kill one of its executors (-9); ``choice``, from 0 to 1, says which.

        False: there is none at this moment.
        """
        found = sorted(self.executors())
        if not found:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(found[min(len(found) - 1, int(choice * len(found)))], signal.SIGKILL)
        return True

    def executors(self) -> list[int]:
        """Return the process numbers of its executors."""
        if self._process is None:
            return []
        return [pid for pid in descendants(self._process.pid) if _EXECUTOR in _command(pid)]

    def runs(self) -> bool:
        """Whether it runs; raises ``Failed`` with its last words if it ended by itself."""
        if self._process is None:
            return False
        if self._process.poll() is not None:
            _, words = self._process.communicate()
            raise Failed(f"the pipeline ended: {words.decode(errors='replace')[-2000:]}")
        return True

    def finish(self, up_to_date: Callable[[], bool]) -> None:
        """End it in order when the tables are up to date.

        If much waits for it, another run is quicker, whose batches are larger.
        """
        deadline = time.monotonic() + _CATCH_UP_S
        while self.runs() and time.monotonic() < deadline:
            if up_to_date():
                _end(self._process)
                return
            time.sleep(0.1)
        _end(self._process)
        self._configure(max_rows=1_000_000)  # what was planned before is repeated as it was
        arguments = ("--once", "--quiet", "--master", "local[*]")
        process = _spawn("pipeline", "run", str(self._config), *arguments)
        try:
            _, words = process.communicate(timeout=_FINISH_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"the tables were not up to date within {_FINISH_S:g} s") from None
        finally:
            process.kill()
        if process.returncode:
            raise Failed(f"the pipeline failed: {words.decode(errors='replace')[-2000:]}")

    def end(self) -> None:
        """End what runs."""
        _end(self._process)


def kill_all(process: "subprocess.Popen[bytes]") -> None:
    """Kill (-9) a process and all that it started, and wait for it."""
    for pid in (process.pid, *descendants(process.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _spawn(*arguments: str) -> "subprocess.Popen[bytes]":
    return spawn([sys.executable, "-m", "motemq", *arguments])


def spawn(argv: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Start a process whose output is piped, and which does not outlive us."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        # Whoever started it may be killed, too.
        preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
    )


def line(process: "subprocess.Popen[bytes]", begin: bytes, timeout_s: float) -> bytes:
    """Return the first line of stdout that begins like this; raises ``Failed``."""
    deadline = time.monotonic() + timeout_s
    stdout = process.stdout
    while stdout is not None and time.monotonic() < deadline:
        ready, _, _ = select.select([stdout], [], [], 1.0)
        if not ready:
            continue
        said = stdout.readline()
        if said.startswith(begin):
            return said
        if not said:
            break
    process.kill()
    _, words = process.communicate()
    raise Failed(f"it did not say '{begin.decode()}': {words.decode(errors='replace')[-2000:]}")


def _end(process: "subprocess.Popen[bytes] | None") -> None:
    if process is None:
        return
    if process.poll() is None:
        process.terminate()
    try:
        process.communicate(timeout=_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def descendants(pid: int) -> list[int]:
    """Return the processes that ``pid`` started, and those they did."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        children.setdefault(parent, []).append(int(folder.name))

    def below(number: int) -> Iterator[int]:
        for child in children.get(number, ()):
            yield child
            yield from below(child)

    return list(below(pid))


def _gone(pids: list[int]) -> None:
    """Wait until these processes have ended by themselves."""
    deadline = time.monotonic() + _END_S
    while any(_command(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise Failed(f"of the killed pipeline these processes are left: {pids}")
        time.sleep(0.1)
