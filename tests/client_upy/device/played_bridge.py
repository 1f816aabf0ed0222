"""A bridge played by hand: frames as LINK.md says, to boards in times and sessions we choose."""

import gc
import time
from binascii import crc32

import umotemq.reliable as reliable

SESSION = 0x1234


class _Chosen:
    """Stands for the modules time and random in umotemq.reliable."""

    def __init__(self):
        self.session = SESSION
        self.passed = -2000  # ms; the ticks wrap in the middle

    def ticks_ms(self):
        return time.ticks_add(0, self.passed)

    def getrandbits(self, _):
        return self.session - 1 & 0xFFFF


chosen = _Chosen()


def transport(line, session=SESSION):
    """Return a transport over ``line``; its first session is this one, its time is ``chosen``."""
    gc.collect()
    chosen.session = session
    reliable.random = chosen
    reliable.ticks_ms = chosen.ticks_ms
    return reliable.Reliable(line)


def up(line, session=SESSION):
    """Return a stream whose session the bridge has accepted."""
    stream = transport(line, session).open()
    line.feed(framed(ACCEPT, session, b"\xf3"))
    stream.write(b"")
    line.take()
    return stream


OPEN, ACCEPT, DATA, ACK, CLOSE = range(0x11, 0x16)  # of boards; bridges add 8


def framed(kind, session, payload, numbers=b"\0\0\x08\0", by=8):
    """Return a frame's bytes. ``numbers``: seq, next, room and mask; ``by``: 8 bridge, 0 board."""
    data = b"\0\0" + bytes([kind + by, session & 255, session >> 8]) + numbers + payload
    data += crc32(data).to_bytes(4, "little")
    runs = [bytes([len(part) + 1]) + part for part in data[2:].split(b"\0")]
    return b"\0" + b"".join(runs) + b"\0"


def read(stream):
    """Return what can be read now, and what the last read returned."""
    buffer = bytearray(300)
    data = b""
    while True:
        count = stream.readinto(buffer)
        if not count:
            return data, count
        data += bytes(buffer[:count])
