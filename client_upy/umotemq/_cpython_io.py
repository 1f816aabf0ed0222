"""CPython's BytesIO with MicroPython's arguments. Not put on boards."""

import io


class BytesIO(io.BytesIO):
    def __init__(self, size):
        super().__init__(bytes(size))

    def write(self, data, offset=0, count=None):
        end = None if count is None else offset + count
        return super().write(memoryview(data)[offset:end])

    def readinto(self, buffer, count=None):
        return super().readinto(memoryview(buffer)[:count])
