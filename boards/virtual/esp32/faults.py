"""Virtual ESP32s with something wrong, for programs that must cope with such boards.

Each is the simulator with one fault. What is wrong shows where it would on a real board: on its
serial line, in its flash, in what the chip says it is.
"""

from pathlib import Path

from boards.virtual.control import RunState
from boards.virtual.esp32.flash import Flash

_WORN = (0x41000, 64)  # offset, bytes: within any firmware of ours
_BABBLE = b"sensor 1: 21.5\r\n"
_LINE_BYTES_PER_S = 11_520  # 115200 baud
_SLOW_BYTES_PER_S = 240
_VANISHES_AFTER_BYTES = 4096  # of what the running board is sent: within any installation
_FLAKY_FAILURES = 2


class Fault:
    """No fault. What a kind of fault changes, it overrides."""

    about = "a healthy board"
    gone = False  # the board is no longer plugged in

    def __init__(self, state_dir: Path) -> None:
        self._dir = state_dir

    def mac(self, mac: bytes) -> bytes:
        """Return the address burnt into the chip of the board that is labelled ``mac``."""
        return mac

    def flash(self) -> Flash:
        """Open the board's flash."""
        return Flash(self._dir / "flash.bin")

    def heard(self, data: bytes, state: RunState) -> bytes:
        """Return what the chip gets of ``data`` that was sent to it."""
        return data

    def said(self, data: bytes, state: RunState) -> bytes:
        """Return what programs get of ``data`` that the chip said."""
        return data

    def entered_loader(self) -> None:
        """Note that the chip was reset into its ROM loader."""

    def tick(self, now: float, state: RunState) -> tuple[bytes, bytes]:
        """Return what is due: bytes to the chip, bytes to programs."""
        return b"", b""


class Silent(Fault):
    """Takes all and says nothing, in the loader too: the wire from its TX pin is broken."""

    about = "it says nothing, whatever is asked"

    def said(self, data: bytes, state: RunState) -> bytes:
        return b""


class Babbling(Fault):
    """Its program prints without end and cannot be interrupted; the loader works."""

    about = "it prints without end and cannot be interrupted"

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir)
        self._since: float | None = None

    def heard(self, data: bytes, state: RunState) -> bytes:
        return data if state == "download" else b""

    def tick(self, now: float, state: RunState) -> tuple[bytes, bytes]:
        if self._since is None or state == "download" or now - self._since > 1.0:
            self._since = now  # it begins, or begins again
        count = int((now - self._since) * _LINE_BYTES_PER_S / len(_BABBLE))
        # What does not make a line yet counts next time.
        self._since += count * len(_BABBLE) / _LINE_BYTES_PER_S
        return b"", _BABBLE * count


class Vanishing(Fault):
    """Works until something long is sent to its program, then is unplugged for good."""

    about = "it is unplugged in the middle of an installation"

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir)
        self._left = _VANISHES_AFTER_BYTES

    def heard(self, data: bytes, state: RunState) -> bytes:
        if state == "running":
            self._left -= len(data)
            self.gone = self._left < 0
        return data


class WrongIdentity(Fault):
    """Another chip than its label says: somebody has swapped two boards."""

    about = "its chip is not the one on its label"

    def mac(self, mac: bytes) -> bytes:
        return mac[:3] + bytes(byte ^ 0xFF for byte in mac[3:])


class Slow(Fault):
    """Does everything, at 240 bytes a second each way."""

    about = "it works at 240 bytes a second"

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir)
        self._since: float | None = None
        self._to_chip = bytearray()
        self._to_programs = bytearray()

    def heard(self, data: bytes, state: RunState) -> bytes:
        return self._hold(self._to_chip, data)

    def said(self, data: bytes, state: RunState) -> bytes:
        return self._hold(self._to_programs, data)

    def tick(self, now: float, state: RunState) -> tuple[bytes, bytes]:
        before = now if self._since is None else self._since
        count = int((now - before) * _SLOW_BYTES_PER_S)
        # What does not make a byte yet counts next time.
        self._since = before + count / _SLOW_BYTES_PER_S
        due = bytes(self._to_chip[:count]), bytes(self._to_programs[:count])
        del self._to_chip[:count], self._to_programs[:count]
        return due

    def _hold(self, held: bytearray, data: bytes) -> bytes:
        held += data[: 16 * 1024 - len(held)]  # a UART's buffer overruns far earlier
        return b""


class Wedged(Fault):
    """Its program runs and its REPL takes nothing, not even Ctrl-C; the loader works."""

    about = "its REPL takes nothing"

    def heard(self, data: bytes, state: RunState) -> bytes:
        return data if state == "download" else b""


class _WornFlash(Flash):
    """Flash with a few cells that read 0 whatever is written to them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        offset, length = _WORN
        super().program(offset, bytes(length))

    def program(self, offset: int, data: bytes) -> None:
        super().program(offset, data)
        super().program(_WORN[0], bytes(_WORN[1]))

    def erase(self, offset: int, length: int) -> None:
        super().erase(offset, length)
        super().program(_WORN[0], bytes(_WORN[1]))


class CorruptedFlash(Fault):
    """Some cells of its flash are worn out: what was written there is not what is read."""

    about = "some cells of its flash are worn out"

    def flash(self) -> Flash:
        return _WornFlash(self._dir / "flash.bin")


class Flaky(Fault):
    """Its loader stays silent in the first two attempts to flash it, then all is well.

    Attempts are counted in the board's folder, over all its processes.
    """

    about = "the first two attempts to flash it fail"

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir)
        self._count = state_dir / "flash-attempts"

    def entered_loader(self) -> None:
        self._count.write_text(f"{self._attempts() + 1}\n")

    def said(self, data: bytes, state: RunState) -> bytes:
        fails = state == "download" and self._attempts() <= _FLAKY_FAILURES
        return b"" if fails else data

    def _attempts(self) -> int:
        return int(self._count.read_text()) if self._count.exists() else 0


FAULTS: dict[str, type[Fault]] = {
    "silent": Silent,
    "babbling": Babbling,
    "vanishing": Vanishing,
    "wrong-identity": WrongIdentity,
    "slow": Slow,
    "wedged": Wedged,
    "corrupted-flash": CorruptedFlash,
    "flaky": Flaky,
}
