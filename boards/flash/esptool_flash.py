"""Flash an ESP board with the real esptool, in a process of its own."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from boards.flash.uf2_drive import FlashError
from boards.tool import run_tool

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def flash_esptool(
    image: Path,
    url: str,
    *,
    chip: str,
    offset: int,
    deadline_s: float,
    progress: Callable[[str], None],
) -> None:
    """Write ``image`` at flash ``offset`` of the board at ``url``, which is in download mode.

    The caller drives EN and IO0 before and after (``--before no-reset --after no-reset``).
    Raises ``FlashError`` unless esptool compared the digest of the written flash, ``ToolError``,
    ``ToolTimeout``.
    """

    def show(line: str) -> None:
        if percent := _PERCENT.search(line):
            progress(f"esptool {percent[1]} %")

    output = run_tool(
        "esptool",
        [
            *(sys.executable, "-m", "esptool", "--chip", chip, "--port", url),
            *("--before", "no-reset", "--after", "no-reset"),
            *("write-flash", hex(offset), str(image)),
        ],
        deadline_s=deadline_s,
        on_line=show,
    )
    if "Hash of data verified" not in output:
        raise FlashError(f"esptool did not verify what it wrote: {output.strip()[-300:]!r}")
