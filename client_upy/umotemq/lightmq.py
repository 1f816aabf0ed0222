"""A LightMQ client: requests and responses with the broker; over any stream (see umotemq.link).

from umotemq import lightmq, tcp
client = lightmq.LightmqClient(tcp.connect("192.168.1.2", 1997), b"kitchen", print)
client.connect()
answer = client.send(b"hello")
while True:
    client.poll(1000)
"""

import random
import struct

from umotemq.link import Link, LinkError, LinkTimeout, NoAnswer, WireError

try:
    from time import ticks_add, ticks_diff, ticks_ms, ticks_us

    from micropython import const
except ImportError:
    from umotemq._cpython import const, ticks_add, ticks_diff, ticks_ms, ticks_us

_CONNECT = const(1)
_CONNACK = const(2)
_HEADER = const(3)
_MAX_DATA = const(65463)

# (PING, PONG, SEND, SENDRESP), the code for "accepted", and what the refusals ask for.
_UNAVAILABLE = "the server is unavailable: try again later"
_MALFORMED = "malformed CONNECT: is this client id allowed there?"
_VERSION = "protocol version not supported: use a newer client or broker"
_UNAUTHORIZED = "unauthorized: is this client id in use already, or unknown there?"
_DIALECTS = {
    "spec": (
        (3, 4, 5, 6),
        0,
        {1: _VERSION, 2: _UNAVAILABLE, 3: _MALFORMED, 4: _UNAUTHORIZED},
    ),
    "gbaranski": (
        (5, 6, 3, 4),
        1,
        {0: "forbidden", 2: _VERSION, 3: _UNAVAILABLE, 4: _MALFORMED, 5: _UNAUTHORIZED},
    ),
}


class Refused(LinkError):
    """The broker answered CONNECT with a refusal; ``code`` is its return code."""

    def __init__(self, code: int, what: str):
        LinkError.__init__(self, "connect", "refused with code %d, %s" % (code, what))
        self.code = code


class LightmqClient(Link):
    """One LightMQ connection; ``connect()`` comes first.

    ``handler(data)`` is called for every SEND of the broker; the bytes it returns are the
    response (None: an empty one). ``on_response(data)`` is called for responses to ``post``.
    ``dialect``: ``spec``, or ``gbaranski`` (the opcodes of the Go program). ``window``: how many
    posts may await their response. The other arguments: see Link. Keepalives are PINGs: a silent
    broker is noticed ``timeout_ms`` after one. Data is bytes.
    """

    def __init__(
        self,
        stream,
        client_id: bytes,
        handler=None,
        on_response=None,
        dialect: str = "spec",
        window: int = 8,
        rx_size: int = 1024,
        tx_size: int = 512,
        timeout_ms: int = 5000,
        keepalive_ms: int = 20000,
    ):
        if not 0 < len(client_id) < 256:
            raise ValueError("client_id: want 1 to 255 bytes, not %d" % len(client_id))
        Link.__init__(self, stream, rx_size, tx_size, timeout_ms, keepalive_ms)
        self.client_id = client_id
        self.handler = handler
        self.on_response = on_response
        self.window = window
        operations, self._accepted, self._refusals = _DIALECTS[dialect]
        self._ping, self._pong, self._request, self._response = operations
        self._ready = self._connecting = False
        self._id = random.getrandbits(16)
        self._ping_id = -1  # of the PING that is not answered yet
        self._waiting = {}  # id of a SEND: None, or its response if send() waits for it
        self._request_length = self._response_length = -1
        self._request_format = self._response_format = ""

    def connect(self, timeout_ms: int = 5000) -> None:
        """Introduce this client. Raises Refused, LinkTimeout, WireError, LinkClosed."""
        if self._ready or self._connecting:
            raise ValueError("connect() was called already: LightMQ allows one CONNECT")
        self._connecting = True
        size = len(self.client_id)
        self._write(struct.pack(">BHB", _CONNECT, size + 1, size) + self.client_id)
        until = ticks_add(ticks_ms(), timeout_ms)
        while self._connecting:
            left = ticks_diff(until, ticks_ms())
            if left <= 0:
                self._fail(LinkTimeout("connect", "no CONNACK within %d ms" % timeout_ms))
            if self._fill(left):
                self._take()

    def ping(self, timeout_ms: int = 5000) -> int:
        """Return the round trip to the broker in µs. Raises NoAnswer after ``timeout_ms``."""
        self._need_ready()
        start = ticks_us()  # before the write: the PONG may be here when it returns
        number = self._ask()
        until = ticks_add(ticks_ms(), timeout_ms)
        while self._ping_id == number:
            left = ticks_diff(until, ticks_ms())
            if left <= 0:
                raise NoAnswer("ping: no PONG within %d ms" % timeout_ms)
            self.poll(left)
        return ticks_diff(ticks_us(), start)

    def send(self, data: bytes, timeout_ms: int = 5000) -> bytes:
        """Send ``data`` and return the response. Raises NoAnswer after ``timeout_ms``."""
        number = self._post(data)
        self._waiting[number] = None
        until = ticks_add(ticks_ms(), timeout_ms)
        while self._waiting[number] is None:
            left = ticks_diff(until, ticks_ms())
            if left <= 0:
                del self._waiting[number]
                raise NoAnswer("send: no response within %d ms" % timeout_ms)
            self.poll(left)
        return self._waiting.pop(number)

    def post(self, data: bytes, timeout_ms: int = 5000) -> None:
        """Send ``data`` without awaiting its response; waits while ``window`` posts are open."""
        self.flush(timeout_ms, self.window - 1)
        self._waiting[self._post(data)] = False

    def flush(self, timeout_ms: int = 5000, leave: int = 0) -> None:
        """Wait until at most ``leave`` posts await their response. Raises NoAnswer."""
        until = ticks_add(ticks_ms(), timeout_ms)
        while len(self._waiting) > leave:
            left = ticks_diff(until, ticks_ms())
            if left <= 0:
                missing = len(self._waiting) - leave
                for number in [n for n in self._waiting if self._waiting[n] is False]:
                    del self._waiting[number]  # a later answer is late
                raise NoAnswer("flush: %d responses missing after %d ms" % (missing, timeout_ms))
            self.poll(left)

    def _need_ready(self) -> None:
        if not self._ready and self.down is None:
            raise ValueError("call connect() first")

    def _next_id(self) -> int:
        # Never one that still awaits its response.
        while True:
            self._id = (self._id + 1) & 0xFFFF
            if self._id not in self._waiting:
                return self._id

    def _post(self, data: bytes) -> int:
        self._need_ready()
        length = len(data)
        size = _HEADER + 3 + length
        self._check_fits(length, size)
        number = self._next_id()
        # pack_into with a format made before copies the data without allocating.
        if length != self._request_length:
            self._request_length = length
            self._request_format = ">BHHB%ds" % length
        struct.pack_into(
            self._request_format, self._out, 0, self._request, 3 + length, number, 0, data
        )
        self._send_out(size)
        return number

    def _respond(self, number: int, data: bytes) -> None:
        length = len(data)
        size = _HEADER + 2 + length
        self._check_fits(length, size)
        if length != self._response_length:
            self._response_length = length
            self._response_format = ">BHH%ds" % length
        struct.pack_into(
            self._response_format, self._out, 0, self._response, 2 + length, number, data
        )
        self._send_out(size)

    def _check_fits(self, length: int, size: int) -> None:
        if size > len(self._out) or length > _MAX_DATA:
            what = "data of %d bytes; tx_size is %d: make it larger when making the client"
            raise ValueError(what % (length, len(self._out)))

    def _short(self, operation: int, number: int) -> None:
        struct.pack_into(">BHH", self._out, 0, operation, 2, number)
        self._send_out(_HEADER + 2)

    def _ask(self) -> int:
        self._ping_id = self._next_id()
        self._short(self._ping, self._ping_id)
        return self._ping_id

    def _keepalive(self, now: int) -> None:
        if self._ready:
            if self._asked is None:
                self._asked = now
            self._ask()

    def _take(self) -> int:
        buf = self._buf
        handled = 0
        while True:
            if self._skip and not self._skipped():
                return handled
            start = self._start
            have = self._end - start
            if have < _HEADER:
                # A wrong first byte is told at once, not when the rest of a header has come.
                if have:
                    self._check_frame(buf[start], -1)
                return handled
            length = buf[start + 1] << 8 | buf[start + 2]
            self._check_frame(buf[start], length)
            size = _HEADER + length
            if size > len(buf):
                self._skip = size
                self.discarded += 1
                continue
            if have < size:
                return handled
            self._start = start + size
            handled += self._frame(buf[start], start + _HEADER, start + size)

    def _check_frame(self, operation: int, length: int) -> None:
        # length -1: not known yet.
        if not self._ready:
            if operation != _CONNACK or length not in (1, -1):
                self._broken("instead of a CONNACK: is a LightMQ broker listening there?")
            return
        if operation == self._request:
            wrong = 0 <= length < 3
        elif operation == self._response:
            wrong = 0 <= length < 2
        elif operation == self._ping:
            wrong = length not in (2, -1)
        elif operation == self._pong:
            # Its description says "no payload", its table two bytes: both are accepted.
            wrong = length not in (2, 0, -1)
        else:
            self._broken("opcode %d" % operation)
        if wrong:
            self._broken("opcode %d of length %d" % (operation, length))

    def _broken(self, what: str) -> None:
        self._fail(WireError("receive", "not a frame of this dialect: " + what))

    def _frame(self, operation: int, start: int, end: int) -> int:
        buf = self._buf
        if not self._ready:
            self._accept(buf[start])
            return 0
        number = buf[start] << 8 | buf[start + 1] if end - start >= 2 else self._ping_id
        if operation == self._ping:
            self._short(self._pong, number)
            return 0
        if operation == self._pong:
            if number == self._ping_id:
                self._ping_id = -1
            return 1
        if operation == self._response:
            return self._settle(number, start + 2, end)
        answer = None
        if self.handler:
            answer = self.handler(bytes(self._view[start + 3 : end]))
        self._respond(number, answer or b"")
        return 1

    def _accept(self, code: int) -> None:
        self._connecting = False
        if code != self._accepted:
            self._fail(Refused(code, self._refusals.get(code, "which is not defined")))
        self._ready = True

    def _settle(self, number: int, start: int, end: int) -> int:
        if number not in self._waiting:
            self.discarded += 1  # too late, or never asked
            return 0
        if self._waiting[number] is None:
            self._waiting[number] = bytes(self._view[start:end])
        else:
            del self._waiting[number]
            if self.on_response:
                self.on_response(bytes(self._view[start:end]))
        return 1
