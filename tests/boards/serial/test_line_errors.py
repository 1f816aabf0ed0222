"""What a UART's driver counts."""

import os
import pty
import struct

from boards.serial_port import counted, line_errors


def test_the_kernels_structure_is_read_at_the_right_places() -> None:
    # cts dsr rng dcd, rx tx, frame overrun parity brk buf_overrun, reserved
    raw = struct.pack("20i", 1, 2, 3, 4, 500, 600, 7, 8, 9, 10, 11, *range(100, 109))
    assert counted(raw) == {"frame": 7, "overrun": 8, "parity": 9, "buffer_overrun": 11}


def test_a_terminal_counts_nothing() -> None:
    master, slave = pty.openpty()
    assert line_errors(slave) is None
    os.close(master)
    os.close(slave)
