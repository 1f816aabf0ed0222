"""A serial line in real time, in a process of its own.

``python -m benchmarks.link.real_line --baud BITS_PER_S`` prints one JSON line: ``serial``, a
pseudo-terminal, is the bridge's end, ``port`` on 127.0.0.1 the board's. It carries until its
standard input ends. A board that connects anew takes the place of the one before.
"""

import contextlib
import ctypes
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
import tty
from collections.abc import Iterator
from dataclasses import dataclass

import click

from benchmarks.link.line import Direction, Faults

_SLICE_S = 0.001
_READ = 1024
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@click.command()
@click.option("--baud", default=115200, type=click.IntRange(min=300))
@click.option("--flip", default=0.0, help="Chance that a byte has a flipped bit.")
@click.option("--lose", default=0.0, help="Chance that a byte is lost.")
@click.option("--double", default=0.0, help="Chance that a byte comes twice.")
@click.option("--noise-every", default=0.0, help="Mean seconds between bursts of noise.")
@click.option("--text-every", default=0.0, help="Mean seconds between texts of the board's REPL.")
@click.option("--seed", default=1)
def command(
    baud: int,
    flip: float,
    lose: float,
    double: float,
    noise_every: float,
    text_every: float,
    seed: int,
) -> None:
    """Carry bytes between a pseudo-terminal and a TCP port, as a serial line does."""
    faults = Faults(flip, lose, double, noise_every, text_every_s=text_every)
    master, slave = os.openpty()
    tty.setraw(slave)
    os.set_blocking(master, False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        click.echo(json.dumps({"serial": os.ttyname(slave), "port": port}))
        _carry(master, listener, random.Random(seed), baud, faults)


def _carry(
    master: int, listener: socket.socket, rng: random.Random, baud: int, faults: Faults
) -> None:
    to_host = Direction(rng, baud, faults)
    to_board = Direction(rng, baud, faults)
    board: socket.socket | None = None
    start = time.monotonic()
    while True:
        reading: list[socket.socket | int] = [listener, sys.stdin.fileno()]
        if to_board.room:
            reading.append(master)
        if board is not None and to_host.room:
            reading.append(board)
        busy = to_host.busy or to_board.busy
        readable, _, _ = select.select(reading, [], [], _SLICE_S if busy else 0.02)
        if sys.stdin.fileno() in readable:
            return  # our parent has gone
        if listener in readable:
            board, _ = listener.accept()
            board.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            board.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            if master in readable:
                to_board.write(os.read(master, min(_READ, to_board.room)))
        if board is not None and board in readable:
            try:
                data = board.recv(min(_READ, to_host.room))
            except OSError:
                data = b""
            if data:
                to_host.write(data)
            else:
                board = None
        now = time.monotonic() - start
        for direction in (to_host, to_board):
            direction.advance(now)
        with contextlib.suppress(BlockingIOError):
            while data := to_host.peek(_READ):
                to_host.read(os.write(master, data))
        if board is not None:
            with contextlib.suppress(OSError):
                while data := to_board.peek(_READ):
                    to_board.read(board.send(data))


@dataclass(frozen=True, slots=True)
class RealLine:
    """A running line: the bridge's device, the board's TCP port."""

    serial: str
    port: int


@contextlib.contextmanager
def real_line(baud: int, *options: str) -> Iterator[RealLine]:
    """Run a line while the block lasts; it dies with us. ``options``: of the command."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.link.real_line", "--baud", str(baud), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_die_with_parent,
    ) as process:
        try:
            said = process.stdout.readline() if process.stdout else ""
            yield RealLine(**json.loads(said))
        finally:
            process.communicate()  # closes its standard input, which ends it


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    command()
