"""What a board says as lines for a person: with the time, and tracebacks with their source. Pure.

A traceback of MicroPython names file and line; the file's text is on this computer.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from boards.session.serial_log import line_decoder
from host_broker.printable import printable_lines

_FRAME = re.compile(r'\s*File "([^"]+)", line (\d+)')
_LONGEST = 4096  # characters of a line without an end
_MOST_FILES = 2000  # that are looked at in a folder of sources
_INDENT = " " * 15


class ConsoleLines:
    """Cuts what a board says into lines. ``sources``: folders of the program's files."""

    def __init__(self, sources: Sequence[Path]) -> None:
        self._sources = sources
        self._begun = ""
        self._decoder = line_decoder()

    def feed(self, data: bytes, at: str) -> list[str]:
        """Return the lines that ``data`` ends, for printing; ``at`` is the time as text."""
        *ended, self._begun = (self._begun + self._decoder.decode(data)).split("\n")
        if len(self._begun) > _LONGEST:
            ended.append(self._begun)
            self._begun = ""
        return [printed for line in ended for printed in self._print(line, at)]

    def flush(self, at: str) -> list[str]:
        """Return what has no end of line yet, such as a prompt."""
        begun, self._begun = self._begun, ""
        return self._print(begun, at) if begun else []

    def _print(self, line: str, at: str) -> list[str]:
        printed = [f"{at}  {printable_lines(line.rstrip())}"]
        if (frame := _FRAME.match(line)) and (code := self._code(frame[1], int(frame[2]))):
            printed.append(f"{_INDENT}| {code}")
        return printed

    def _code(self, name: str, number: int) -> str:
        """Return that line of the source, "" if there is none or more than one could be it."""
        file = self._file(name.lstrip("/"))
        if file is None:
            return ""
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        return printable_lines(lines[number - 1].strip()) if 0 < number <= len(lines) else ""

    def _file(self, name: str) -> Path | None:
        for folder in self._sources:
            if (folder / name).is_file():
                return folder / name
        base = Path(name).name
        found = [
            path
            for folder in self._sources
            for path in sorted(folder.rglob(base))[:_MOST_FILES]
            if path.is_file()
        ]
        return found[0] if len(found) == 1 else None
