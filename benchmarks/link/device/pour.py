"""Bytes through the bridge as fast as they go: what a board does. Prints NAME VALUE lines.

Arguments: where ("tcp" PORT, or "uart" BAUD), raw or reliable, up or down, how many bytes. On a
board, which has no arguments, import it and call ``run``.
"""

import sys
import time

_CHUNK = 251  # prime, so that a byte lost or doubled does not go unseen


def opened(where, number, mode):
    if where == "tcp":
        from umotemq.tcp import Tcp

        transport = Tcp("127.0.0.1", number)
    else:
        from umotemq.uart import Uart

        transport = Uart(1, number, tx=4, rx=5, quiet_ms=0)
    if mode == "reliable":
        from umotemq.reliable import Reliable

        transport = Reliable(transport)
    return transport.open()


def written(stream, data):
    left = memoryview(data)
    while left:
        count = stream.write(left)
        if count:
            left = left[count:]


def heard(stream, buffer):
    while True:
        count = stream.readinto(buffer)
        if count:
            return count


def run(where, number, mode, direction, count):
    stream = opened(where, number, mode)
    buffer = bytearray(1024)
    chunk = bytes(range(_CHUNK)) * 4
    written(stream, direction[0].encode())
    heard(stream, buffer)  # the other end is there
    start = time.ticks_us()
    if direction == "up":
        for _ in range(count // len(chunk)):
            written(stream, chunk)
        heard(stream, buffer)  # it has all of it
    else:
        written(stream, b"!")
        got = heard(stream, buffer)
        first = got
        start = time.ticks_us()
        count = count // len(chunk) * len(chunk)
        while got < count:
            got += heard(stream, buffer)
        count -= first
    took = time.ticks_diff(time.ticks_us(), start)
    written(stream, b".")
    heard(stream, buffer)  # what we said has arrived
    stream.close()
    print("bytes", count // len(chunk) * len(chunk) if direction == "up" else count)
    print("us", took)


if len(sys.argv) > 1:
    run(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
