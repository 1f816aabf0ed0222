"""What a machine finds on its disk that has lost its power: power_loss.c notes what was synced.

A file or folder that was never synced is lost; of all others the last synced state is there, or a
later one: the kernel writes when it likes, one file sooner than another.
"""

import os
import random
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")


class Disk:
    """Notes in ``notes`` what a program syncs below ``root``, which exists."""

    def __init__(self, root: Path, notes: Path) -> None:
        """Compile the shim; what is below ``root`` now counts as synced."""
        self.root = root.resolve()
        self._notes = notes
        self._shim = notes / "power_loss.so"
        notes.mkdir()
        command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(self._shim), str(_SOURCE)]
        subprocess.run(command, check=True)
        self._sync_everything()

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of the program."""
        return {
            **os.environ,
            "LD_PRELOAD": str(self._shim),
            "POWER_LOSS_ROOT": str(self.root),
            "POWER_LOSS_DISK": str(self._notes),
        }

    def lose_power(self, drawn: random.Random | None = None) -> None:
        """Make of ``root`` what the machine finds; the program has been killed.

        With ``drawn`` each file and folder may also be as it was at the end.
        """
        found = self.root.with_name(self.root.name + ".found")
        self._restore(self.root, found, drawn)
        shutil.rmtree(self.root)
        found.rename(self.root)
        for note in self._notes.iterdir():
            if note != self._shim:
                note.unlink()
        self._sync_everything()

    def _restore(self, folder: Path, found: Path, drawn: random.Random | None) -> None:
        """Make ``found`` of what is known of ``folder``."""
        found.mkdir()
        now = _identities(folder)
        at_the_end = drawn is not None and drawn.random() < 0.5
        for name, identity in (now if at_the_end else self._names(folder)).items():
            here = next((other for other, each in now.items() if each == identity), None)
            path = None if here is None else folder / here
            note = self._notes / identity
            if path is not None and path.is_dir():
                self._restore(path, found / name, drawn)
            elif path is not None and drawn is not None and drawn.random() < 0.5:
                shutil.copyfile(path, found / name)
            elif note.exists():
                shutil.copyfile(note, found / name)
            else:
                (found / name).touch()  # the name was synced, what is in the file was not

    def _names(self, folder: Path) -> dict[str, str]:
        note = self._notes / _identities(folder.parent)[folder.name]
        lines = note.read_text().splitlines() if note.exists() else []
        fields = (line.split(" ", 2) for line in lines)
        return {name: identity for identity, _, name in fields}

    def _sync_everything(self) -> None:
        program = (
            "import os, sys\n"
            "for folder, _, files in os.walk(sys.argv[1]):\n"
            "    for name in [*files, '.']:\n"
            "        os.fsync(os.open(os.path.join(folder, name), os.O_RDONLY))\n"
        )
        command = ["python3", "-c", program, str(self.root)]
        subprocess.run(command, check=True, env=dict(self.environment))


def _identities(folder: Path) -> dict[str, str]:
    """Return what power_loss.c calls the files and folders in a folder, by name."""
    paths = sorted(folder.iterdir())
    if not paths:
        return {}
    # Python does not know the time of birth.
    command = ["stat", "--format=%i-%.9W", *map(str, paths)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {path.name: line for path, line in zip(paths, said.splitlines(), strict=True)}
