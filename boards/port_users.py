"""Who has a serial port open, read from /proc: the question behind most failed mornings.

psutil cannot answer it: its ``open_files`` lists regular files only.
"""

import contextlib
import os
import re
import socket
import sys
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from boards.network_line import SCHEMES
from host_broker.address import host_and_port

# In /proc/net/tcp{,6}: what connections are in.
_ESTABLISHED = "01"
_CLOSED_HERE_ONLY = ("04", "05")  # FIN-WAIT-1 and -2: by the program here, not yet by the server
_TABLES = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}
_SAID = re.compile(r"the port is in use by (\S+:\d+)")  # boards.bridge.expose says so
_WORDS = 3  # of a command line: its program and what it does, no more of other people's arguments
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class PortUser:
    """A process that has a port open; ``command`` is how its command line begins, printable."""

    pid: int
    command: str

    @property
    def text(self) -> str:
        """For people."""
        return f"process {self.pid} ({self.command})"


@dataclass(frozen=True, slots=True)
class Holders:
    """Who here has a port that a serial server serves to one at a time.

    ``programs``: those that are connected to it, for people. ``is_leaving``: none is, and the
    server has yet to see that the one that was has gone.
    """

    programs: tuple[str, ...]
    is_leaving: bool


def port_users(port: str) -> list[PortUser]:
    """Return the processes, we ourselves left out, that have ``port`` open, by their ids.

    ``port``: a device (links are followed), or a URL of a serial server: then who is connected to
    it. Of other URLs nobody is known. Without root only processes of one's own account are seen;
    without /proc nobody is.
    """
    if "://" in port:
        wanted = {f"socket:[{one.inode}]" for one in _ends(port) if one.state == _ESTABLISHED}
    else:
        wanted = {os.path.realpath(port)}
    return [
        PortUser(int(process.name), _command(process))
        for process in sorted(_processes(), key=lambda process: int(process.name))
        if process.name != str(os.getpid()) and _times_open(process, wanted)
    ]


def holders(url: str, said: str) -> Holders:
    """Look who has the port behind ``url``, after its server, which said ``said``, refused us.

    A program that ended has let go of its connection; its server, which may be busy, of the port
    only once it has seen that. Nothing is known of programs of other machines, nor without /proc.
    """
    ends = _ends(url)
    programs = [user.text for user in port_users(url)]
    for one in ends:
        if one.state == _ESTABLISHED:
            if _times_open(_PROC / "self", {f"socket:[{one.inode}]"}):
                programs.append("this very program")
            elif not programs:
                programs.append(f"the program at {one.near}")  # of another account
    named = _SAID.search(said)
    is_leaving = any(one.state in _CLOSED_HERE_ONLY for one in ends) or (
        # It was cut off rather than closed, and is in no table any more.
        named is not None and _is_of_here(named[1], url)
    )
    return Holders(tuple(programs), is_leaving and not programs)


def times_open(device: str) -> int:
    """Return how often a device is open, in this process and in others. As ``port_users``."""
    wanted = {os.path.realpath(device)}
    return sum(_times_open(process, wanted) for process in _processes())


def is_open_here(device: str) -> bool:
    """Return whether this very process has the device open."""
    return _times_open(_PROC / "self", {os.path.realpath(device)}) > 0


def running_programs(names: set[str], proc: Path = _PROC) -> dict[str, int]:
    """Return which of the programs ``names`` run, each with one process id."""
    found = {}
    for process in _processes(proc):
        with contextlib.suppress(OSError):
            name = (process / "comm").read_text().strip()
            if name in names:
                found[name] = int(process.name)
    return found


def _processes(proc: Path = _PROC) -> Iterator[Path]:
    return proc.glob("[0-9]*")


@dataclass(frozen=True, slots=True)
class _End:
    """Our end of a connection: ``HOST:PORT``, its state and inode as /proc has them."""

    near: str
    state: str
    inode: str


def _ends(url: str) -> list[_End]:
    """Return our ends of connections to a serial server, each once.

    The kernel gives a long table piece by piece: who comes meanwhile moves others, so that a line
    may be there twice.
    """
    found = []
    for family, address, port in _addresses(url):
        with contextlib.suppress(OSError):
            for line in _TABLES[family].read_text().splitlines()[1:]:
                row = line.split()
                if _address(family, row[2]) == (address, port):
                    near = host_and_port(*_address(family, row[1]))
                    found.append(_End(near, row[3], row[9]))
    return list(dict.fromkeys(found))


def _address(family: int, text: str) -> tuple[str, int]:
    """Read an address of the kernel's table: words of 32 bits as this machine has them."""
    host, _, port = text.partition(":")
    words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    return socket.inet_ntop(family, packed), int(port, 16)


def _addresses(url: str) -> list[tuple[socket.AddressFamily, str, int]]:
    if url.partition("://")[0] not in SCHEMES:
        return []
    with contextlib.suppress(OSError, ValueError):
        parts = urllib.parse.urlsplit(url)
        found = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
        return [(one[0], str(one[4][0]), int(one[4][1])) for one in found if one[0] in _TABLES]
    return []


def _is_of_here(end: str, url: str) -> bool:
    """Return whether ``end`` is of this machine: our way to the server begins at its host."""
    host = end.rpartition(":")[0].strip("[]")
    for family, address, port in _addresses(url):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect((address, port))  # sends nothing
            if way.getsockname()[0] == host:
                return _TABLES[family].exists()
    return False


def _times_open(process: Path, wanted: set[str]) -> int:
    count = 0
    try:
        with os.scandir(process / "fd") as entries:
            for entry in entries:
                # One that is closed meanwhile raises, and says nothing of the others.
                with contextlib.suppress(FileNotFoundError):
                    count += os.readlink(entry) in wanted
    except OSError:
        return 0  # it has ended, or belongs to another user
    return count


def _command(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "?"
    text = " ".join(word.decode(errors="replace") for word in words[:_WORDS] if word)
    return "".join(c if c.isprintable() else "?" for c in text[:120]) or "?"
