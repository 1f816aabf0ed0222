"""A board that runs an example: a folder with what a user would copy there, and an interpreter."""

import contextlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from host_broker.client import Client, Message, connect
from tests.client_upy.interpreters import CLIENT, Interpreter
from tests.host_broker.net.broker_process import line_of, spawn, until

EXAMPLES = CLIENT / "examples"
_LENT = Path(__file__).parent / "board_modules"
WAIT_S = 30.0


class ExampleBoard:
    """Runs examples as they are; ``folder`` has a config.py made from the template."""

    def __init__(self, interpreter: Interpreter, folder: Path, **config: object) -> None:
        self.folder = folder
        self._interpreter = interpreter
        names: dict[str, object] = {}
        exec((EXAMPLES / "config.example.py").read_text(), names)
        assert set(config) <= set(names), "the template lacks a name"
        names |= {"HOST": "127.0.0.1", **config}
        lines = [f"{name} = {value!r}\n" for name, value in names.items() if name.isupper()]
        (folder / "config.py").write_text("".join(lines))

    def lend(self, module: str) -> None:
        """Give it a stand-in for a module that only boards have."""
        shutil.copy(_LENT / module, self.folder)

    @contextlib.contextmanager
    def running(self, example: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Start an example, a path under examples/; kill it when the block ends.

        If it is a folder, its boot.py and main.py run as at a board's start.
        """
        if (EXAMPLES / example).is_dir():
            shutil.copytree(EXAMPLES / example, self.folder, dirs_exist_ok=True)
            script = self.folder / "start.py"
            script.write_text("for name in 'boot.py', 'main.py': exec(open(name).read())\n")
        else:
            script = self.folder / example
            if not script.exists():  # a test may have changed it there
                shutil.copy(EXAMPLES / example, script)
        client = self._interpreter.client
        environment = [
            f"MICROPYPATH={self.folder}:{client}:.frozen",
            f"PYTHONPATH={client}",
            "PYTHONUNBUFFERED=1",
            "PYTHONDONTWRITEBYTECODE=1",
        ]
        command = [*self._interpreter.command, str(script)]
        process = spawn(["env", "-C", str(self.folder), *environment, *command])
        try:
            yield process
            assert process.poll() in (None, 0, -signal.SIGKILL), "the example failed"
        finally:
            process.kill()
            sys.stderr.write(said(process))  # pytest shows it if the test fails


def said(process: "subprocess.Popen[bytes]") -> str:
    """Wait for the end of a process, and return what of its output was not yet read."""
    if process.stdout is None or process.stdout.closed:
        return ""
    out, err = process.communicate(timeout=WAIT_S)
    return (out + err).decode()


def has_said(process: "subprocess.Popen[bytes]") -> bool:
    """Say whether there is output that was not yet read."""
    return bool(select.select([process.stdout], [], [], 0)[0])


def lines_until(process: "subprocess.Popen[bytes]", start: str) -> list[str]:
    """Read lines until one begins with ``start``; return them all."""
    lines = []
    while not lines or not lines[-1].startswith(start):
        lines.append(line_of(process, WAIT_S).rstrip("\n"))
    return lines


def fmqp(port: int) -> Client:
    """A program on a PC that is connected to the broker."""
    client: list[Client] = []

    def dial() -> bool:
        with contextlib.suppress(Exception):
            found = connect(f"fmqp://127.0.0.1:{port}")
            client.append(found)
        return bool(client)

    until(dial)
    return client[0]


def received(client: Client, topic: str, payload: bytes | None = None) -> Message:
    """Return the next message on ``topic``, with ``payload`` if one is named."""
    while True:
        message = client.receive(timeout_s=WAIT_S)
        assert message is not None, f"no message on {topic}"
        if message.topic == topic and payload in (None, message.payload):
            return message


@contextlib.contextmanager
def bridge(serial: str, port: int) -> Iterator[None]:
    """Run ``motemq bridge`` between a serial port and the broker."""
    command = [sys.executable, "-m", "motemq", "bridge", "--serial", serial]
    process = spawn([*command, "--to", f"fmqp://127.0.0.1:{port}"])
    try:
        while ": bridging " not in line_of(process, WAIT_S):
            continue  # what may come before
        yield
    finally:
        process.kill()
        sys.stderr.write(said(process))


class SerialLine:
    """A wire: what is written to one of its two ends can be read from the other.

    The board's end is the TCP port ``board_port``, the computer's the pyserial URL ``url``.
    """

    def __init__(self) -> None:
        self._ends = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.board_port, port = (end.getsockname()[1] for end in self._ends)
        self.url = f"socket://127.0.0.1:{port}"
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._carry)

    def __enter__(self) -> "SerialLine":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.close()
        self._thread.join(WAIT_S)
        for sock in (*self._ends, self._stopped):
            sock.close()

    def _carry(self) -> None:
        joined: list[socket.socket | None] = [None, None]
        while True:
            waiting = [*self._ends, *filter(None, joined), self._stopped]
            for ready in select.select(waiting, [], [])[0]:
                if ready is self._stopped:
                    for sock in filter(None, joined):
                        sock.close()
                    return
                if ready in self._ends:
                    joined[self._ends.index(ready)] = ready.accept()[0]
                    continue
                side = joined.index(ready)
                other = joined[1 - side]
                data = b""
                with contextlib.suppress(OSError):
                    data = ready.recv(4096)
                if not data:
                    ready.close()
                    joined[side] = None
                elif other:  # else nobody is at the other end of the wire
                    with contextlib.suppress(OSError):
                        other.sendall(data)
