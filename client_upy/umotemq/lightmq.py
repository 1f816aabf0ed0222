"""A LightMQ client: requests and responses with the broker; over any transport.

from umotemq.lightmq import LightmqClient
from umotemq.tcp import Tcp
client = LightmqClient(Tcp("192.168.1.2", 8765), b"kitchen", handler=lambda data: b"done")
client.connect()
answer = client.send(b"hello")
while True:
    client.poll(1000)
"""

import random
import struct

from micropython import const

from umotemq.link import Link, LinkError

_CONNECT = const(1)
_CONNACK = const(2)
_HEADER = const(3)
_MAX_DATA = const(65463)


class LightmqClient(Link):
    """One LightMQ client. Data is bytes. The options: those of Link, and

    ``handler(data)``: called for every SEND of the broker; the bytes it returns are the response
    (None: an empty one). ``on_response(data)``: called for responses to ``post``. ``dialect``:
    ``spec``, or ``gbaranski`` (the opcodes of the Go program). ``window``: how many posts may
    await their response. ``code`` is the last CONNACK's.
    """

    handler = on_response = None
    dialect = "spec"
    window = 8

    def __init__(self, transport, client_id, **options):
        if not 0 < len(client_id) < 256:
            raise ValueError("size")
        Link.__init__(self, transport, options)
        self.client_id = client_id
        self.code = self._size = None
        # SENDRESP and PONG are one more than SEND and PING, which are 8 together.
        self._go = self.dialect != "spec"
        self._request = 3 if self._go else 5
        self._id = random.getrandbits(16)
        self._waiting = {}  # id of a SEND: True of a post(); of a send() False, then its response

    def send(self, data, timeout_ms=5000):
        """Send ``data`` and return the response. Raises LinkError, as ``ping`` does."""
        number = self._post(data, False)
        waiting = self._waiting
        try:
            while waiting[number] is False:
                timeout_ms = self._await(timeout_ms, True)
            return waiting[number]
        finally:
            waiting.pop(number, None)

    def post(self, data, timeout_ms=5000):
        """Send ``data`` without awaiting its response; waits while ``window`` posts are open.

        Responses to what an ``outage`` kept are discarded.
        """
        if self.up:
            self.flush(timeout_ms, self.window - 1)
        self._post(data, True)

    def flush(self, timeout_ms=5000, leave=0):
        """Wait until at most ``leave`` posts await their response. Raises LinkError."""
        try:
            while len(self._waiting) > leave:
                timeout_ms = self._await(timeout_ms, True)
        except LinkError:
            self._waiting = {}  # later answers are late
            raise

    def _next_id(self):
        # Never one that still awaits its response.
        while True:
            self._id = (self._id + 1) & 0xFFFF
            if self._id not in self._waiting:
                return self._id

    def _post(self, data, post):
        number = self._next_id()
        if post and self.outage is not None:
            self.outage.send(self, self._request, number, data, 1)
        else:
            self._push()
            self._pack(self._request, number, data, 1)
            self._push()
        if self.up:
            self._waiting[number] = post
        return number

    def _pack(self, operation, number, data=b"", flags=0):
        # Put a frame behind what waits to be written; ``flags`` is how many bytes of them.
        size = len(data)
        last = self._last
        self._last = end = last + _HEADER + 2 + flags + size
        if end > self.tx_size or size > _MAX_DATA:
            self._last = last
            raise (LinkError if last else ValueError)("size")
        if size * 2 + flags != self._size:
            # pack_into with a format made before copies the data without allocating.
            self._size = size * 2 + flags
            self._fmt = ">BHH%dx%ds" % (flags, size)
        length = end - last - _HEADER
        struct.pack_into(self._fmt, self._out, last, operation, length, number, data)

    def _greet(self):
        if self._told:
            return False
        self._told = 1
        self._waiting = {}
        name = self.client_id
        # Its size, one byte, and its first byte are where other messages have their number.
        self._pack(_CONNECT, len(name) << 8 | name[0], name[1:])
        return True

    def _ask(self, new):
        if new:
            self._ping = self._next_id()
        self._pack(8 - self._request, self._ping)

    def _take(self):
        buf = self._buf
        handled = 0
        while True:
            start = self._start
            have = self._end - start
            if have <= 0:
                return handled
            operation = buf[start]
            length = buf[start + 1] << 8 | buf[start + 2]
            # 0: wants an answer, 1: is one
            kind = operation - self._request
            least = 3 - kind
            most = 65535
            if not self.up:
                kind = operation != _CONNACK and 9
                least = most = 1
            elif kind & ~1:
                kind = operation - 8 + self._request
                # PONG's description says "no payload", its table two bytes: both are accepted.
                least = (length % 2 + 1 - kind) * 2
                most = 2
            if kind & ~1 or (have > 2 and not least <= length <= most):
                self._fail("wire", operation)
            # What has to be answered waits until there is room for the answer.
            if have < _HEADER or (not kind and not self._flush()):
                return handled
            self._start = end = start + _HEADER + length
            if end > self._end:
                if end - start > self.rx_size:
                    self.discarded += 1  # what lies beyond the end will not be looked at
                else:
                    self._start = start
                return handled
            start += _HEADER
            number = buf[start] << 8 | buf[start + 1] if length else self._ping
            if not self.up:
                self.code = buf[start]
                if self.code != self._go:
                    self._fail("refused", None)
                self._rise()
            elif most == 2:
                if not kind:
                    self._pack(operation + 1, number)
                else:
                    self._pong = number
            elif not kind:
                stream = self.stream
                answer = self.handler and self.handler(bytes(self._view[start + 3 : end]))
                if self.stream is stream:
                    self._pack(operation + 1, number, answer or b"")
            else:
                kept = self._waiting.get(number)
                data = bytes(self._view[start + 2 : end])
                if kept is False:
                    self._waiting[number] = data
                elif kept is True:
                    del self._waiting[number]
                    if self.on_response:
                        self.on_response(data)
                else:
                    self.discarded += 1  # too late, never asked, or answered before
                    continue
            handled += 1
