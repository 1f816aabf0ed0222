"""The board's own console as a transport: one cable for the REPL and for messages.

    client = FmqpClient(Reliable(Console()))

Its other end is ``motemq bridge --mode reliable``. What the program prints goes between the link's
frames and is text to whoever reads the console. Ctrl-C is on as ever: it ends the program, and the
REPL is there, whatever the link was doing.
"""

import sys
from select import poll

from micropython import const

_STEP = const(64)  # bytes a write: a console that nobody reads stalls by the packet
_STALL_MS = const(20)  # how long the middle of a frame waits for room, if nobody may be reading
_READ_MS = const(500)  # and if the last one was read: what is printed must not come into a frame


class Console:
    """The console that this MicroPython has: USB, or the UART of the REPL."""

    where = "console"
    # So many bytes may wait here unread; drivers hold twice as many, and Ctrl-C behind them.
    holds = 240 if sys.platform == "rp2" else 120

    def __init__(self):
        self._in = poll()
        self._in.register(sys.stdin, 1)
        self._out = poll()
        self._out.register(sys.stdout, 4)
        self._byte = bytearray(1)
        self._flip = 0
        self._stall = _STALL_MS

    def open(self):
        """Return the stream."""
        return self

    def close(self):
        """Nothing: the console stays."""

    def readinto(self, buffer):
        # One by one: on boards a read of two waits until there are two.
        read = sys.stdin.buffer.readinto
        ready = self._in.ipoll
        byte = self._byte
        flip = self._flip
        count = 0
        size = len(buffer)
        while count < size:
            for _ in ready(0):
                break
            else:
                break
            read(byte)
            if byte[0] == 16:  # what would mean something to the REPL comes in disguise
                flip = 64
            else:
                buffer[count] = byte[0] ^ flip
                flip = 0
                count += 1
        self._flip = flip
        return count or None

    def write(self, data):
        # All of it, if the console is being read.
        write = sys.stdout.buffer.write
        sent = 0
        while sent < len(data):
            for _ in self._out.ipoll(self._stall if sent else 0):
                break
            else:
                if sent:
                    self._stall = _STALL_MS
                return sent or None
            sent += write(data, sent, _STEP) or 0
        self._stall = _READ_MS
        return sent or None
