"""A board that runs an example: a folder with what a user would copy there, and an interpreter."""

import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from host_broker.client import FmqpClient, LightmqClient, Message, connect
from tests.client_upy.interpreters import CLIENT, Interpreter
from tests.host_broker.net.broker_process import line_of, spawn, until

EXAMPLES = CLIENT / "examples"
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

    @contextlib.contextmanager
    def running(self, example: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Start an example, a path under examples/; kill it when the block ends."""
        script = self.folder / Path(example).name
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
            print(said(process))  # pytest shows it if the test fails


def said(process: "subprocess.Popen[bytes]") -> str:
    """Wait for the end of a process, and return what of its output was not yet read."""
    if process.stdout is None or process.stdout.closed:
        return ""
    out, err = process.communicate(timeout=WAIT_S)
    return (out + err).decode()


def lines_until(process: "subprocess.Popen[bytes]", start: str) -> list[str]:
    """Read lines until one begins with ``start``; return them all."""
    lines = []
    while not lines or not lines[-1].startswith(start):
        lines.append(line_of(process, WAIT_S).rstrip("\n"))
    return lines


def fmqp(port: int) -> FmqpClient:
    """A program on a PC that is connected to the broker."""
    client: list[FmqpClient] = []

    def dial() -> bool:
        with contextlib.suppress(Exception):
            found = connect(f"fmqp://127.0.0.1:{port}")
            assert not isinstance(found, LightmqClient)
            client.append(found)
        return bool(client)

    until(dial)
    return client[0]


def received(client: FmqpClient, topic: str, payload: bytes | None = None) -> Message:
    """Return the next message on ``topic``, with ``payload`` if one is named."""
    while True:
        message = client.receive(timeout_s=WAIT_S)
        assert message is not None, f"no message on {topic}"
        if message.topic == topic and payload in (None, message.payload):
            return message


def bridge(serial: str, port: int) -> "subprocess.Popen[bytes]":
    """Start ``motemq bridge`` between a serial port and the broker; return when it is ready."""
    command = [sys.executable, "-m", "motemq", "bridge", "--serial", serial]
    process = spawn([*command, "--to", f"fmqp://127.0.0.1:{port}"])
    lines_until(process, "bridging ")
    return process
