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
from time import ticks_add, ticks_ms

from micropython import const

from umotemq.link import Link, LinkError, NoAnswer, WireError

_CONNECT = const(1)
_CONNACK = const(2)
_HEADER = const(3)
_MAX_DATA = const(65463)
_WHY = (
    "forbidden",
    "accepted",
    "version not supported: update client or broker",
    "server unavailable: try later",
    "malformed: is this client_id allowed?",
    "unauthorized: client_id unknown, or in use",
)


class Refused(LinkError):
    """The broker answered CONNECT with a refusal; the client's ``code`` is its return code."""


class LightmqClient(Link):
    """One LightMQ client. Data is bytes. The options: those of Link, and

    ``handler(data)``: called for every SEND of the broker; the bytes it returns are the response
    (None: an empty one). ``on_response(data)``: called for responses to ``post``. ``dialect``:
    ``spec``, or ``gbaranski`` (the opcodes of the Go program). ``window``: how many posts may
    await their response. ``code`` is the last CONNACK's.
    """

    handler = None
    on_response = None
    dialect = "spec"
    window = 8

    def __init__(self, transport, client_id, **options):
        if not 0 < len(client_id) < 256:
            raise ValueError("client_id: 1 to 255 bytes")
        self.code = None
        Link.__init__(self, transport, **options)
        self.client_id = client_id
        # PONG and SENDRESP are one more than these. Accepted is 0, or 1.
        self._go = self.dialect != "spec"
        self._ping, self._request = (5, 3) if self._go else (3, 5)
        self._id = random.getrandbits(16)
        self._waiting = {}  # id of a SEND: None, or its response if send() waits for it
        self._length = self._format = None

    def send(self, data, timeout_ms=5000):
        """Send ``data`` and return the response. Raises NoAnswer, LinkError."""
        self._need_up()
        until = ticks_add(ticks_ms(), timeout_ms)
        number = self._post(data, None)
        waiting = self._waiting
        try:
            while waiting[number] is None:
                self._await(until)
            return waiting[number]
        finally:
            waiting.pop(number, None)

    def post(self, data, timeout_ms=5000):
        """Send ``data`` without awaiting its response; waits while ``window`` posts are open.

        Responses to what an ``outage`` kept are discarded.
        """
        if self.up:
            self.flush(timeout_ms, self.window - 1)
        self._post(data, False)

    def flush(self, timeout_ms=5000, leave=0):
        """Wait until at most ``leave`` posts await their response. Raises NoAnswer, LinkError."""
        until = ticks_add(ticks_ms(), timeout_ms)
        waiting = self._waiting
        try:
            while len(waiting) > leave:
                self._await(until)
        except NoAnswer:
            for number in [n for n in waiting if waiting[n] is False]:
                del waiting[number]  # a later answer is late
            raise

    def _next_id(self):
        # Never one that still awaits its response.
        while True:
            self._id = (self._id + 1) & 0xFFFF
            if self._id not in self._waiting:
                return self._id

    def _post(self, data, kept):
        number = self._next_id()
        size = self._pack(self._request, number, data, 1, False)
        if self.up:
            self._waiting[number] = kept
        self._commit(size)
        return number

    def _pack(self, operation, number, data=b"", flags=0, own=True):
        # Put a frame where there is room; ``flags`` is how many bytes of them. Return its size.
        length = len(data)
        if length > _MAX_DATA:
            raise ValueError("at most 65463 bytes")
        size = _HEADER + 2 + flags + length
        at = self._begin(size, own)
        if length != self._length:
            self._length = length
            self._format = "%ds" % length
        # pack_into with a format made before copies the data without allocating.
        struct.pack_into(">BHH", self._to, at, operation, size - _HEADER, number)
        self._to[at + 5] = 0
        struct.pack_into(self._format, self._to, at + size - length, data)
        return size

    def _introduce(self):
        if self._told:
            return False
        self._told = 1
        self._waiting = {}
        size = len(self.client_id)
        at = self._begin(size + 4, True)
        head = ">BHB%ds" % size
        struct.pack_into(head, self._out, at, _CONNECT, size + 1, size, self.client_id)
        self._last = size + 4
        return True

    def _keepalive(self):
        self._asked = True
        self._asking = self._next_id()
        self._last += self._pack(self._ping, self._asking)

    def _take(self):
        handled = 0
        while True:
            if self._skip and not self._skipped():
                return handled
            start = self._start
            have = self._end - start
            size = have and self._size(start, have)
            if not size or have < size <= self.rx_size:
                return handled
            if size > self.rx_size:
                self._skip = size
            else:
                self._start += size
                if self._deliver(start, start + size):
                    handled += 1
                    continue
            self.discarded += 1

    def _size(self, start, have):
        # Of the frame there, in bytes; 0: not known yet, or it has to wait.
        buf = self._buf
        operation = buf[start]
        length = buf[start + 1] << 8 | buf[start + 2] if have >= _HEADER else -1
        kind = operation - self._request
        if not self.up:
            good = operation == _CONNACK and length in (1, -1)
        elif kind == 0 or kind == 1:
            good = length == -1 or length > 2 - kind
        else:
            # PONG's description says "no payload", its table two bytes: both are accepted.
            kind = operation - self._ping
            good = (0 <= kind <= 1 and length in (2, -1)) or (kind == 1 and not length)
        if not good:
            what = "not a frame of this dialect: opcode %d"
            self._fail("receive", what % operation, WireError)
        # What has to be answered waits until there is room for the answer.
        if length < 0 or (self._last and not kind and not self._flush()):
            return 0
        return _HEADER + length

    def _deliver(self, start, end):
        buf = self._buf
        operation = buf[start]
        start += _HEADER
        if not self.up:
            self.code = code = buf[start]
            if code != self._go:
                code += not self._go
                why = _WHY[code] if code < len(_WHY) else "not defined"
                self._fail("connect", "refused, code %d, %s" % (self.code, why), Refused)
            self._ready()
            return True
        number = buf[start] << 8 | buf[start + 1] if end - start >= 2 else self._asking
        if operation == self._ping:
            self._last += self._pack(operation + 1, number)
        elif operation == self._ping + 1:
            self._answered = number
        elif operation == self._request:
            stream = self.stream
            answer = self.handler and self.handler(bytes(self._view[start + 3 : end]))
            if self.stream is stream:
                self._last += self._pack(operation + 1, number, answer or b"")
        elif number not in self._waiting:
            return False  # too late, or never asked
        else:
            data = bytes(self._view[start + 2 : end])
            if self._waiting[number] is None:
                self._waiting[number] = data
            else:
                del self._waiting[number]
                if self.on_response:
                    self.on_response(data)
        return True
