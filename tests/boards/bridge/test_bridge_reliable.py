"""``motemq bridge --mode reliable`` with the client of boards, on a line that others write to too.

The client runs on this interpreter; its UART is the master of a pseudo-terminal.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.ports import port_for_later
from tests.boards.bridge_process import running, status
from tests.boards.serial_board import DEADLINE_S, Board
from tests.host_broker.net.broker_process import BrokerProcess
from umotemq.fmqp import FmqpClient
from umotemq.reliable import Reliable
from umotemq.tcp import Tcp

_PATIENCE_MS = 8000  # of a link that is told nothing; told, it takes milliseconds


class _Uart:
    """A transport as umotemq.uart's, at the board's end of a line."""

    where = "pty"
    pollable = None

    def __init__(self, board: Board) -> None:
        self.board = board

    def open(self) -> "_Uart":
        return self

    def close(self) -> None:
        """Nothing: a line has no connection."""

    def readinto(self, buffer: Any) -> int | None:
        try:
            return os.readv(self.board.master, [buffer])
        except BlockingIOError:
            return None

    def write(self, data: Any) -> int | None:
        try:
            return os.write(self.board.master, data)
        except BlockingIOError:
            return None


def _client(uart: _Uart) -> Any:
    return FmqpClient(Reliable(uart, _PATIENCE_MS), keepalive_ms=300, timeout_ms=4000, retry_ms=100)


def _poll_until(client: Any, condition: Callable[[], bool]) -> None:
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until, client.error
        client.poll(5)


def test_text_on_the_same_line_unplugging_and_a_broker_that_goes(tmp_path: Path) -> None:
    link = tmp_path / "usb-Pico-if00"
    uart = _Uart(Board(link))
    port = port_for_later()
    to = f"fmqp://127.0.0.1:{port}"
    broker = BrokerProcess("--ephemeral", "--listen", to)
    arguments = ["bridge", "--serial", str(link), "--to", to, "--mode", "reliable"]
    heard: list[bytes] = []
    client = _client(uart)
    client.subscribe(b"t/echo", lambda _topic, payload: heard.append(payload))
    other: list[bytes] = []
    try:
        with running(*arguments, runtime=tmp_path / "run") as bridge:
            bridge.wait_for("reliable mode")
            uart.board.send(b"MicroPython v1.25.0 on 2025-04-15\r\n>>> ")
            _poll_until(client, lambda: client.up)
            bridge.wait_for("the board says: MicroPython v1.25.0")
            for number in range(200):
                client.publish(b"t/echo", b"%d" % number)
                if number % 20 == 0:
                    uart.board.send(b'Traceback (most recent call last):\r\n  File "x"\r\n')
                _poll_until(client, lambda: len(heard) > number)  # noqa: B023
            assert heard == [b"%d" % number for number in range(200)]

            # The cable is pulled: the broker knows at once. Plugged in: all goes on.
            witness = FmqpClient(Tcp("127.0.0.1", port), keepalive_ms=1000)
            witness.subscribe(b"t/will", lambda _topic, payload: other.append(payload))
            _poll_until(witness, lambda: witness.up)
            client.publish(b"t/will", b"gone", will=True)
            client.publish(b"t/echo", b"told")
            _poll_until(client, lambda: heard[-1] == b"told")
            began = time.monotonic()
            uart.board.close()
            _poll_until(witness, lambda: other == [b"gone"])
            assert time.monotonic() - began < _PATIENCE_MS / 1000
            uart.board = Board(link)
            _poll_until(client, lambda: not client.up)
            _poll_until(client, lambda: client.up)
            client.publish(b"t/echo", b"again")
            _poll_until(client, lambda: heard[-1] == b"again")

            # The broker goes: the board is told within the link, not by its own deadlines.
            broker.end()
            began = time.monotonic()
            _poll_until(client, lambda: not client.up)
            assert time.monotonic() - began < _PATIENCE_MS / 1000
            _poll_until(client, lambda: "no broker: nothing listens at" in bridge.log())
            broker = BrokerProcess("--ephemeral", "--listen", to)
            _poll_until(client, lambda: client.up)
            client.publish(b"t/echo", b"and again")
            _poll_until(client, lambda: heard[-1] == b"and again")
            (only,) = status(tmp_path / "run")
            assert only["mode"] == "reliable"
            assert only["link"]["stray_bytes"] > 0
            # The bridge says goodbye: the board knows at once.
            assert bridge.end() == 0
            began = time.monotonic()
            _poll_until(client, lambda: not client.up)
            assert time.monotonic() - began < _PATIENCE_MS / 1000
            client.close()
            witness.close()
    finally:
        broker.end()
        uart.board.close()
