"""The BOOTSEL drive: a folder that is there while the board waits for a UF2, gone when it boots.

Files are taken as a real board takes them, by plain copying, and so may be seen half-written.
A file is judged once it has not changed for a moment; what is wrong with it is written to
``FAIL.TXT`` beside it, and nothing is flashed.
"""

import logging
import shutil
from pathlib import Path

from boards.virtual.rp2040 import uf2
from boards.virtual.rp2040.flash_image import FLASH_BYTES

_log = logging.getLogger(__name__)

INFO = "UF2 Bootloader v3.0\nModel: Virtual Raspberry Pi RP2\nBoard-ID: RPI-RP2\n"
INDEX = (
    '<html><head><meta http-equiv="refresh" content="0;'
    "URL='https://www.raspberrypi.com/documentation/microcontrollers/'\"/></head>"
    "<body>A virtual RP2040 in BOOTSEL mode: copy a UF2 file here.</body></html>\n"
)
_OWN_FILES = {"INFO_UF2.TXT", "INDEX.HTM", "FAIL.TXT"}
_SETTLED_S = 0.2  # unchanged so long: a copy that is still going on writes more often
_ABANDONED_S = 2.0  # unchanged so long and incomplete: the copy was cut off
_MAX_FILE_BYTES = 16 * 1024 * 1024

_Seen = tuple[int, int]  # size, mtime in ns


class BootselDrive:
    """The folder, polled by its owner; time is an argument, in seconds of any one clock.

    ``family`` and ``flash_bytes``: which UF2 files it takes.
    """

    def __init__(
        self, folder: Path, family: int = uf2.RP2040_FAMILY, flash_bytes: int = FLASH_BYTES
    ) -> None:
        self.folder = folder
        self._family, self._flash_bytes = family, flash_bytes
        self._seen: dict[Path, tuple[_Seen, float]] = {}
        self._judged: dict[Path, _Seen] = {}

    def appear(self) -> None:
        """Show the drive with its two files, and nothing else in it."""
        self.vanish()
        staging = self.folder.with_name(self.folder.name + ".new")
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        (staging / "INFO_UF2.TXT").write_text(INFO)
        (staging / "INDEX.HTM").write_text(INDEX)
        staging.rename(self.folder)

    def vanish(self) -> None:
        """Take the drive away, at once and with all that is in it; harmless if it is not there."""
        gone = self.folder.with_name(self.folder.name + ".gone")
        shutil.rmtree(gone, ignore_errors=True)
        if self.folder.exists():
            self.folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
        self._seen.clear()
        self._judged.clear()

    def poll(self, now: float) -> uf2.Image | None:
        """Return the image to flash once a whole UF2 lies there, else None."""
        for path in sorted(self.folder.glob("*")):
            if path.name in _OWN_FILES:
                continue
            try:
                image = self._judge(path, now)
            except FileNotFoundError:
                continue  # renamed or removed while we looked
            if image is not None:
                return image
        return None

    def _judge(self, path: Path, now: float) -> uf2.Image | None:
        status = path.stat()
        stamp = (status.st_size, status.st_mtime_ns)
        known = self._seen.get(path)
        if known is None or known[0] != stamp:
            self._seen[path] = (stamp, now)
            return None
        still_s = now - known[1]
        if still_s < _SETTLED_S or self._judged.get(path) == stamp or not path.is_file():
            return None
        if status.st_size > _MAX_FILE_BYTES:
            self._refuse(path, stamp, f"{status.st_size} bytes are no UF2 for a 2 MB flash")
            return None
        try:
            return uf2.parse(path.read_bytes(), self._flash_bytes, self._family)
        except uf2.Uf2Error as error:
            self._refuse(path, stamp, str(error))
        except uf2.Uf2Incomplete as error:
            if still_s >= _ABANDONED_S:
                self._refuse(path, stamp, str(error))
        return None

    def _refuse(self, path: Path, stamp: _Seen, reason: str) -> None:
        self._judged[path] = stamp
        text = f"{path.name}: {reason}. Nothing was flashed."
        (self.folder / "FAIL.TXT").write_text(text + "\n")
        _log.warning("BOOTSEL: %s", text)
