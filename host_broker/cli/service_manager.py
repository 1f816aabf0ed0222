"""What systemd is told, if it is the one that started us (sd_notify(3)); the unit that it reads."""

import contextlib
import os
import shlex
import socket
import stat
import sys
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

_UNIT = "motemq-broker.service"
_PLACE = "@MOTEMQ@"
_HOMES = (Path("/home"), Path("/root"), Path("/run/user"))  # systemd.exec(5), ProtectHome=


def notify(state: str) -> None:
    """Say ``READY=1`` or ``STOPPING=1``; nobody hears it without a service manager."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where.startswith(("/", "@")):
        return
    address = "\0" + where[1:] if where.startswith("@") else where
    with (
        contextlib.suppress(OSError),  # it is only told, and does not answer
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
    ):
        sock.sendto(state.encode(), address)


def unit() -> str:
    """Return the systemd unit, with the path of the program that is running."""
    text = resources.files("host_broker").joinpath("systemd", _UNIT).read_text(encoding="utf-8")
    return text.replace(_PLACE, " ".join(map(_quoted, _command())))


def out_of_reach() -> str:
    """Return what a service of the unit could not reach of this installation, and why; "": nothing.

    It is a user of its own, for whom home directories are empty.
    """
    ours = [_command()[0], sys.executable, sys.prefix, sys.base_prefix, __file__]
    return hidden(Path(each).absolute() for each in ours)


def hidden(paths: Iterable[Path]) -> str:
    """Return which of these files or folders another user without a home cannot reach, and why."""
    for path in paths:
        for each in (path, path.resolve()):
            if home := next((home for home in _HOMES if each.is_relative_to(home)), None):
                return f"{each} is in {home}"
            for folder in each.parents:
                if not folder.stat().st_mode & stat.S_IXOTH:
                    return f"{each} is in {folder}, which others may not enter"
    return ""


def _command() -> list[str]:
    program = Path(sys.argv[0]).absolute()
    return [str(program)] if program.name == "motemq" else [sys.executable, "-m", "motemq"]


def _quoted(word: str) -> str:
    """Return a word as systemd reads it."""
    plain = shlex.quote(word) == word
    return word if plain else '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
