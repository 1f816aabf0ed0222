"""The emulator process: Node running ``main.mjs``, spoken to in JSON lines."""

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from boards.virtual.rp2040 import node

_MAIN = Path(__file__).with_name("main.mjs")
_MAX_LINE_BYTES = 65536
_STOP_S = 2.0

Message = Mapping[str, Any]


class Emulator:
    """One Node process for the life of the board; resets happen inside it, its ports stay.

    ``on_event`` gets what it tells unasked, e.g. ``{"event": "bootsel"}``.
    """

    def __init__(self, flash: Path, uid: str, on_event: Callable[[Message], None]) -> None:
        tools = node.find_node()
        package = node.ensure_rp2040js(tools)
        self.console, inner = socket.socketpair()
        with inner:
            self._process = subprocess.Popen(
                # Node gets the console as descriptor 3; the shell does nothing but place it there.
                [
                    "/bin/sh",
                    "-c",
                    f'exec "$0" "$@" 3<&{inner.fileno()}',
                    tools.node,
                    _MAIN,
                    flash,
                    uid,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[inner.fileno()],
                env={**os.environ, "RP2040JS": str(package), "NODE_OPTIONS": ""},
            )
        if self._process.stdin is None or self._process.stdout is None:
            raise node.NodeError("node was started without pipes")
        self._input, self._output = self._process.stdin, self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._on_event = on_event
        self._waiting: dict[int, Callable[[Message], None]] = {}
        self._next_id = 1
        self._buffer = b""

    def fileno(self) -> int:
        """Descriptor to watch for reading; call ``readable`` when it is."""
        return self._output.fileno()

    def request(
        self, what: str, then: Callable[[Message], None] | None = None, **arguments: Any
    ) -> None:
        """Ask for something; ``then`` gets the answer (``ok``, ``error`` or results)."""
        number = self._next_id
        self._next_id += 1
        if then:
            self._waiting[number] = then
        line = json.dumps({"id": number, "do": what, **arguments}).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):  # it has ended; ``readable`` says so
            self._input.write(line)
            self._input.flush()

    def readable(self) -> bool:
        """Take what the process said. Returns False when it has ended."""
        try:
            data = os.read(self._output.fileno(), _MAX_LINE_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "event" in message:
                self._on_event(message)
            elif then := self._waiting.pop(message["id"], None):
                then(message)
        return True

    def stop(self) -> None:
        """End the process; its standard input is its life line."""
        with contextlib.suppress(BrokenPipeError):  # it has ended already: what is wanted
            self._input.close()
        try:
            self._process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()
