"""The reliable link as a transport: a serial line on which nothing is lost, and ends are seen.

    client = FmqpClient(Reliable(Uart(1, 921600, quiet_ms=0)))

Its other end is ``motemq bridge --mode reliable``; boards/bridge/LINK.md says what is on the line.
While the link is up, every byte arrives once and in order. It is down, and the stream ends, when
the bridge or the broker goes, when the line is dead or too bad, and when this board forgets to
poll: at the latest after ``patience_ms``, on both ends.

The link is one generator, whose locals are its state: on a board they cost a third of what
attributes do. It allocates nothing: BytesIO moves the bytes, as a slice costs 32 bytes of heap.
Two exceptions: the first frame of each length costs a view (16 bytes; 64 of them are kept), and on
32 bits three of four CRCs that we send are a big integer (32 bytes, garbage at once). Those that we
check are not: over a good frame and its check, the CRC is always the same small number.

Why so long: the link is one function, see above; LINK.md explains it.
"""

import random
from binascii import crc32
from io import BytesIO
from struct import pack_into
from time import ticks_diff, ticks_ms

from micropython import const

if hasattr(BytesIO, "getbuffer"):
    from umotemq._cpython_io import BytesIO

_END = const(0)
_READ = const(1)
_WRITE = const(2)
_BEGIN = const(3)
_OPEN = const(0x11)
_ACCEPT = const(0x12)
_DATA = const(0x13)
_ACK = const(0x14)
_CLOSE = const(0x15)
_HOST = const(8)  # is added by the other end: a line may echo
_GOOD = const(0x2144DF1C)  # the CRC-32 of anything and its CRC-32
_HEAD = const(9)  # bytes: the delimiter, COBS's first code, and seven
_MOST = const(243)  # bytes of payload
_SHORT = const(96)  # the same for a console, whose driver holds a few hundred
_AGAIN_MS = const(250)
_AWAY_MS = const(100)
_CONSOLE = const(0x80)  # in the kind: what comes back is to be disguised
_DONE = const(0x20000000)  # instead of a transmission: it is acknowledged


class Reliable:
    """The link over the streams of ``transport``, a ``Uart``, a ``Console`` or what is like them.

    ``patience_ms``: silence after which either end gives the link up, 200 to 65535; poll at least
    twice as often. Its buffers are 5 KB.
    """

    pollable = None  # it has timers of its own: the client looks every millisecond

    def __init__(self, transport, patience_ms=5000):
        self.where = transport.where
        self._transport = transport
        self._patience_ms = patience_ms
        self._start()

    def open(self):
        """Return the stream; it takes nothing before the bridge has accepted. Raises OSError."""
        self._line = self._transport.open()
        self._do(_BEGIN, self._line)
        return self

    def close(self):
        """Tell the bridge, without waiting: what it has not acknowledged may be lost."""
        self._do(_END, None)
        self._line.close()

    def readinto(self, data):
        return self._do(_READ, data)

    def write(self, data):
        return self._do(_WRITE, data)

    def _start(self):
        self._run = self._link(self._patience_ms, getattr(self._transport, "holds", 0))
        next(self._run)

    def _do(self, what, data):
        self._what = what
        try:
            result = self._run.send(data)
        except StopIteration:  # what came from outside, as Ctrl-C does, had ended it
            self._start()
            result = "ended" if what != _END else None
        if isinstance(result, str):
            raise OSError(result)
        return result

    def _link(self, patience_ms, holds):
        # Each send(): take what has come, do what the program wants, judge, send what can go.
        at = size = slot = kind = now = most = number = base = read = wanted = 0
        result = left = bye = None
        why = "closed"  # how it ended, "" for well; None: it has not
        frame = bytearray(256)
        # Of frames by their number & 7: the last of all transmissions, 0: to be sent; sizes and
        # bytes of what we sent, until it is acknowledged, and of what has come.
        sent = [0] * 8
        out = bytearray(257)
        sizes = bytearray(8)
        kept = BytesIO(2048)
        got = bytearray(8)
        came = BytesIO(2048)
        chunk = bytearray(256)  # as read
        piece = BytesIO(256)  # from one zero to the next
        coded = memoryview(frame)[1:]
        payload = memoryview(out)[_HEAD:]
        views = {}  # of the first bytes of frame, by how many; negative: of out
        session = random.getrandbits(16)
        while True:
            data = yield result
            what = self._what
            result = None
            at = now
            now = ticks_ms()
            if holds and ticks_diff(now, at) > _AWAY_MS:
                owes = 8  # a console's other end waits for a word that the program reads again
            if what == _BEGIN:
                line = data
                session = session + 1 & 0xFFFF
                base = number = room = 0  # ours: the oldest kept, the next new; how many may go
                wanted = read = offset = 0  # theirs: the next; what is delivered, of a frame too
                mask = fill = sends = owes = bye = most = 0
                edge = 8  # theirs below it may come, as they know
                left = why = None  # of the frame that is being written; how it ended
                rtt = 200
                wait = 410
                heard = last = now
                said = now - _AGAIN_MS
                piece.seek(0)
            try:
                count = 0
                if why is None:
                    count = line.readinto(chunk) or 0
                start = 0
                while start < count:
                    at = chunk.find(b"\0", start, count)
                    size = (count if at < 0 else at) - start
                    fill += size
                    if fill < 256:
                        piece.write(chunk, start, size)
                    start += size + 1
                    if at < 0:
                        break
                    piece.seek(0)
                    size = fill + 1
                    fill = 0
                    if not 12 < size < 257:
                        continue
                    piece.readinto(coded, size - 1)
                    piece.seek(0)
                    at = 1
                    while at < size:
                        slot = frame[at]
                        frame[at] = 0
                        at += slot
                    if (
                        at != size
                        or crc32(_view(views, frame, size)) != _GOOD
                        or frame[3] | frame[4] << 8 != session
                    ):
                        continue
                    kind = frame[2] - _HOST
                    size -= _HEAD + 4
                    if size:
                        if kind == _CLOSE:
                            why = ""
                            if frame[_HEAD] or frame[5] != wanted & 255:
                                why = "bridge: %s" % bytes(frame[_HEAD : _HEAD + size])
                        if kind == _ACCEPT and not most:
                            most = min(frame[_HEAD], _MOST)
                            kind = _ACK
                            size = 0
                    if not most or kind != (_DATA if size else _ACK):
                        continue
                    heard = now
                    at = frame[6] - base & 255
                    if at <= number - base:
                        room = frame[7]
                        if not room:
                            moved = now
                        seen = frame[8] << at + 1 | (1 << at) - 1  # of those from base on
                        newest = -1
                        for i in range(8):
                            slot = base + i & 7
                            if seen >> i & 1 and sent[slot] != _DONE:
                                newest = max(newest, sent[slot])
                                sent[slot] = _DONE
                        base += at
                        if newest >= 0:
                            # A line does not reorder: what was sent before that is lost.
                            for i in range(8):
                                if sent[i] < newest:
                                    sent[i] = 0
                            if newest == sends:
                                rtt += ticks_diff(now, last) - rtt >> 2
                            wait = 2 * rtt + 10
                            moved = now
                    if kind == _DATA:
                        owes += 1
                        at = frame[5] - wanted & 255
                        if at < read + 8 - wanted and not mask >> at & 1:
                            slot = frame[5] & 7
                            came.seek(slot << 8)
                            came.write(frame, _HEAD, size)
                            got[slot] = size
                            mask |= 1 << at
                            while mask & 1:
                                mask >>= 1
                                wanted += 1
                if what == _READ:
                    if read != wanted:
                        slot = read & 7
                        came.seek((slot << 8) + offset)
                        result = came.readinto(data, min(got[slot] - offset, len(data)))
                        offset += result
                        if offset == got[slot]:
                            offset = 0
                            read += 1
                            if read + 4 >= edge:
                                owes = 8
                    elif why is not None:
                        result = why or 0
                elif why is not None:
                    if what == _WRITE and read == wanted:
                        result = why or "closed"
                elif what == _END:
                    why = "closed"
                    bye = most and 1
                elif most and what == _WRITE:
                    if base == number:
                        moved = last = now
                    at = 0
                    while at < len(data) and number - base < 8:
                        size = min(len(data) - at, most)
                        slot = number & 7
                        kept.seek(slot << 8)
                        kept.write(data, at, size)
                        sizes[slot] = size
                        sent[slot] = 0
                        number += 1
                        at += size
                    result = at or None
                if most and why is None:
                    if ticks_diff(now, heard) > patience_ms:
                        why = "silence"
                    if base != number:
                        if min(ticks_diff(now, last), ticks_diff(now, moved)) >= wait:
                            sent[base & 7] = 0
                            room = max(room, 1)
                            wait = max(wait, min(2 * wait, patience_ms >> 3))
                            last = now
                        if room and ticks_diff(now, moved) > patience_ms:
                            why = "no progress"
                            bye = 4
                while True:
                    if left:
                        size = line.write(left) or 0
                        if size < len(left):
                            if size:
                                left = left[size:]
                            break
                        left = None
                    if why is not None and not bye:
                        break
                    slot = ticks_diff(now, said)
                    at = base
                    size = min(number, base + room)
                    while at < size and sent[at & 7]:
                        at += 1
                    if not most:
                        if slot < _AGAIN_MS:
                            break
                        kind = _OPEN
                        size = 5 if holds else 3
                        at = _SHORT if holds else _MOST
                        pack_into("<BHH", payload, 0, at, patience_ms, holds)
                        at = number
                    elif at < size:
                        kind = _DATA
                        slot = at & 7
                        sends += 1
                        sent[slot] = sends
                        last = now
                        size = sizes[slot]
                        kept.seek(slot << 8)
                        kept.readinto(payload, size)
                    else:
                        at = number
                        size = 0
                        kind = _ACK
                        if bye:
                            kind = _CLOSE
                            size = 1
                            payload[0] = bye - 1
                            bye = 0
                        elif slot < patience_ms >> 3 and (not owes or (count == 256 and owes < 4)):
                            break
                    pack_into(
                        "<BBHBBBB",
                        out,
                        1,
                        0,
                        kind | _CONSOLE if holds else kind,
                        session,
                        at & 255,
                        wanted & 255,
                        read + 8 - wanted,
                        mask >> 1,
                    )
                    size += _HEAD
                    pack_into("<IB", out, size, crc32(_view(views, out, -size)), 0)
                    size += 4
                    at = 1
                    while at < size:
                        slot = out.find(b"\0", at + 1, size + 1)
                        out[at] = slot - at
                        at = slot
                    left = _view(views, out, -size - 1)
                    said = now
                    edge = read + 8
                    owes = 0
            except OSError as error:
                why = "line: %s" % error
                left = None


def _view(views, buffer, size):
    view = views.get(size)
    if not view:
        if len(views) > 63:
            views.clear()  # garbage has any length: all of them would be 18 KB, in small pieces
        views[size] = view = memoryview(buffer)[: abs(size)]
    return view
