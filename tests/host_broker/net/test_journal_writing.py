"""What is written to a file is every byte of every buffer, in order."""

import os
import threading

from host_broker.net.journal.segment import write_all


def test_more_buffers_and_bytes_than_one_call_takes() -> None:
    """A pipe takes 64 KiB at a time, and a call takes 1024 buffers."""
    buffers = [bytes([number % 251]) * (number % 700) for number in range(3000)]
    buffers.insert(1500, os.urandom(300_000))
    reading, writing = os.pipe()
    got = bytearray()

    def read() -> None:
        while data := os.read(reading, 9999):
            got.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    os.set_blocking(writing, True)
    write_all(writing, buffers)
    os.close(writing)
    reader.join(10)
    os.close(reading)
    assert got == b"".join(buffers)
