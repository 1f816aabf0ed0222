"""Requests and answers over a unix socket of packets: a JSON object each, and descriptors."""

import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKET_BYTES = 65536
_MAX_DESCRIPTORS = 4

Message = Mapping[str, Any]


def listen(path: Path) -> socket.socket:
    """Serve at ``path``, which only its owner may open. What lies there of old is removed."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    before = os.umask(0o177)
    try:
        with _short(path) as name:
            listener.bind(name)
    finally:
        os.umask(before)
    listener.listen()
    listener.setblocking(False)
    return listener


def connect(path: Path, timeout_s: float) -> socket.socket:
    """Connect to whoever serves at ``path``. Raises ``OSError``."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.settimeout(timeout_s)
    try:
        with _short(path) as name:
            link.connect(name)
    except BaseException:
        link.close()
        raise
    return link


def send(link: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send one message. Raises ``OSError``."""
    data = json.dumps(dict(message)).encode()
    socket.send_fds(link, [data], list(descriptors))


def receive(link: socket.socket) -> tuple[Message, list[int]] | None:
    """Return one message and the descriptors that came with it, which are the caller's to close.

    None when the other end is gone. Raises ``OSError``, ``ValueError`` for what is no message.
    """
    data, descriptors, _, _ = socket.recv_fds(link, PACKET_BYTES, _MAX_DESCRIPTORS)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    if not data:
        return None
    try:
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError("not a JSON object")
    except ValueError:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return message, descriptors


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name for ``path`` that fits into the 107 bytes that an address has room for."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
