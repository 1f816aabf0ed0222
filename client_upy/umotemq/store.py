"""Where an outage ring keeps messages through a reset: files in flash, or RTC memory.

    ring = Ring(1024, store=FileStore("/outage", 65536))

A store is a log: records are only ever added at its end, each with a sequence number, the time in
seconds, and a CRC-32. It is cut into segments; one of which all is confirmed goes as a whole. So
power may fail at any byte: what was not written whole is not there, all that was written before
is. At most one batch of messages that the broker had confirmed comes once more.

Wear: a kept message is one write of its size and 16 bytes, and a batch of confirmations one of 16.
littlefs writes a new block of 4 KiB for each: of a file system with 1 MB free, whose blocks last
100 000 times, 25 million writes, so ten months of an outage with a message a second.
"""

import os
from binascii import crc32
from struct import pack, unpack

from micropython import const

_HEAD = const(12)  # bytes: a mark, the state, the size, the sequence number, the seconds
_SPAN = const(16)  # bytes of a record that has no message: those, and the CRC-32
_MARK = const(0xA5)
# A state: no message, but word that all up to this one may go. In place of the seconds it has how
# many gave way so far.
_CONFIRMED = const(0x80)


class _Log:
    """A bounded log over ``_media``: numbered segments that can be read, added to and removed.

    ``last`` is the newest sequence number, ``count`` the messages that are not confirmed,
    ``dropped`` those that gave way to newer ones since the store was made.
    """

    def __init__(self, media, size, segments):
        self._media = media
        self._size = size // segments  # bytes of one
        self._most = segments
        self._segments = []  # [number, bytes, newest sequence number], the oldest first
        self.last = self.count = self.dropped = 0
        self._confirmed = 0
        self._is_torn = False  # whether nothing can be added to the newest segment
        for number in sorted(media.numbers()):
            end = newest = 0
            record = self._record(number, 0)
            while record:
                state, sequence, end, _, seconds = record
                if state & _CONFIRMED:
                    self._confirmed = max(self._confirmed, sequence)
                    self.dropped = max(self.dropped, seconds)
                newest = max(newest, sequence)
                record = self._record(number, end)
            self._segments.append([number, end, newest])
            self.last = max(self.last, newest)
            self._is_torn = media.length(number) > end and not media.can_overwrite
        # By reading all once more: a list of them might be more than the heap has room for.
        self.count = self._between(self.last)
        self._rewind()

    def append(self, sequence, seconds, state, message):
        """Add a message; it is safe when this returns. Raises OSError."""
        self._add(state, sequence, seconds, message)
        self.last = sequence
        self.count += 1

    def confirm(self, sequence):
        """All up to the message ``sequence`` may go. Raises OSError."""
        if sequence <= self._confirmed:
            return
        self.count -= self._between(sequence)
        self._confirmed = sequence
        if sequence >= self.last:
            self._begin(0)  # nothing is left but where the numbers go on
        self._add(_CONFIRMED, sequence, self.dropped, b"")
        while len(self._segments) > 1 and self._segments[0][2] <= sequence:
            self._media.remove(self._segments.pop(0)[0])
        self._rewind()

    def read(self, after):
        """Return (sequence, state, message) of the oldest that comes ``after``, None if none."""
        if after < self._cursor[2]:
            self._rewind()
        index, at, _ = self._cursor
        while index < len(self._segments):
            record = self._record(self._segments[index][0], at)
            if record is None:
                index += 1
                at = 0
                continue
            state, sequence, at, message, _ = record
            if not state & _CONFIRMED and sequence > after and sequence > self._confirmed:
                self._cursor = (index, at, sequence)
                return sequence, state, message
        return None

    def _rewind(self):
        # Where the next one is looked for, and the last one that came.
        self._cursor = (0, 0, 0)

    def _between(self, sequence):
        # How many messages become confirmed: of those that are here, numbers have gaps only
        # where some gave way.
        after = self._confirmed
        count = 0
        self._rewind()
        record = self.read(after)
        while record and record[0] <= sequence:
            count += 1
            record = self.read(record[0])
        return count

    def _begin(self, size):
        # Begin a segment, for a record of that size; the oldest gives way if there are too many.
        number = self._segments[-1][0] + 1 if self._segments else 1
        self._segments.append([number, 0, 0])
        self._is_torn = False
        if len(self._segments) > self._most:
            oldest, _, newest = self._segments[0]
            lost = self._between(newest)
            self.dropped += lost
            self.count -= lost
            self._confirmed = max(self._confirmed, newest)
            self._segments.pop(0)
            self._media.remove(oldest)
            self._rewind()
            if self.dropped and 0 < size <= self._size - _SPAN:
                self._add(_CONFIRMED, self._confirmed, self.dropped, b"")  # for after a reset

    def _add(self, state, sequence, seconds, message):
        record = pack(">BBHII", _MARK, state, len(message), sequence, seconds & 0xFFFFFFFF)
        record += bytes(message)
        record += pack(">I", crc32(record))
        if not self._segments or self._is_torn or self._segments[-1][1] + len(record) > self._size:
            self._begin(len(record))
        segment = self._segments[-1]
        self._is_torn = not self._media.can_overwrite  # unless this ends well
        self._media.append(segment[0], segment[1], record)
        self._is_torn = False
        segment[1] += len(record)
        segment[2] = max(segment[2], sequence)

    def _record(self, number, at):
        # Return what the record there says, and its end; None if there is no whole one.
        head = self._media.read(number, at, _HEAD)
        if len(head) < _HEAD or head[0] != _MARK:
            return None
        _, state, size, sequence, seconds = unpack(">BBHII", head)
        rest = self._media.read(number, at + _HEAD, size + 4)
        if len(rest) < size + 4 or unpack(">I", rest[size:])[0] != crc32(head + rest[:size]):
            return None
        return state, sequence, at + _SPAN + size, rest[:size], seconds


class FileStore(_Log):
    """Files ``path.NUMBER`` of at most ``size`` bytes together, in ``segments`` of them."""

    def __init__(self, path, size=65536, segments=4):
        _Log.__init__(self, _Files(path), size, segments)


class RtcStore(_Log):
    """RTC memory, as of an ESP32: it outlives a reset and deep sleep, but not the power.

    ``rtc``: a machine.RTC. Nothing wears out.
    """

    def __init__(self, rtc=None, size=2048):
        if rtc is None:
            from machine import RTC

            rtc = RTC()
        _Log.__init__(self, _Halves(rtc, size), size - 8, 2)


class _Files:
    """The segments of a FileStore."""

    can_overwrite = False

    def __init__(self, path):
        self._path = path
        self._folder, _, self._name = path.rpartition("/")

    def numbers(self):
        start = self._name + "."
        names = os.listdir(self._folder or ("/" if self._path[0] == "/" else "."))
        rests = [name[len(start) :] for name in names if name.startswith(start)]
        return [int(rest) for rest in rests if rest.isdigit()]

    def length(self, number):
        return os.stat(self._file(number))[6]

    def read(self, number, at, size):
        try:
            with open(self._file(number), "rb") as file:
                file.seek(at)
                return file.read(size)
        except OSError:
            return b""  # a segment that was begun, and not written yet

    def append(self, number, _at, data):
        with open(self._file(number), "ab") as file:
            file.write(data)

    def remove(self, number):
        try:
            os.remove(self._file(number))
        except OSError:
            pass  # it was begun, and never written

    def _file(self, number):
        return "%s.%d" % (self._path, number)


class _Halves:
    """The two segments of an RtcStore: each begins with its number."""

    can_overwrite = True

    def __init__(self, rtc, size):
        self._rtc = rtc
        self._half = size // 2
        self._image = bytearray(size)
        found = rtc.memory()
        if len(found) == size:
            self._image[:] = found

    def numbers(self):
        found = [int.from_bytes(self._image[at : at + 4], "big") for at in (0, self._half)]
        return [number for number in found if number]

    def length(self, number):
        return self._half - 4

    def read(self, number, at, size):
        start = (number & 1) * self._half
        if int.from_bytes(self._image[start : start + 4], "big") != number:
            return b""
        return bytes(self._image[start + 4 + at : min(start + 4 + at + size, start + self._half)])

    def append(self, number, at, data):
        start = (number & 1) * self._half
        if not at:
            self._image[start : start + self._half] = bytes(self._half)
            self._image[start : start + 4] = number.to_bytes(4, "big")
        start += 4 + at
        self._image[start : start + len(data)] = data
        self._rtc.memory(self._image)

    def remove(self, number):
        start = (number & 1) * self._half
        if int.from_bytes(self._image[start : start + 4], "big") == number:
            self._image[start : start + 4] = bytes(4)
            self._rtc.memory(self._image)
