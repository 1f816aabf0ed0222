"""Our stdin, read without going deaf to the connection meanwhile."""

import os
import queue
import select
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

import click

MOST_BYTES = 64 * 1024 * 1024  # of one message; FMQP could carry 4 GiB, memory is the limit
_CHUNK_BYTES = 64 * 1024
_LOOK_S = 0.5  # a lost connection is noticed this soon, while nothing comes in


class StandardInput:
    """``watch`` is called at least every half second: to answer pings, to notice a lost broker."""

    def __init__(self, watch: Callable[[], None]) -> None:
        self._watch = watch

    def lines(self) -> Iterator[bytes]:
        """Each line without its end, as soon as it is there; also a last one without an end.

        Raises ``UsageError`` for a line above 64 MiB or an input that cannot be read.
        """
        rest = bytearray()
        for chunk in self._chunks():
            first, *others = chunk.split(b"\n")
            rest += first
            for following in others:
                yield bytes(rest.removesuffix(b"\r"))
                rest[:] = following
            if len(rest) > MOST_BYTES:
                raise click.UsageError(f"a line on stdin is longer than {MOST_BYTES >> 20} MiB")
        if rest:
            yield bytes(rest)

    def whole(self) -> bytes:
        """Everything until the end. Raises ``UsageError`` above 64 MiB."""
        everything = bytearray()
        for chunk in self._chunks():
            everything += chunk
            if len(everything) > MOST_BYTES:
                raise click.UsageError(f"stdin is more than {MOST_BYTES >> 20} MiB")
        return bytes(everything)

    def until_end(self) -> None:
        """Return when it has ended; what comes is thrown away."""
        for _ in self._chunks():
            pass

    def _chunks(self) -> Iterator[bytes]:
        if sys.stdin is None:  # closed by our parent: descriptor 0 may be anything now
            raise click.UsageError("stdin is closed; give it a file, a pipe or /dev/null")
        for read in _ready(sys.stdin.fileno()):
            self._watch()
            if read is None:
                continue
            chunk = read()
            if not chunk:
                return
            yield chunk


_Read = Callable[[], bytes]


def _ready(file: int) -> Iterator[_Read | None]:
    """Give what reads, as soon as there is something or the end; None each half second without.

    What it returns is the next piece, b"" at the end. It raises ``UsageError``.
    """
    if sys.platform == "win32":
        yield from _ready_by_thread(file)
        return
    poller = select.poll()
    poller.register(file, select.POLLIN)
    while True:
        yield (lambda: _read(file)) if poller.poll(int(_LOOK_S * 1000)) else None


def _ready_by_thread(file: int) -> Iterator[_Read | None]:
    """Windows can wait for sockets only."""
    pieces: queue.Queue[_Read] = queue.Queue(1)

    def read() -> None:
        chunk = b"?"
        while chunk:
            try:
                chunk = _read(file)
            except click.UsageError as error:
                pieces.put(partial(_fail, error))
                return
            pieces.put(partial(bytes, chunk))

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while True:
        try:
            yield pieces.get(timeout=_LOOK_S)
        except queue.Empty:
            yield None


def _read(file: int) -> bytes:
    try:
        return os.read(file, _CHUNK_BYTES)
    except OSError as error:
        raise click.UsageError(f"stdin cannot be read: {error.strerror}") from error


def _fail(error: Exception) -> bytes:
    raise error
