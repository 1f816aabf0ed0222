"""Ask and flash an ESP board with the real esptool, in a process of its own; reset it by RTS."""

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import serial

from boards.flash.target import FlashError, Progress
from boards.serial_port import PortError
from boards.tool import run_tool

# Who drives EN and IO0: the caller (buttons), or esptool by DTR and RTS.
Before = Literal["no-reset", "default-reset"]

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_CHIP = re.compile(r"^Connected to (\S+) on ", re.MULTILINE)
# Chips with an 802.15.4 radio show an EUI-64 too; the base MAC is what MicroPython shows.
_MAC = re.compile(r"^(?:BASE )?MAC:\s*([0-9a-fA-F:]{17})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class EspChip:
    """What esptool read out of a chip."""

    name: str  # e.g. ESP32-S3
    mac: str  # lower-case hex without separators


def read_esp_chip(url: str, *, before: Before, deadline_s: float) -> EspChip:
    """Ask the chip at ``url`` who it is; it stays in its loader. Writes nothing.

    Raises ``FlashError`` if esptool's answer is not understood, ``ToolError``, ``ToolTimeout``.
    """
    # The ROM knows it: what esptool would load into the chip for speed takes longer than asking.
    asked = [*_esptool(url, before), "--no-stub", "read-mac"]
    output = run_tool("esptool", asked, deadline_s=deadline_s)
    chip, mac = _CHIP.search(output), _MAC.search(output)
    if chip is None or mac is None:
        raise FlashError(f"esptool told neither chip nor MAC: {output.strip()[-300:]!r}")
    return EspChip(chip[1], mac[1].lower().replace(":", ""))


def flash_esptool(
    image: Path,
    url: str,
    *,
    chip: str,
    offset: int,
    deadline_s: float,
    progress: Progress,
    before: Before = "no-reset",
    starts: bool = False,
    baud: int = 115200,
    force: bool = False,
) -> bool:
    """Write ``image`` at flash ``offset`` of the board at ``url``; False if it was there already.

    "There already" is the chip's own digest of its flash; ``force`` writes without asking. With
    ``before="no-reset"`` the board is in download mode already; then the caller resets it
    afterwards, unless the port's own lines do (``starts``).
    Raises ``FlashError`` unless esptool compared the digest of the written flash, ``ToolError``,
    ``ToolTimeout``.
    """

    def show(line: str) -> None:
        if percent := _PERCENT.search(line):
            progress(f"esptool {percent[1]} %")

    output = run_tool(
        "esptool",
        [
            *_esptool(url, before, chip=chip, baud=baud, starts=starts),
            "write-flash",
            *(() if force else ("--skip-flashed",)),
            *(hex(offset), str(image)),
        ],
        deadline_s=deadline_s,
        on_line=show,
    )
    if "already in flash, skipping write" in output:
        return False
    if "Hash of data verified" not in output:
        raise FlashError(f"esptool did not verify what it wrote: {output.strip()[-300:]!r}")
    return True


def _esptool(
    url: str, before: Before, *, chip: str = "auto", baud: int = 115200, starts: bool = False
) -> list[str]:
    after = "no-reset" if before == "no-reset" and not starts else "hard-reset"
    return [
        *(sys.executable, "-m", "esptool", "--chip", chip, "--port", url, "--baud", str(baud)),
        *("--before", before, "--after", after),
    ]


_LOW_S = 0.1


def pulse_reset(url: str) -> None:
    """Reset the board at ``url`` into its program. Raises ``PortError``.

    RTS pulls EN low with IO0 left high: the usual two-transistor circuit.
    """
    port = serial.serial_for_url(url, do_not_open=True, exclusive=True)
    port.dtr, port.rts = False, True
    try:
        port.open()
        time.sleep(_LOW_S)
        port.rts = False
    except (OSError, ValueError) as error:
        raise PortError(f"serial port {url}: its RTS cannot be driven: {error}") from None
    finally:
        port.close()
