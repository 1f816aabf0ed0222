# What the virtual ESP32 does at power-on, after its image was verified: mount the files of the
# flash as "/", run boot.py and main.py, serve the REPL. Frozen into the image.
#
# Arguments: FLASH OFFSET LENGTH UID RESET_CAUSE MODE WIRES UART RADIO
#   FLASH OFFSET LENGTH  the flash image and where in it (bytes) the file system is
#   UID                  machine.unique_id(), hex; it ends in the MAC address
#   RESET_CAUSE          as machine.reset_cause() of an ESP32
#   MODE                 "friendly", or "raw" after a soft reset from the raw REPL
#   WIRES UART           descriptors for vesp32_machine: pins and watchdog; the data line
#   RADIO                a descriptor for vesp32_network

import gc
import os
import sys

import serialrepl
import vesp32_machine
import vesp32_network
import vfs

# Exit codes tell the supervisor what is to happen next.
SOFT_RESET_FRIENDLY = 42
SOFT_RESET_RAW = 43

_BLOCK = 4096


class FlashBlocks:
    """The file system's part of the flash, as a block device with the extended interface."""

    def __init__(self, path, offset, length):
        self._file = open(path, "r+b")
        self._offset = offset
        self._blocks = length // _BLOCK

    def readblocks(self, block, buffer, offset=0):
        self._file.seek(self._offset + block * _BLOCK + offset)
        self._file.readinto(buffer)

    def writeblocks(self, block, buffer, offset=None):
        if offset is None:
            self.ioctl(6, block)
            offset = 0
        self._file.seek(self._offset + block * _BLOCK + offset)
        self._file.write(buffer)

    def ioctl(self, op, argument):
        if op == 4:
            return self._blocks
        if op == 5:
            return _BLOCK
        if op == 6:
            self._file.seek(self._offset + argument * _BLOCK)
            for _ in range(_BLOCK // 256):
                self._file.write(_ERASED)
            return 0


_ERASED = b"\xff" * 256


def _mount(blocks):
    """Replace the host's file system by the board's; make one on blank flash, as boards do."""
    vfs.umount("/")
    try:
        vfs.mount(blocks, "/")
    except OSError:
        vfs.VfsLfs2.mkfs(blocks)
        vfs.mount(blocks, "/")
    os.chdir("/")


def _run(mode):
    path, offset, length, uid, cause, _, wires, uart, radio = sys.argv[1:10]
    vesp32_machine.install(uid, int(cause), int(wires), int(uart))
    vesp32_network.install(bytes.fromhex(uid)[-6:], int(radio))
    _mount(FlashBlocks(path, int(offset), int(length)))
    sys.path[:] = ["", ".frozen", "/lib"]
    sys.argv[:] = []
    gc.collect()
    serialrepl.open(mode == "raw")
    # After a soft reset in the raw REPL boards skip main.py: a tool is in charge.
    if serialrepl.file("boot.py") and mode != "raw":
        serialrepl.file("main.py")
    raw = serialrepl.repl()
    print("MPY: soft reboot")
    sys.exit(SOFT_RESET_RAW if raw else SOFT_RESET_FRIENDLY)


_run(sys.argv[6])
