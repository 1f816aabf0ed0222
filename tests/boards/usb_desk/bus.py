"""A USB bus with virtual boards on it, as the kernel and udev show one: ``python -m`` this as root.

It lives in a mount namespace of its own, which who looks at the bus has to enter. There /sys/bus
has the devices, /dev their ports, and a boot loader's drive is mounted. A board that resets, or
waits to be flashed, goes away as on a real desk: its port hangs up, its name in /dev is free, and
it comes back later, under another name, another address and the USB id of what then runs.

First argument: a folder. Second: the plugs, JSON (``Plug``). Prints ``ready``; ends with its stdin.
``FOLDER/hub NAME on|off`` switches the power of a port. At the datagram socket ``FOLDER/lines`` it
hears of DTR and RTS (``modem_lines.c``), which reset an ESP32 as two transistors do.
"""

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from boards.virtual.control import BoardControl, BoardError
from boards.virtual.esp32.reset_lines import ResetLines, Strap
from boards.virtual.pty_relay import PtyRelay
from boards.virtual.rp2040.bootsel import INFO
from tests.boards.fake_usb import plug

_LOOK_S = 0.02
_EN_RISES_S = 0.005  # a capacitor's time: what a program does afterwards comes too late
_CLONE_NEWNS = 0x00020000
_UF2_BLOCK = 512
_HUB = """#!/bin/sh
# Switch the port $1 {on, off} as $2 says, and return when that is done.
echo "$2" > "{folder}/ports/.$1" && mv "{folder}/ports/.$1" "{folder}/ports/$1.wanted"
while [ "$(cat "{folder}/ports/$1.is")" != "$2" ]; do sleep 0.05; done
"""


@dataclass(frozen=True, slots=True)
class Plug:
    """One board and the port that it is in. ``loader``: its other USB id, None if it has none."""

    name: str  # of the port, e.g. 1-1.2
    control_port: int
    console: str  # HOST:PORT
    running: tuple[int, int]
    serial: str
    tty: str  # ttyACM or ttyUSB
    loader: tuple[int, int] | None = None
    loader_serial: str = ""
    bootsel_dir: str = ""
    back_s: float = 0.3  # until it is on the bus again
    mount_s: float = 0.5  # and from then on until its drive is mounted
    has_lines: bool = False  # DTR and RTS press EN and IO0


class _Port:
    def __init__(self, bus: "_Bus", plug: Plug) -> None:
        self._bus, self._plug = bus, plug
        self._control = BoardControl(plug.control_port)
        self._shown: str | None = None
        self._boots = -1
        self._back_at = 0.0
        self._relay: PtyRelay | None = None
        self._tty: Path | None = None
        self._drive: Path | None = None
        self._mount_at = 0.0
        self._on = True
        self._sysfs: Path | None = None
        self._lines = ResetLines(none_s=_EN_RISES_S)
        bus.say(plug.name, on=True)

    @property
    def terminal(self) -> str:
        """The name of its pseudo-terminal, "" while it has none."""
        return self._relay.path if self._relay is not None else ""

    def set_lines(self, *, dtr: bool, rts: bool) -> None:
        if not self._plug.has_lines or not self._on:
            return
        self._strap(self._lines.set(time.monotonic(), dtr=dtr, rts=rts))
        if not dtr and not rts and (due := self._lines.due_at) is not None:
            time.sleep(max(0.0, due - time.monotonic()))
            self._strap(self._lines.tick(due))

    def _strap(self, strap: Strap | None) -> None:
        if strap is Strap.LOAD:
            self._control.boot()
        elif strap is Strap.RUN:
            self._control.reset()

    def tick(self, now: float) -> None:
        self._switch(now)
        self._strap(self._lines.tick(now))
        state = self._control.state()
        runs = {"running": "running", "download": "loader", "bootsel": "loader"}
        wanted = runs.get(state["state"]) if self._on else None
        if wanted == "loader" and self._plug.loader is None:
            wanted = "running"
        was_reset = state["boots"] != self._boots and self._plug.loader is not None
        if self._shown is not None and (wanted != self._shown or was_reset):
            self._vanish()
            self._back_at = now + self._plug.back_s
        self._boots = state["boots"]
        if self._shown is None and wanted is not None and now >= self._back_at:
            self._appear(wanted, now)
        if self._relay is not None:
            self._relay.tick(now)
        if self._shown == "loader" and self._plug.bootsel_dir:
            self._serve_drive(now)

    def _switch(self, now: float) -> None:
        wanted = self._bus.wanted(self._plug.name)
        if wanted is None or wanted == self._on:
            return
        self._on = wanted
        if not wanted and self._shown is not None:
            self._vanish()
        self._control.power(on=wanted)
        self._back_at = now + self._plug.back_s
        self._bus.say(self._plug.name, on=wanted)

    def _appear(self, what: str, now: float) -> None:
        plugged = self._plug
        is_loader = what == "loader" and plugged.loader is not None
        has_drive = is_loader and bool(plugged.bootsel_dir)
        vid, pid = plugged.loader if is_loader and plugged.loader else plugged.running
        serial = plugged.loader_serial if is_loader else plugged.serial
        tty = "" if has_drive else self._bus.free_tty(plugged.tty)
        if not has_drive:
            host, _, port = plugged.console.rpartition(":")
            link = socket.create_connection((host, int(port)))
            self._relay = PtyRelay(self._bus.selector, link)
            self._tty = Path("/dev") / tty
            self._tty.symlink_to(self._relay.path)
        self._sysfs = plug(
            self._bus.sys,
            plugged.name,
            vid=vid,
            pid=pid,
            serial=serial,
            tty=tty,
            disk="sd" + plugged.name.translate({45: 97, 46: 98}) if has_drive else "",
            address=self._bus.next_address(),
        )
        self._shown = what
        self._mount_at = now + plugged.mount_s
        _log(f"{plugged.name}: {vid:04x}:{pid:04x} {tty}")

    def _vanish(self) -> None:
        name = self._plug.name
        links = self._bus.sys / "bus/usb/devices"
        for link in (links / f"{name}:1.0", links / name):
            link.unlink()
        if self._sysfs is not None:
            shutil.rmtree(self._sysfs)
        if self._tty is not None:
            self._tty.unlink()
            self._tty = None
        if self._relay is not None:
            self._relay.close()
            self._relay = None
        if self._drive is not None:
            subprocess.run(["umount", "-l", self._drive], check=True)
            self._drive.rmdir()
            self._drive = None
        self._shown = None

    def _serve_drive(self, now: float) -> None:
        if self._drive is None:
            if now >= self._mount_at:
                self._mount()
            return
        for path in self._drive.glob("*.uf2"):
            data = path.read_bytes()
            if len(data) >= _UF2_BLOCK:
                blocks = int.from_bytes(data[24:28], "little")
                if len(data) == blocks * _UF2_BLOCK:
                    (Path(self._plug.bootsel_dir) / path.name).write_bytes(data)
                    path.unlink()

    def _mount(self) -> None:
        name = self._plug.name
        drive = self._bus.folder / "mnt" / name
        drive.mkdir(parents=True)
        device = "/dev/sd" + name.translate({45: 97, 46: 98}) + "1"
        subprocess.run(["mount", "-t", "tmpfs", device, drive], check=True)
        (drive / "INFO_UF2.TXT").write_text(INFO)
        self._drive = drive


class _Bus:
    def __init__(self, folder: Path, plugs: list[Plug]) -> None:
        self.folder, self.sys = folder, folder / "sys"
        self.selector = selectors.DefaultSelector()
        self._addresses = 3
        self._numbers: dict[str, int] = {}
        (folder / "ports").mkdir()
        hub = folder / "hub"
        hub.write_text(_HUB.replace("{folder}", str(folder)))
        hub.chmod(0o755)
        self._ports = [_Port(self, each) for each in plugs]
        self._lines = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._lines.bind(str(folder / "lines"))
        self.selector.register(self._lines, selectors.EVENT_READ, self._lines_set)
        self.selector.register(sys.stdin, selectors.EVENT_READ, self._ended)
        self._is_over = False

    def run(self) -> None:
        while not self._is_over:
            now = time.monotonic()
            for port in self._ports:
                try:
                    port.tick(now)
                except BoardError as error:
                    _log(str(error))
            for key, events in self.selector.select(_LOOK_S):
                key.data(events)

    def _lines_set(self, _events: int) -> None:
        said, sender = self._lines.recvfrom(256)
        name, dtr, rts = said.decode().split()
        for port in self._ports:
            if port.terminal == name:
                port.set_lines(dtr=dtr == "1", rts=rts == "1")
        with contextlib.suppress(OSError):  # it has been killed meanwhile
            self._lines.sendto(b"!", sender)

    def free_tty(self, stem: str) -> str:
        """Return a name that was not the last one's: programs that went before may hold that."""
        self._numbers[stem] = (self._numbers.get(stem, -1) + 1) % 100
        return f"{stem}{self._numbers[stem]}"

    def next_address(self) -> int:
        self._addresses += 1
        return self._addresses

    def say(self, port: str, *, on: bool) -> None:
        (self.folder / "ports" / f"{port}.is").write_text("on" if on else "off")

    def wanted(self, port: str) -> bool | None:
        file = self.folder / "ports" / f"{port}.wanted"
        if not file.exists():
            return None
        wanted = file.read_text().strip() == "on"
        file.unlink()
        return wanted

    def _ended(self, _events: int) -> None:
        self._is_over = True


def _enter_new_namespace(folder: Path) -> None:
    """Give this process an own view of /dev and /sys/bus; nobody else sees it change."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    real, dev = folder / "real-dev", folder / "dev"
    for each in (real, dev, folder / "sys/bus/usb/devices"):
        each.mkdir(parents=True)
    mounts = [["--make-rprivate", "/"], ["--rbind", "/dev", real]]
    for words in mounts:
        subprocess.run(["mount", *words], check=True)
    for path in real.iterdir():
        if path.name in ("pts", "shm"):
            (dev / path.name).mkdir()
        elif path.name != "ptmx":
            (dev / path.name).symlink_to(path)
    (dev / "ptmx").symlink_to("pts/ptmx")
    for words in (
        ["--bind", dev, "/dev"],
        ["--bind", real / "pts", "/dev/pts"],
        ["--bind", real / "shm", "/dev/shm"],
        ["--bind", folder / "sys/bus", "/sys/bus"],
    ):
        subprocess.run(["mount", *words], check=True)


def _log(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def encode(plugs: list[Plug]) -> str:
    """Return the second argument."""
    return json.dumps([asdict(each) for each in plugs])


def main() -> None:
    folder = Path(sys.argv[1])
    plugs = []
    for row in json.loads(sys.argv[2]):
        ids = {key: tuple(row[key]) if row[key] else None for key in ("running", "loader")}
        plugs.append(Plug(**{**row, **ids}))
    _enter_new_namespace(folder)
    bus = _Bus(folder, plugs)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    bus.run()


if __name__ == "__main__":
    main()
