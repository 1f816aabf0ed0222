"""Commands of the rig in front of a USB bus with virtual boards on it (see ``bus``)."""

import ctypes
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from boards.virtual.board import VirtualBoard
from tests.boards.usb_desk.bus import Plug, encode

_CLONE_NEWNS = 0x00020000
_LIBC = ctypes.CDLL(None, use_errno=True)
_COMMAND_S = 120.0
_LEAVE = b"\x1d\x03"  # Ctrl-], which is mpremote's, and Ctrl-C, which is everybody's
PICO, BOOTSEL, CP210X = (0x2E8A, 0x0005), (0x2E8A, 0x0003), (0x10C4, 0xEA60)


def pico(board: VirtualBoard, port: str, back_s: float = 0.3) -> Plug:
    """A Pico: its own USB, and that of its boot ROM, whose serial number is every chip's."""
    return Plug(
        port,
        board.address.control_port,
        _console(board),
        PICO,
        board.address.uid,
        "ttyACM",
        BOOTSEL,
        "E0C9125B0D9B",
        str(board.address.bootsel_dir),
        back_s,
    )


def adapter(board: VirtualBoard, port: str, serial: str = "0001") -> Plug:
    """A board behind a CP210x, as it leaves the factory: they all have one serial number."""
    control, console = board.address.control_port, _console(board)
    return Plug(port, control, console, CP210X, serial, "ttyUSB", has_lines=True)


def own_usb(board: VirtualBoard, port: str) -> Plug:
    """A chip with USB of its own, as an ESP32-S3: its ROM writes its MAC address with colons."""
    mac = board.address.uid
    return Plug(
        port,
        board.address.control_port,
        _console(board),
        (0x303A, 0x4001),
        mac,
        "ttyACM",
        (0x303A, 0x1001),
        ":".join(mac[at : at + 2] for at in range(0, 12, 2)).upper(),
        has_lines=True,
    )


class UsbDesk:
    """A running bus; ``rig`` runs a command in front of it, in ``folder``, with ``environment``."""

    def __init__(self, folder: Path, bus: "subprocess.Popen[str]", log: Path) -> None:
        self.folder, self._bus, self._log = folder, bus, log
        library = log.parent / "modem_lines.so"
        source = Path(__file__).with_name("modem_lines.c")
        subprocess.run(
            ["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source, "-ldl"],
            check=True,
        )
        home = folder / "home"
        home.mkdir()
        lines = {"LD_PRELOAD": str(library), "USB_DESK_LINES": str(log.parent / "lines")}
        self.environment = {**os.environ, **lines, "HOME": str(home)}

    def rig(self, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        with self._start(arguments) as process:
            said, _ = process.communicate(timeout=_COMMAND_S)
        return subprocess.CompletedProcess(arguments, process.returncode, said)

    def rig_until(self, text: str, *arguments: str | Path) -> str:
        """Run a command on a terminal until it has said that, leave it; return what it said."""
        ours, its = pty.openpty()
        with subprocess.Popen(
            ["setsid", "--ctty", *self._command(arguments)],
            stdin=its,
            stdout=its,
            stderr=its,
            preexec_fn=self._enter,
            env=self.environment,
        ):
            os.close(its)
            said = b""
            until = time.monotonic() + _COMMAND_S
            try:
                while text.encode() not in said and time.monotonic() < until:
                    if select.select([ours], [], [], 0.5)[0]:
                        said += os.read(ours, 65536)
                os.write(ours, _LEAVE)
                while select.select([ours], [], [], _COMMAND_S)[0]:
                    said += os.read(ours, 65536)
            except OSError:
                pass  # EIO: it has ended
            os.close(ours)
        return said.decode(errors="replace")

    def _start(self, arguments: Sequence[str | Path]) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self._command(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=self._enter,
            env=self.environment,
        )

    def _command(self, arguments: Sequence[str | Path]) -> list[str]:
        return [sys.executable, "-m", "motemq", "rig", *map(str, arguments)]

    def _enter(self) -> None:
        namespace = os.open(f"/proc/{self._bus.pid}/ns/mnt", os.O_RDONLY)
        if _LIBC.setns(namespace, _CLONE_NEWNS):
            os._exit(125)
        os.close(namespace)
        os.chdir(self.folder)

    def bind(self, file: Path, place: str) -> None:
        """Have commands see ``file`` at ``place``."""
        subprocess.run(["mount", "--bind", file, place], check=True, preexec_fn=self._enter)

    def hub(self, port: str) -> str:
        """Return a ``[power]`` table that switches ``port``."""
        words = [str(self._log.parent / "hub"), port]
        return (
            '[power]\ndriver = "command"\ncuts_vbus = true\noff_s = 0.2\n'
            f"on = {[*words, 'on']!r}\noff = {[*words, 'off']!r}\n"
        ).replace("'", '"')

    def seen(self) -> list[str]:
        """Return each time that a device came: its port, USB id and name in /dev."""
        return self._log.read_text().splitlines()


@contextmanager
def usb_desk(folder: Path, *plugs: Plug) -> Iterator[UsbDesk]:
    """Start a bus with these boards. ``folder``: for it and for the desk's own files."""
    where = folder / "bus"
    where.mkdir(parents=True)
    desk = folder / "desk"
    desk.mkdir()
    log = where / "log"
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, "-m", "tests.boards.usb_desk.bus", str(where), encode([*plugs])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=Path(__file__).parents[3],
        ) as bus,
    ):
        try:
            assert bus.stdout is not None
            assert bus.stdout.readline() == "ready\n", log.read_text()
            yield UsbDesk(desk, bus, log)
        finally:
            assert bus.stdin is not None
            bus.stdin.close()
            bus.wait(20)


def _console(board: VirtualBoard) -> str:
    return board.address.serial_urls["socket"].removeprefix("socket://")
