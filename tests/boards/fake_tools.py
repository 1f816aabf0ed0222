"""Executables in place of tools that need hardware: they log their argv and answer as told."""

import json
import os
import sys
from pathlib import Path

import pytest

_PROGRAM = """#!{python}
import json, sys
from pathlib import Path
here = Path({folder!r})
with (here / "calls.jsonl").open("a") as log:
    log.write(json.dumps([{name!r}, *sys.argv[1:]]) + "\\n")
for key, (code, text) in json.loads((here / "{name}.answers").read_text()).items():
    if key in " ".join(sys.argv[1:]):
        print(text)
        sys.exit(code)
sys.exit(99)
"""


class FakeTools:
    """A folder that comes first in PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        folder.mkdir()
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def add(self, name: str, answers: dict[str, tuple[int, str]]) -> None:
        """Install ``name``: the first key that its arguments contain gives exit code and output."""
        (self._folder / f"{name}.answers").write_text(json.dumps(answers))
        program = self._folder / name
        program.write_text(
            _PROGRAM.format(python=sys.executable, folder=str(self._folder), name=name)
        )
        program.chmod(0o755)

    def calls(self) -> list[list[str]]:
        """Every call so far: name and arguments."""
        log = self._folder / "calls.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
