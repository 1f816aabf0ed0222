"""A connection with a deadline for everything."""

import contextlib
import select
import socket
import ssl
import struct
import time
from typing import Protocol

from host_broker.address import Address
from host_broker.client.dialing import dial
from host_broker.client.errors import ConnectionLost, Timeout
from host_broker.client.first_words import stranger

_READ_BYTES = 256 * 1024
# What may come in while we are still sending. Without reading then, a client that is sent its own
# messages and the broker could wait for each other; without a limit memory would be the queue.
_EARLY_BYTES = 16 * 1024 * 1024
_DOUBT = "; is it the right port and protocol?"

# TLS has words of its own for "later". What it wants is what we wait for anyway: nobody
# renegotiates here.
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Line(Protocol):
    """Bytes to and from one broker. Deadlines are on the clock of ``time.monotonic()``."""

    address: Address

    def send(self, data: bytes, deadline: float) -> None:
        """Send all of ``data``. Raises ``Timeout``; the connection is then closed, because a
        part of a packet may have been sent."""

    def read(self, deadline: float) -> bytes | None:
        """Return what has come, at least one byte; None if nothing comes before ``deadline``.

        A deadline in the past still takes what is there. Raises ``ConnectionLost``.
        """

    def close(self) -> None:
        """Close in order."""

    def abort(self) -> None:
        """Close as if the program had died."""

    def broken(self, reason: str) -> ConnectionLost:
        """Close because the peer broke the protocol; returns the error to raise."""

    def doubt(self) -> str:
        """Return a question to end an error text with, if no broker has been heard yet."""


class Link:
    """A ``Line`` that is a socket. ``heard``: the peer has said anything yet."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        """Connect. Raises ``ConnectFailed``, ``BadArgument``."""
        self.address = address
        self.heard = False
        self._socket = dial(address, timeout_s)
        self._early = bytearray()
        self._open = True

    def send(self, data: bytes, deadline: float) -> None:
        """See ``Line``."""
        self._require_open()
        remaining = memoryview(data)
        while remaining:
            try:
                remaining = remaining[self._socket.send(remaining) :]
            except _NOT_NOW:
                self._wait_to_send(deadline)
            except OSError as error:
                raise self._lost(error) from error

    def read(self, deadline: float) -> bytes | None:
        """See ``Line``."""
        if self._early:
            early = bytes(self._early)
            self._early.clear()
            return early
        self._require_open()
        while True:
            data = self._read_now()
            if data is not None:
                return data
            if not self._wait(select.POLLIN, deadline):
                return None

    def close(self) -> None:
        """Close with a FIN."""
        self._open = False
        self._socket.close()

    def abort(self) -> None:
        """Close with an RST, as if the program had died without its operating system."""
        if self._open:
            # It fails if the peer has already gone, which is what we want anyway.
            with contextlib.suppress(OSError):
                self._socket.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
        self.close()

    def broken(self, reason: str) -> ConnectionLost:
        """See ``Line``."""
        self.abort()
        return ConnectionLost(f"{self.address}: {reason}{_DOUBT}")

    def doubt(self) -> str:
        """See ``Line``."""
        return "" if self.heard else _DOUBT

    def _wait_to_send(self, deadline: float) -> None:
        events = select.POLLOUT
        if len(self._early) < _EARLY_BYTES:
            events |= select.POLLIN
        ready = self._wait(events, deadline)
        if not ready:
            self.abort()
            raise Timeout(
                f"{self.address} took no more bytes before the deadline (a subscriber of this "
                "topic may be stalled); the connection was closed"
            )
        if ready & select.POLLIN:
            self._early += self._read_now() or b""

    def _read_now(self) -> bytes | None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except _NOT_NOW:
            return None
        except OSError as error:
            raise self._lost(error) from error
        if not data:
            self.close()
            raise ConnectionLost(f"{self.address} closed the connection{self.doubt()}")
        if not self.heard:
            self.heard = True
            if speaks := stranger(data[:16]):
                raise self.broken(f"what answers there speaks {speaks}")
        return data

    def _wait(self, events: int, deadline: float) -> int:
        """Return what the socket is ready for, 0 if ``deadline`` comes first."""
        poller = select.poll()
        poller.register(self._socket, events)
        remaining_s = max(0.0, deadline - time.monotonic())
        # Rounded up, so that the last millisecond is waited for and not spun through.
        ready = poller.poll(int(remaining_s * 1000) + 1 if remaining_s else 0)
        return ready[0][1] if ready else 0

    def _require_open(self) -> None:
        if not self._open:
            raise ConnectionLost(f"the connection to {self.address} is closed; connect again")

    def _lost(self, error: OSError) -> ConnectionLost:
        self.close()
        return ConnectionLost(
            f"the connection to {self.address} was lost: {error.strerror or error}{self.doubt()}"
        )


def deadline_of(timeout_s: float) -> float:
    """Return the deadline that is ``timeout_s`` seconds from now."""
    return time.monotonic() + timeout_s
