"""Messages that begin as the one before did, for the same one raw handler.

fmqp imports it for those. Nothing of them is parsed or looked up: the bytes of their head are
compared.
"""

from micropython import const

_HEADER = const(6)
_SLASH = const(0x2F)


def note(client, start, body, end, handler):
    """Note a message that only the raw ``handler`` was called for.

    It is as long as the one before: those that come next may be like it.
    """
    buf = client._buf
    # With slashes around the topic it is not found where the header says.
    if not client._alike and buf[start + _HEADER] != _SLASH and buf[body - 1] != _SLASH:
        client._alike = Alike(client, start, body, end, handler)


class Alike:
    """Messages as the one in the buffer from ``start`` to ``end``, whose payload is at ``body``."""

    def __init__(self, client, start, body, end, handler):
        self._view = client._view
        self._header = bytes(self._view[start:body])
        self._span = end - start
        self._handler = handler
        self._startswith = client._buf.startswith  # to bind it takes 16 bytes of heap

    def poll(self, client):
        """Dispatch those that come next and are whole; return how many."""
        header = self._header
        size = len(header)
        span = self._span
        handler = self._handler
        view = self._view
        startswith = self._startswith
        count = 0
        start = client._start
        last = client._end - span  # where the last whole one can begin
        while start <= last and startswith(header, start):
            client._start = end = start + span
            body = start + size
            handler(view, start + _HEADER, body, body, end)
            count += 1
            start = client._start
            if start != end or client._alike is not self:
                break  # the handler closed the link, or subscribed
        return count
