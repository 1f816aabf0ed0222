"""The board's own ``main.py``, ``boot.py``, … kept here while the rig's are there.

The copy is on this host's disk before the first byte goes onto the board, and is removed only when
the board holds its files again. A run that is killed in between leaves it for the next run, or for
``motemq rig recover``.
"""

import base64
import binascii
import contextlib
import hashlib
import json
import os
from pathlib import Path

from boards.errors import RigError
from boards.inventory.target import BoardHandle
from boards.repl import Repl
from boards.runtime_folder import write_private

_PASSWORD = "wifi.json"  # what the rig writes there is nowhere else on this host
NAMES = ("main.py", "boot.py", "node.json", _PASSWORD)
_READ_S = 60.0
_WRITE_S = 15.0
_CHUNK = 768
_NO_SUCH_FILE = 2  # ENOENT, on every port

_READ = """
import binascii, hashlib
for _name, _path in {files!r}:
    try:
        _file = open(_path, "rb")
    except OSError as error:
        if error.args[0] != {missing}:
            raise
        print("none", _name)
        continue
    _digest = hashlib.sha256()
    while True:
        _part = _file.read({chunk})
        if not _part:
            break
        _digest.update(_part)
        print("part", _name, binascii.b2a_base64(_part).decode().strip())
    _file.close()
    print("file", _name, binascii.hexlify(_digest.digest()).decode())
"""
_REMOVE = """
import os
try:
    os.remove({path!r})
except OSError as error:
    if error.args[0] != {missing}:
        raise
"""

Contents = dict[str, bytes | None]  # by name; None: there is no such file


class OwnFilesError(RigError):
    """A board's own files could not be read, or put back; the text says which and why."""


class OwnFiles:
    """The own files of one board, as far as they are kept in ``state_dir``.

    The caller holds the board's lock, and has proven that the board is the one. The REPL that it
    hands over has no tap: these files often hold passwords, which are for no log.
    """

    def __init__(self, state_dir: Path, board: BoardHandle) -> None:
        self._id = board.id
        self._root = "" if board.model.kind == "unix" else "/"
        # Another chip under the same id has other files.
        self._path = state_dir / "own_files" / f"{board.id}-{board.identity.text or 'any'}.json"
        self.is_taken = False  # by ``keep``, in this process
        self._own: Contents = {}
        self._ours: dict[str, list[bytes]] = {name: [] for name in NAMES}
        self._load()

    @property
    def are_kept(self) -> bool:
        """True if the board's own files are here, and perhaps not on the board."""
        return self._path.exists()

    def keep(self, repl: Repl) -> None:
        """Copy the board's files to this host, before anything is written there.

        What a killed run left on the board is known as the rig's, also if it is cut short, and
        does not replace what is kept. Raises ``OwnFilesError``, ``ReplError``, ``OSError``.
        """
        there = self._read(repl)
        for name in NAMES:
            if name not in self._own or not self._is_rigs(name, there[name]):
                self._own[name] = there[name]
        self._save()
        self.is_taken = True

    def will_write(self, name: str, content: bytes) -> None:
        """Note, on disk when this returns, what the rig is going to write as ``name``."""
        if name != _PASSWORD and content not in self._ours[name]:
            self._ours[name].append(content)
            self._save()

    def restore(self, repl: Repl) -> None:
        """Put the files back that differ, compare, and forget the copy; nothing if none is kept.

        Raises ``OwnFilesError``, ``ReplError``.
        """
        if not self.are_kept:
            return
        there = self._read(repl)
        differing = [name for name in NAMES if there[name] != self._own.get(name)]
        for name in differing:
            self._write(repl, name, self._own.get(name))
        there = self._read(repl) if differing else there
        for name in differing:
            if there[name] != self._own.get(name):
                raise OwnFilesError(f"{self._id}: {name} was put back and is not what was kept")
        self._path.unlink()
        self._own, self._ours = {}, {name: [] for name in NAMES}

    def _is_rigs(self, name: str, content: bytes | None) -> bool:
        """True if ``content`` came there by a run: whole, or the beginning of a write cut short."""
        own = self._own[name]
        if name == _PASSWORD:
            return True  # a killed run's, perhaps: nobody can tell, so what was first is kept
        return content is None or any(
            text.startswith(content) for text in (*self._ours[name], own or b"")
        )

    def _read(self, repl: Repl) -> Contents:
        files = [(name, self._root + name) for name in NAMES]
        code = _READ.format(files=files, missing=_NO_SUCH_FILE, chunk=_CHUNK)
        found: Contents = {}
        parts: dict[str, bytes] = {}
        for line in repl.exec(code, deadline_s=_READ_S).splitlines():
            what, _, rest = line.partition(" ")
            name, *words = rest.split(" ")
            if name not in NAMES:
                continue  # a timer of the board's own program prints
            if what == "none":
                found[name] = None
            elif what == "part" and words:
                with contextlib.suppress(binascii.Error):
                    parts[name] = parts.get(name, b"") + base64.b64decode(words[0])
            elif what == "file":
                content = parts.get(name, b"")
                if words != [hashlib.sha256(content).hexdigest()]:
                    raise OwnFilesError(
                        f"{self._id}: its {name} did not come over whole, so it was left as it is"
                    )
                found[name] = content
        if missing := [name for name in NAMES if name not in found]:
            raise OwnFilesError(
                f"{self._id}: the board did not say what its {missing[0]} is, so it was left as "
                "it is"
            )
        return found

    def _write(self, repl: Repl, name: str, content: bytes | None) -> None:
        path = self._root + name
        if content is None:
            repl.exec(_REMOVE.format(path=path, missing=_NO_SUCH_FILE), deadline_s=_WRITE_S)
            return
        repl.exec(f"import binascii\n_file = open({path!r}, 'wb')", deadline_s=_WRITE_S)
        for start in range(0, len(content), _CHUNK):
            text = binascii.b2a_base64(content[start : start + _CHUNK])
            repl.exec(f"_file.write(binascii.a2b_base64({text!r}))", deadline_s=_WRITE_S)
        repl.exec("_file.close()", deadline_s=_WRITE_S)

    def _load(self) -> None:
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return
        try:
            row = json.loads(text)
            for name in NAMES:
                own = row["own"].get(name)
                self._own[name] = None if own is None else base64.b64decode(own)
                self._ours[name] = [base64.b64decode(one) for one in row["ours"].get(name, [])]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise OwnFilesError(
                f"{self._path} is damaged: it is the copy of {self._id}'s own files; look what "
                "can be saved of it, then remove it"
            ) from None

    def _save(self) -> None:
        """Only we may read it: a ``boot.py`` often has the password of a network."""
        row = {
            "own": {
                name: None if content is None else base64.b64encode(content).decode()
                for name, content in self._own.items()
            },
            "ours": {
                name: [base64.b64encode(content).decode() for content in contents]
                for name, contents in self._ours.items()
            },
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        write_private(fresh, json.dumps(row).encode())
        _sync(fresh)
        fresh.replace(self._path)
        _sync(self._path.parent)


def _sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
