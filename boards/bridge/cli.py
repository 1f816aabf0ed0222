"""``motemq bridge``: join a serial port to a broker, in raw mode."""

import signal
import threading
from types import FrameType
from urllib.parse import urlsplit

import click

from boards.bridge.raw import RawBridge
from boards.serial_port import PortError

_POLL_S = 0.2


def _broker_address(
    _context: click.Context, _parameter: click.Parameter, value: str
) -> tuple[str, int]:
    try:
        parts = urlsplit(value)
        if parts.scheme and parts.hostname and parts.port:
            return parts.hostname, parts.port
    except ValueError as error:  # urlsplit's own words: the port is no number, or out of range
        raise click.BadParameter(f"{value!r}: {error}") from None
    raise click.BadParameter(f"{value!r} is not PROTOCOL://HOST:PORT, e.g. fmqp://127.0.0.1:8765")


@click.command()
@click.option(
    "--serial", "serial_url", required=True, metavar="URL", help="Device or pyserial URL."
)
@click.option("--baud", default=921600, show_default=True, type=click.IntRange(min=300))
@click.option(
    "--to",
    "broker",
    required=True,
    callback=_broker_address,
    metavar="fmqp://HOST:PORT",
    help="The broker. The bytes are not looked at: lightmq:// works alike.",
)
@click.option(
    "--silence",
    "silence_s",
    default=2.0,
    show_default=True,
    type=click.FloatRange(min=0.05),
    metavar="SECONDS",
    help="Close the TCP session when the board sent nothing for so long.",
)
def command(serial_url: str, baud: int, broker: tuple[str, int], silence_s: float) -> None:
    """Join a serial port to a broker: a transparent pipe (raw mode).

    The first byte of the board opens a TCP connection; SECONDS of silence close it. A port or
    broker that goes away is tried again.

    Limits of raw mode: a serial line has no connection, so a board must send keepalives more
    often than the silence; a board reset within the silence goes on in its old stream; a byte
    lost on the line shifts all FMQP frames after it; a board is not told that the broker closed.

    Exit codes: 0 terminated, 1 the serial port cannot be opened, 2 usage, 130 interrupted.
    """
    done = threading.Event()
    received: list[int] = []

    def _on_signal(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        done.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _on_signal)
    host, port = broker
    bridge = RawBridge(
        serial_url, baud, host, port, silence_s=silence_s, report=lambda line: click.echo(line)
    )
    try:
        with bridge:
            click.echo(f"bridging {serial_url} at {baud} baud to {host}:{port}")
            while not done.wait(_POLL_S) and bridge.running:
                continue
    except PortError as error:
        raise click.ClickException(str(error)) from None
    counters = bridge.counters
    click.echo(
        f"{counters.sessions} sessions, {counters.to_broker_bytes} bytes to the broker, "
        f"{counters.to_board_bytes} to the board, {counters.dropped_bytes} dropped"
    )
    if signal.SIGINT in received:
        raise SystemExit(130)
