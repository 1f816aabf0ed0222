"""What a store is written to, in memory, and how the power fails there."""

from checks import equal

import umotemq.store


class PowerCut(BaseException):
    """The board is off."""


class Flash:
    """Files of a FileStore in memory, on which the power fails after ``left`` bytes or removals."""

    can_overwrite = False

    def __init__(self):
        self.files = {}
        self.left = None

    def _spend(self, wanted):
        if self.left is None:
            return wanted
        spent = min(wanted, self.left)
        self.left -= spent
        return spent

    def numbers(self):
        return list(self.files)

    def length(self, number):
        return len(self.files[number])

    def read(self, number, at, size):
        return self.files.get(number, b"")[at : at + size]

    def append(self, number, _at, data):
        # As FAT does it, whose files may end with half of a write.
        size = self._spend(len(data))
        self.files[number] = self.files.get(number, b"") + bytes(data[:size])
        if size < len(data):
            raise PowerCut()

    def remove(self, number):
        if not self._spend(1):
            raise PowerCut()
        self.files.pop(number, None)


class Rtc:
    """The memory of a machine.RTC, of which a reset may leave half of a write."""

    def __init__(self):
        self.held = b""
        self.left = None

    def memory(self, data=None):
        if data is None:
            return self.held
        data = bytes(data)
        if self.left is not None:
            same = len(self.held) == len(data)
            for at in range(len(data)):
                if not same or self.held[at] != data[at]:
                    if not self.left:
                        self.held = data[:at] + (self.held[at:] if same else b"")
                        raise PowerCut()
                    self.left -= 1
        self.held = data


class Flashed(umotemq.store._Log):
    def __init__(self, flash, size=600, segments=3):
        umotemq.store._Log.__init__(self, flash, size, segments)


def kept(store):
    """Return the sequence numbers of what the store gives, and check the messages."""
    found = []
    record = store.read(0)
    while record:
        sequence, state, message = record
        equal((state, message), (1, b"%d" % sequence + bytes(sequence % 7)))
        found.append(sequence)
        record = store.read(sequence)
    return found
