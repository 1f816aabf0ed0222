"""A board's serial log, cut at its marks, short enough to be kept with the run's events."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from boards.session.plan import STEPS

_FIRST_LINES, _LAST_LINES = 30, 60  # of one step or check: how it began and how it ended
_LINE_CHARACTERS = 400
_SECTIONS = 400  # a board that forges marks must not fill the disk
_MARK = re.compile(r"\d\d:\d\d:\d\d\.\d{3} ---- (step|check) (\S+)\n?")


@dataclass(slots=True)
class Section:
    """What the board said during one step, or during one check of it."""

    step: str
    check: str
    first: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    left_out: int = 0

    def add(self, line: str) -> None:
        """Take a line; of many the first and the last are kept."""
        line = line.rstrip("\n")
        if len(line) > _LINE_CHARACTERS:
            line = f"{line[:_LINE_CHARACTERS]} … {len(line) - _LINE_CHARACTERS} more characters"
        if len(self.first) < _FIRST_LINES:
            self.first.append(line)
            return
        self.last.append(line)
        if len(self.last) > _LAST_LINES:
            self.last.pop(0)
            self.left_out += 1

    @property
    def text(self) -> str:
        """The lines that are kept, and how many are not."""
        gap = [f"… {self.left_out} lines"] if self.left_out else []
        return "\n".join([*self.first, *gap, *self.last])


def read_sections(path: Path) -> list[Section]:
    """Return what a serial log has, section by section; nothing if there is no log."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return list(sections(file))
    except OSError:
        return []


def sections(lines: Iterable[str]) -> Iterator[Section]:
    """Cut the lines of a serial log at its marks; a section without a line is left out."""
    current = Section("start", "")
    count = 0
    for line in lines:
        mark = _MARK.fullmatch(line)
        if mark and count < _SECTIONS and (mark[1] == "check" or mark[2] in STEPS):
            if current.first:
                count += 1
                yield current
            current = Section("check", mark[2]) if mark[1] == "check" else Section(mark[2], "")
        else:
            current.add(line)
    if current.first:
        yield current
