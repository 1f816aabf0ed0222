"""The flash rule on virtual boards, by the real esptool and mpremote: right ones are flashed and
wrong ones left as they were."""

import hashlib
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from boards.flash.image_identity import Image, check_image
from boards.flash.ledger import Ledger
from boards.flash.rule import Flashed, flash_board
from boards.flash.target import FlashError, NoWayIn, WrongBoard
from boards.inventory.board_file import load_board
from boards.inventory.locks import BoardLock
from boards.inventory.models import all_models
from boards.inventory.target import BoardHandle
from boards.repl import Repl
from boards.virtual.board import BoardKind, VirtualBoard
from firmware.build import ensure
from tests.boards.desk_files import (
    desk_board,
    motemq_rig,
    running_esp32,
    write_rig,
    write_virtual,
)
from tests.boards.fault_boards import SilentBoard

_KINDS: dict[BoardKind, str] = {"esp32": "vesp32", "rp2040": "rpi_pico"}


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _image(kind: BoardKind) -> Image:
    model = all_models()[f"virtual-{kind}"]
    return check_image(ensure(_KINDS[kind]), model.flash, virtual=True)


def _flash(
    board: BoardHandle, image: Image, folder: Path, *, force: bool = False, trust: bool = False
) -> Flashed:
    with BoardLock.take(folder, board.id, "a test") as held:
        return flash_board(
            board,
            image,
            held=held,
            ledger=Ledger(folder / "ledger.jsonl"),
            deadline_s=240,
            progress=lambda text: None,
            force=force,
            trust_ledger=trust,
        )


@pytest.fixture(params=["esp32", "rp2040"])
def blank(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VirtualBoard]:
    with VirtualBoard.start(request.param, "b1", tmp_path / "b1") as board:
        yield board


def test_a_blank_board_is_flashed_proven_and_booked(blank: VirtualBoard, tmp_path: Path) -> None:
    image = _image(blank.address.kind)
    board = desk_board(tmp_path, blank)
    done = _flash(board, image, tmp_path)
    assert done.written
    assert done.running.uid == blank.address.uid
    assert "MicroPython v1.25.0" in done.running.version
    entry = Ledger(tmp_path / "ledger.jsonl").last("b1")
    assert entry is not None
    assert (entry.sha256, entry.identity) == (_sha(image.path), blank.address.uid)
    with Repl.open(blank.address.serial_url, deadline_s=60) as repl:
        repl.exec("open('kept', 'w').write('x')", deadline_s=60)
    boots = blank.control.state()["boots"]
    # The ledger and the board itself agree: it is not even reset.
    assert not _flash(board, image, tmp_path, trust=True).written
    assert blank.control.state()["boots"] == boots
    # The chip compares its flash, where the method can; a UF2 drive cannot be read.
    again = _flash(board, image, tmp_path)
    assert again.written == (blank.address.kind == "rp2040")
    assert _flash(board, image, tmp_path, force=True).written
    with Repl.open(blank.address.serial_url, deadline_s=60) as repl:
        assert "kept" in repl.exec("import os\nprint(os.listdir('/'))", deadline_s=60)


def test_a_running_board_of_another_identity_is_not_even_reset(
    blank: VirtualBoard, tmp_path: Path
) -> None:
    image = _image(blank.address.kind)
    _flash(desk_board(tmp_path, blank), image, tmp_path)
    boots = blank.control.state()["boots"]
    before = _sha(tmp_path / "b1" / "flash.bin")
    other = "f" * len(blank.address.uid)
    board = desk_board(tmp_path, blank, identity=other)
    with pytest.raises(WrongBoard, match=f"says it is {blank.address.uid}, expected {other}"):
        _flash(board, image, tmp_path, force=True)
    assert blank.control.state() == {"state": "running", "boots": boots}
    assert _sha(tmp_path / "b1" / "flash.bin") == before


def test_a_blank_esp32_of_another_mac_is_not_written(tmp_path: Path) -> None:
    with VirtualBoard.start("esp32", "b1", tmp_path / "b1") as blank:
        before = _sha(tmp_path / "b1" / "flash.bin")
        board = desk_board(tmp_path, blank, identity="0123456789ab")
        with pytest.raises(WrongBoard, match=f"ESP32 {blank.address.uid}.*nothing was written"):
            _flash(board, _image("esp32"), tmp_path)
        assert _sha(tmp_path / "b1" / "flash.bin") == before
        assert Ledger(tmp_path / "ledger.jsonl").last("b1") is None


def test_the_lock_of_another_board_is_no_lock(blank: VirtualBoard, tmp_path: Path) -> None:
    board = desk_board(tmp_path, blank)
    with (
        BoardLock.take(tmp_path, "b2", "a test") as held,
        pytest.raises(FlashError, match="the lock held is that of b2"),
    ):
        flash_board(
            board,
            _image(blank.address.kind),
            held=held,
            ledger=Ledger(tmp_path / "ledger.jsonl"),
            deadline_s=5,
            progress=lambda text: None,
        )


def test_an_image_that_is_not_booted_is_a_fault_and_not_booked(tmp_path: Path) -> None:
    image = tmp_path / "cut.bin"
    image.write_bytes(ensure("vesp32").read_bytes()[:100_000])  # its segment is cut short
    with VirtualBoard.start("esp32", "b1", tmp_path / "b1") as blank:
        board = desk_board(tmp_path, blank)
        checked = check_image(image, board.model.flash, virtual=True)
        with (
            BoardLock.take(tmp_path, "b1", "a test") as held,
            pytest.raises(Exception, match=r"no raw REPL within|did not come back"),
        ):
            flash_board(
                board,
                checked,
                held=held,
                ledger=Ledger(tmp_path / "ledger.jsonl"),
                deadline_s=12,
                progress=lambda text: None,
            )
        assert Ledger(tmp_path / "ledger.jsonl").last("b1") is None


def test_the_version_is_read_back_from_the_board(tmp_path: Path) -> None:
    """An official file says in its name what it is; the board must then say the same."""
    with VirtualBoard.start("esp32", "b1", tmp_path / "b1") as blank:
        board = desk_board(tmp_path, blank)
        for version in ("v1.25.0", "v9.9.9"):
            path = tmp_path / f"ESP32_GENERIC-20250415-{version}.bin"
            shutil.copyfile(ensure("vesp32"), path)
            image = check_image(path, board.model.flash, virtual=True)
            if version == "v1.25.0":
                assert version in _flash(board, image, tmp_path).running.version
                continue
            with pytest.raises(FlashError, match=r"b1: it booted .*v1\.25\.0.* is v9\.9\.9: "):
                _flash(board, image, tmp_path)


def _uf2(path: Path, family: int, *, flags: int = 0x2000) -> Path:
    blocks = bytearray()
    for number in range(3):
        head = struct.pack(
            "<8I", 0x0A324655, 0x9E5D5157, flags, 0x10000000 + 256 * number, 256, number, 3, family
        )
        blocks += head + bytes(476) + struct.pack("<I", 0x0AB16F30)
    path.write_bytes(blocks)
    return path


def _esp(path: Path, chip_id: int, payload: bytes) -> Path:
    head = struct.pack("<BBBBI", 0xE9, 1, 2, 0x20, 0x40080000)
    head += struct.pack("<B3xHBHH4xB", 0xEE, chip_id, 0, 0, 0xFFFF, 1)
    path.write_bytes(head + struct.pack("<II", 0x3FFB0000, len(payload)) + payload)
    return path


@pytest.mark.parametrize(
    ("model", "family", "chip_id", "words"),
    [
        ("RPI_PICO", 0xE48BFF59, None, "is for RP2350 .Arm., the board is RP2040"),
        ("RPI_PICO2_W", 0xE48BFF56, None, "is for RP2040, the board is RP2350"),
        ("RPI_PICO2_W", 0xE48BFF57, None, "is for RP2xxx .absolute., the board is RP2350"),
        ("RPI_PICO", 0x12345678, None, "is for 0x12345678"),
        ("ESP32_GENERIC", None, 9, "is for ESP32-S3, the board is ESP32"),
        ("ESP32_GENERIC_S3", None, 0, "is for ESP32, the board is ESP32-S3"),
        ("ESP32_GENERIC_C3", None, 9, "is for ESP32-S3, the board is ESP32-C3"),
        ("ESP32_GENERIC_S2", None, 9, "is for ESP32-S3, the board is ESP32-S2"),
        ("ESP32_GENERIC_C6", None, 5, "is for ESP32-C3, the board is ESP32-C6"),
        ("RPI_PICO2", 0xE48BFF56, None, "is for RP2040, the board is RP2350"),
    ],
)
def test_an_image_for_another_chip_is_refused(
    tmp_path: Path, model: str, family: int | None, chip_id: int | None, words: str
) -> None:
    path = tmp_path / "image"
    if family is not None:
        _uf2(path, family)
    elif chip_id is not None:
        _esp(path, chip_id, bytes(64))
    with pytest.raises(FlashError, match=words + ".*nothing was written"):
        check_image(path, all_models()[model].flash, virtual=False)


def test_images_for_the_right_chip_are_taken(tmp_path: Path) -> None:
    for model, path in (
        ("RPI_PICO", _uf2(tmp_path / "a", 0xE48BFF56)),
        ("RPI_PICO2_W", _uf2(tmp_path / "b", 0xE48BFF59)),
        ("RPI_PICO2", _uf2(tmp_path / "b", 0xE48BFF59)),
        ("ESP32_GENERIC_C3", _esp(tmp_path / "c", 5, bytes(64))),
        ("ESP32_GENERIC_S2", _esp(tmp_path / "s", 2, bytes(64))),
        ("ESP32_GENERIC_C6", _esp(tmp_path / "c6", 13, bytes(64))),
    ):
        image = check_image(path, all_models()[model].flash, virtual=False, sha256=_sha(path))
        assert image.sha256 == _sha(path)


def test_real_and_virtual_esp32_images_are_told_apart(tmp_path: Path) -> None:
    loader = all_models()["ESP32_GENERIC"].flash
    with pytest.raises(FlashError, match="virtual ESP32s only; nothing was written"):
        check_image(ensure("vesp32"), loader, virtual=False)
    with pytest.raises(FlashError, match="for real chips"):
        check_image(_esp(tmp_path / "real", 0, bytes(64)), loader, virtual=True)


@pytest.mark.parametrize(
    ("model", "content", "words"),
    [
        ("ESP32_GENERIC", b"\x7fELF" + bytes(100), "is no ESP image"),
        ("ESP32_GENERIC", b"\xe9", "is no ESP image"),
        ("RPI_PICO", b"", "is no UF2"),
        ("RPI_PICO", bytes(511), "is no UF2"),
        ("RPI_PICO", bytes(512), "block 0 is no UF2"),
    ],
)
def test_what_is_no_image_is_refused(
    tmp_path: Path, model: str, content: bytes, words: str
) -> None:
    path = tmp_path / "image"
    path.write_bytes(content)
    with pytest.raises(FlashError, match=words):
        check_image(path, all_models()[model].flash, virtual=False)


def test_another_file_than_the_boards_file_pins_is_refused(tmp_path: Path) -> None:
    path = _uf2(tmp_path / "image", 0xE48BFF56)
    with pytest.raises(FlashError, match=r"its SHA-256 is .* wants 00"):
        check_image(path, all_models()["RPI_PICO"].flash, virtual=False, sha256="0" * 64)
    unnamed = _uf2(tmp_path / "image", 0xE48BFF56, flags=0)
    with pytest.raises(FlashError, match="names no chip family"):
        check_image(unnamed, all_models()["RPI_PICO"].flash, virtual=False)


def test_a_pico_whose_program_does_not_answer_says_what_a_person_can_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent line: no REPL, no button within reach."""
    monkeypatch.setattr("boards.flash.methods.ASK_S", 1.0)  # it never answers
    path = tmp_path / "p.toml"
    with SilentBoard() as silent:
        path.write_text(
            f'id = "p"\nmodel = "RPI_PICO"\nserial_url = "{silent.url}"\n'
            '[identity]\nuid = "e66038b713123456"\n'
        )
        board = BoardHandle(load_board(path))
        image = check_image(ensure("rpi_pico"), board.model.flash, virtual=False)
        with pytest.raises(NoWayIn, match="hold BOOTSEL while plugging it in"):
            _flash(board, image, tmp_path)


def test_rig_flash_goes_on_after_a_wrong_board_and_ends_with_3(tmp_path: Path) -> None:
    rig = write_rig(tmp_path)
    with (
        VirtualBoard.start("esp32", "wrong", tmp_path / "w") as wrong,
        VirtualBoard.start("esp32", "zright", tmp_path / "r") as right,
    ):
        write_virtual(tmp_path, wrong, identity="0123456789ab")
        write_virtual(tmp_path, right)
        before = _sha(tmp_path / "w" / "flash.bin")
        result = motemq_rig("flash", "--rig", rig)
        assert result.returncode == 3, result.stdout
        assert f"wrong: error: wrong: esptool finds ESP32 {wrong.address.uid}" in result.stdout
        assert "zright: written and verified" in result.stdout
        assert _sha(tmp_path / "w" / "flash.bin") == before
        again = motemq_rig("flash", "--rig", rig, "-b", "zright")
        assert again.returncode == 0, again.stdout
        assert "zright: the same firmware was there" in again.stdout
        with BoardLock.take(tmp_path / ".rig", "zright", "somebody's experiment"):
            locked = motemq_rig("flash", "--rig", rig, "-b", "zright")
        assert locked.returncode == 3
        assert "zright is in use by somebody's experiment (process" in locked.stdout


def _without_buttons(path: Path) -> BoardHandle:
    """All that is left within reach is the serial port, as of a real board."""
    return BoardHandle(replace(load_board(path), virtual=None))


def test_a_board_without_buttons_is_flashed_by_dtr_and_rts(tmp_path: Path) -> None:
    """As a real ESP32: esptool drives EN and IO0 through RFC 2217, asks, writes, and resets."""
    # It runs: a blank one would be asked for eight seconds first. The rest is esptool's, 0.2 s a
    # command, as pyserial's client polls.
    with running_esp32(tmp_path / "b1", "b1") as board:
        url = board.address.serial_urls["rfc2217"]
        path = write_virtual(tmp_path, board)
        path.write_text(path.read_text().replace(board.address.serial_url, url))
        boots = board.control.state()["boots"]
        done = _flash(_without_buttons(path), _image("esp32"), tmp_path, force=True)
        assert done.written
        assert done.running.uid == board.address.uid
        assert board.control.state()["boots"] > boots
        path.write_text(path.read_text().replace(board.address.uid, "0123456789ab"))
        with pytest.raises(WrongBoard, match="nothing was written"):
            _flash(_without_buttons(path), _image("esp32"), tmp_path, force=True)
