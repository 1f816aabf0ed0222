"""What systemd is told, if it is the one that started us (sd_notify(3)); the unit that it reads."""

import contextlib
import os
import shlex
import socket
import sys
from importlib import resources
from pathlib import Path

_UNIT = "motemq-broker.service"
_PLACE = "@MOTEMQ@"


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
    program = Path(sys.argv[0]).absolute()
    words = [str(program)] if program.name == "motemq" else [sys.executable, "-m", "motemq"]
    return text.replace(_PLACE, " ".join(map(_quoted, words)))


def _quoted(word: str) -> str:
    """Return a word as systemd reads it."""
    plain = shlex.quote(word) == word
    return word if plain else '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
