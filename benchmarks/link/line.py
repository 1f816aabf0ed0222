"""A serial line, with its rate, its buffers, and seeded faults; in simulated time, or in real."""

import random
from dataclasses import dataclass

BOOT_TEXT = b"\r\nMPY: soft reboot\r\nMicroPython v1.25.0 on 2025-04-15; board with ESP32\r\n>>> "
TRACEBACK = b'Traceback (most recent call last):\r\n  File "main.py", line 7\r\nOSError: -1\r\n'


@dataclass(frozen=True, slots=True)
class Faults:
    """Chances per byte of the line; ``every_s``: mean seconds between two of its kind, 0: none."""

    flip: float = 0.0
    lose: float = 0.0
    double: float = 0.0
    noise_every_s: float = 0.0
    noise_bytes: int = 60
    text_every_s: float = 0.0

    @property
    def per_byte(self) -> float:
        """The chance that something happens to a byte."""
        return self.flip + self.lose + self.double


class Direction:
    """One direction: what is written waits in a driver's buffer, travels, waits to be read.

    ``buffer``: bytes of either driver's; a receiver that does not read loses bytes.
    """

    def __init__(self, rng: random.Random, baud: int, faults: Faults, buffer: int = 4096) -> None:
        self.faults = faults
        self.pulled = False
        self.garbled = False  # the ends' rates differ
        self.carried = 0
        self.damaged = 0  # faults so far
        self._rng = rng
        self._bytes_per_s = baud / 10
        self._buffer = buffer
        self._waiting = bytearray()
        self._arrived = bytearray()
        self._now = self._credit = 0.0
        self._next_noise = self._pause(faults.noise_every_s)
        self._next_text = self._pause(faults.text_every_s)
        self._until_fault = self._gap()

    @property
    def room(self) -> int:
        """Bytes that ``write`` would take."""
        return self._buffer - len(self._waiting)

    @property
    def busy(self) -> bool:
        """True while bytes are on their way."""
        return bool(self._waiting or self._arrived)

    def write(self, data: bytes | memoryview) -> int:
        """Take what the sender's driver has room for."""
        room = self.room
        self._waiting += data[:room]
        return min(room, len(data))

    def insert(self, data: bytes) -> None:
        """Put what no link wrote on the line, at once and whole."""
        self._arrive(data)

    def sender_reset(self) -> None:
        """What waits in the sender's driver is lost."""
        self._waiting.clear()

    def receiver_reset(self) -> None:
        """What waits in the receiver's driver is lost."""
        self._arrived.clear()

    def peek(self, limit: int) -> bytes:
        """Return what ``read`` would."""
        return bytes(self._arrived[:limit])

    def read(self, limit: int) -> bytes:
        """Return what has arrived."""
        data = bytes(self._arrived[:limit])
        del self._arrived[:limit]
        return data

    def advance(self, now: float) -> None:
        """Let bytes travel until ``now``, in seconds."""
        passed, self._now = now - self._now, now
        self._credit = min(self._credit + passed * self._bytes_per_s, 0.1 * self._bytes_per_s)
        count = min(int(self._credit), len(self._waiting))
        self._credit = self._credit - count if self._waiting else min(self._credit, 1.0)
        data = bytes(self._waiting[:count])
        del self._waiting[:count]
        self.carried += count
        if self.pulled:
            return
        if self.garbled:
            data = self._rng.randbytes(count // 2)
        elif self.faults.per_byte:
            data = self._damage(data)
        while self._next_noise <= now:
            self._next_noise += self._pause(self.faults.noise_every_s)
            size = self._rng.randint(1, self.faults.noise_bytes)
            at = self._rng.randrange(len(data) + 1)
            data = data[:at] + self._rng.randbytes(size) + data[at:]
        while self._next_text <= now:
            self._next_text += self._pause(self.faults.text_every_s)
            at = self._rng.randrange(len(data) + 1)
            data = data[:at] + self._rng.choice((BOOT_TEXT, TRACEBACK)) + data[at:]
        self._arrive(data)

    def _arrive(self, data: bytes) -> None:
        if not self.pulled:
            self._arrived += data[: self._buffer - len(self._arrived)]

    def _damage(self, data: bytes) -> bytes:
        """Hit single bytes; the gaps between hits are drawn, not each byte."""
        out = bytearray()
        at = 0
        while at + self._until_fault < len(data):
            at_fault = at + self._until_fault
            out += data[at:at_fault]
            byte = data[at_fault]
            which = self._rng.random() * self.faults.per_byte
            if which < self.faults.flip:
                out.append(byte ^ 1 << self._rng.randrange(8))
            elif which < self.faults.flip + self.faults.double:
                out += bytes((byte, byte))
            self.damaged += 1
            at = at_fault + 1
            self._until_fault = self._gap()
        self._until_fault -= len(data) - at
        return bytes(out + data[at:])

    def _gap(self) -> int:
        chance = self.faults.per_byte
        return int(self._rng.expovariate(chance)) if chance else 1 << 60

    def _pause(self, every_s: float) -> float:
        return self._rng.expovariate(1 / every_s) if every_s else float("inf")
