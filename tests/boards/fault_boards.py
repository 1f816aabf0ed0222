"""Serial lines with a board, or the want of one, at the far end."""

import os
import pty
import select
import socket
import subprocess
import threading
import time
import tty
from pathlib import Path
from typing import Self

_REPL_CODE = "import serialrepl\nserialrepl.open(False)\nwhile True:\n serialrepl.repl()\n"


class SilentBoard:
    """A pty whose far end reads everything and says nothing."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        tty.setraw(self.slave)
        self.url = os.ttyname(self.slave)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def __enter__(self) -> Self:
        os.set_blocking(self.master, False)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.vanish()

    def vanish(self) -> None:
        """Pull the cable."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join(60)
            os.close(self.master)
            os.close(self.slave)

    def _live(self) -> None:
        while not self._stop.wait(0.005):
            try:
                self.hear(os.read(self.master, 4096))
            except BlockingIOError:
                self.hear(b"")

    def hear(self, data: bytes) -> None:
        """Get what was sent, b"" for nothing."""


class BabblingBoard(SilentBoard):
    """Prints without end, whatever it is told."""

    def hear(self, data: bytes) -> None:
        try:
            os.write(self.master, b"sensor 1: 21.5\r\n" * 8)
        except BlockingIOError:
            return  # nobody reads: the line is full


class VanishingBoard(SilentBoard):
    """Answers as a raw REPL would, and is unplugged when code arrives."""

    def hear(self, data: bytes) -> None:
        if b"\x01" in data and b"\x05" not in data:
            os.write(self.master, b"raw REPL; CTRL-B to exit\r\n>")
        elif b"\x05" in data:
            self._stop.set()
            os.close(self.master)
            os.close(self.slave)


class BootingBoard(SilentBoard):
    """Boots for so long that it is asked twice for its raw REPL, and then does both."""

    _BOOT_S = 3.5
    _EACH_S = 0.15
    _RAW = b"raw REPL; CTRL-B to exit\r\n>"

    def __init__(self) -> None:
        super().__init__()
        self._at = time.monotonic() + self._BOOT_S
        self._asked = 0

    def hear(self, data: bytes) -> None:
        if b"\x05A\x01" in data:
            # In order; and it knows no raw paste.
            os.write(self.master, self._RAW * self._asked + b"R\x00")
            self._asked = 0
        elif b"\x04" in data:
            os.write(self.master, b"OKhi\r\n\x04\x04>")
        else:
            self._asked += data.count(b"\x01")
        if self._asked and time.monotonic() >= self._at:
            self._asked -= 1
            self._at = time.monotonic() + self._EACH_S
            os.write(self.master, self._RAW)


class UnixBoard:
    """MicroPython's unix port with its raw REPL on a pty, which ``url`` leads to by TCP."""

    def __init__(self, interpreter: Path, folder: Path) -> None:
        self._master, slave = pty.openpty()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"socket://127.0.0.1:{self._listener.getsockname()[1]}"
        self._process = subprocess.Popen(
            [str(interpreter), "-c", _REPL_CODE],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            # Ctrl-C becomes a signal only on the controlling terminal.
            preexec_fn=lambda: os.login_tty(slave),
        )
        os.close(slave)
        self._await_prompt()  # an interrupt before it would end the interpreter
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join(60)
        self._process.kill()
        self._process.wait(60)
        self._listener.close()
        os.close(self._master)

    def _await_prompt(self) -> None:
        said = b""
        while not said.endswith(b">>> "):
            if not select.select([self._master], [], [], 20)[0]:
                raise TimeoutError(f"no prompt after {said!r}")
            said += os.read(self._master, 4096)

    def _serve(self) -> None:
        while not self._stop.is_set():
            if select.select([self._listener], [], [], 0.05)[0]:
                client, _ = self._listener.accept()
                with client:
                    self._relay(client)

    def _relay(self, client: socket.socket) -> None:
        while not self._stop.is_set():
            ready, _, _ = select.select([client, self._master], [], [], 0.05)
            try:
                if client in ready:
                    data = client.recv(4096)
                    if not data:
                        return
                    # Else pyserial's next small write waits 40 ms for the acknowledgement of this.
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                    os.write(self._master, data)
                if self._master in ready:
                    client.sendall(os.read(self._master, 4096))
            except ConnectionError:
                return  # the program at the other end has left
