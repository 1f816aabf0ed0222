"""The real ``mpremote`` command, run so that it cannot surprise.

A private configuration folder (mpremote executes the user's on each start), ``resume`` always
(1.29 soft-resets without it, 1.30 will not), and a deadline from outside (on a silent pty it
never returns).
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from boards.serial_port import PortGone
from boards.tool import OnLine, ToolError, run_tool

# A copy that was killed has left its file open, by mpremote's names. If that were closed, or
# collected, after the file was written anew, its part would come in place of the whole.
_CLOSE = "try:\n f.close()\nexcept Exception:\n pass\nf = w = None"


def mpremote(
    url: str, arguments: Sequence[str], *, deadline_s: float, on_line: OnLine | None = None
) -> str:
    """Run ``mpremote connect URL resume ARGUMENTS`` and return what it printed.

    Raises ``ToolError`` when it fails (its exit code 1 does not tell why: the text does),
    ``ToolTimeout``, and ``PortGone``.
    """
    with tempfile.TemporaryDirectory(prefix="mpremote-") as config:
        try:
            return run_tool(
                "mpremote",
                [sys.executable, "-m", "mpremote", "connect", url, "resume", *arguments],
                deadline_s=deadline_s,
                env={**os.environ, "XDG_CONFIG_HOME": config},
                on_line=on_line,
            )
        except ToolError as error:
            # Of a cable that was pulled it shows what failed when it closed the port, not why.
            if error.output.rstrip().endswith("OSError: [Errno 5] Input/output error"):
                gone = f"serial port {url}: it vanished while mpremote used it"
                raise PortGone(f"{gone}; is the board plugged in?") from None
            raise


def copy_to_board(
    url: str,
    *,
    folders: Sequence[Path],
    files: Sequence[Path],
    deadline_s: float,
    on_line: OnLine | None = None,
    forget: bool = False,
    into: str = ":",
) -> str:
    """Copy whole ``folders``, then ``files``, into the root of the board's filesystem, or ``into``.

    What is there already with the same SHA-256 is not written again. ``forget``: a soft reset then
    has the board forget modules that it had imported before they were replaced.
    """
    commands = ["exec", _CLOSE]
    for folder in folders:
        commands += ["+", "fs", "cp", "-r", str(folder), into]
    if files:
        commands += ["+", "fs", "cp", *map(str, files), into]
    if forget:
        commands += ["+", "soft-reset"]
    return mpremote(url, commands, deadline_s=deadline_s, on_line=on_line)
