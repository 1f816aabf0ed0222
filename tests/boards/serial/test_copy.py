"""Files on a board by the real mpremote, after a copy that was cut short."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from boards.mpremote_cli import copy_to_board
from boards.repl import Repl
from boards.virtual.address import BoardKind
from boards.virtual.board import VirtualBoard
from boards.virtual.preload import firmware_of, preload
from firmware.build import ensure

_S = 120.0
# What mpremote leaves on a board when it is killed while it copies: the file is still open.
_CUT_SHORT = "f = open('/lib.bin', 'wb')\nw = f.write\nw(b'x' * 700)"
_SHA256 = """
import binascii, hashlib
print(binascii.hexlify(hashlib.sha256(open('/lib.bin', 'rb').read()).digest()).decode())
"""


@pytest.fixture(params=["esp32", "rp2040"])
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VirtualBoard]:
    kind: BoardKind = request.param
    preload(kind, tmp_path / "state", ensure(firmware_of(kind)))
    with VirtualBoard.start(kind, "copy", tmp_path / "state") as running:
        yield running


@pytest.mark.parametrize("forget", [True, False])
def test_a_copy_that_was_killed_spoils_no_later_one(
    board: VirtualBoard, tmp_path: Path, forget: bool
) -> None:
    """The file that it left open would be closed after the new one, and come in its place."""
    url = board.address.serial_url
    with Repl.open(url, deadline_s=_S) as repl:
        repl.exec(_CUT_SHORT, deadline_s=_S)
    file = tmp_path / "lib.bin"
    file.write_bytes(bytes(range(256)) * 8)
    copy_to_board(url, folders=[], files=[file], deadline_s=_S, forget=forget)
    with Repl.open(url, deadline_s=_S) as repl:
        repl.exec("import gc\ngc.collect()", deadline_s=_S)
        there = repl.exec(_SHA256, deadline_s=_S).strip()
    assert there == hashlib.sha256(file.read_bytes()).hexdigest()
