"""A virtual board that has the client and the checks in its flash, and runs them by mpremote."""

from pathlib import Path
from types import TracebackType
from typing import Self

import firmware.build
from boards.flash.esptool_flash import flash_esptool
from boards.flash.uf2_drive import flash_uf2_drive
from boards.mpremote_cli import mpremote
from boards.virtual.board import BoardKind, VirtualBoard
from firmware.node_files import compile_client, compile_mpy
from tests.client_upy.interpreters import DEVICE

_FLASH_S = 600.0
_COPY_S = 600.0
_RUN_S = 600.0
_RUN = """
import sys
sys.path.append("/device")
sys.argv[:] = {argv!r}
try:
    import check_{name}
except SystemExit as end:
    print("exit", end.args[0])
except Exception as error:
    sys.print_exception(error)
    print("exit 1")
"""


def compile_checks(out: Path) -> None:
    """Fill ``out`` with what a board's ``/`` gets: ``lib`` and ``device``, compiled."""
    for file, path in compile_client(out):
        assert file == out / path.lstrip("/")
    for source in DEVICE.glob("*.py"):
        compile_mpy(source, out / "device" / f"{source.stem}.mpy")


class CheckBoard:
    """Context manager; a blank board that becomes one with MicroPython and these folders."""

    def __init__(self, kind: BoardKind, folder: Path, folders: list[Path]) -> None:
        self._folders = folders
        self.board = VirtualBoard.start(kind, f"checks-{kind}", folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.board.stop()

    def install(self) -> None:
        """Flash and copy; takes seconds."""
        address = self.board.address
        if address.kind == "esp32":
            self.board.control.boot()
            image = firmware.build.ensure("vesp32")
            flash_esptool(
                image,
                address.serial_url,
                chip="esp32",
                offset=0x1000,
                deadline_s=_FLASH_S,
                progress=_quiet,
            )
            self.board.control.reset()
        else:
            assert address.bootsel_dir is not None
            image = firmware.build.ensure("rpi_pico")
            flash_uf2_drive(image, address.bootsel_dir, deadline_s=_FLASH_S, progress=_quiet)
        copy = ["cp", "-r", *map(str, self._folders), ":"]
        mpremote(address.serial_url, copy, deadline_s=_COPY_S)

    def output(self, name: str, *arguments: str) -> tuple[int, str]:
        """Run ``check_NAME`` after a soft reset; return (exit code, all output)."""
        code = _RUN.format(argv=[f"check_{name}.py", *arguments], name=name)
        command = ["soft-reset", "exec", code]
        text = mpremote(self.board.address.serial_url, command, deadline_s=_RUN_S)
        said, _, exit_code = text.strip().rpartition("\nexit ")
        return int(exit_code), said.strip()


def _quiet(_line: str) -> None:
    """Take progress, and say nothing."""
