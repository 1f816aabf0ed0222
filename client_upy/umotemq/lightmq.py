"""A LightMQ client: requests and responses with the broker; over any transport.

from umotemq.lightmq import LightmqClient
from umotemq.tcp import Tcp
client = LightmqClient(Tcp("192.168.1.2", 8765), "kitchen", handler=lambda data: b"done")
client.connect()
answer = client.send(b"hello")
client.run()
"""

import struct

from micropython import const

from umotemq.link import Link, LinkError, encoded, getrandbits

_CONNECT = const(1)
_CONNACK = const(2)
_HEADER = const(3)
_MAX_DATA = const(65463)
_LEAST = const(5)  # bytes of the receive buffer: of a PONG, the longest answer to what we say


class LightmqClient(Link):
    """One LightMQ client. Data is bytes, or str, which is sent as UTF-8. The options: Link's, and

    ``handler(data)``: called for every SEND of the broker; what it returns is the response
    (None: an empty one). ``on_response(data)``: called for responses to ``post``. ``dialect``:
    ``spec``, or ``gbaranski`` (the opcodes of the Go program). ``window``: how many posts may
    await their response; 0: none is awaited.

    ``code`` is the last CONNACK's. ``oversized`` counts the handler's responses that did not fit
    ``tx_size``: the peer got "error: …" instead. ``unanswered`` counts the posts whose response
    is not awaited any more: it was late, or the link was lost.
    """

    handler = on_response = None
    _format = None, None  # of what was packed last: the lengths of its parts, for struct
    dialect = "spec"
    window = 8

    def __init__(self, transport, client_id, **options):
        client_id = encoded(client_id)
        if not 0 < len(client_id) < 256:
            from umotemq.mistakes import throw

            throw("client_id", len(client_id))
        self.code = None
        self.oversized = self.unanswered = 0
        self._flushed = 0  # ``unanswered`` when ``flush`` last told of it
        self._posts = []  # ids of those that await their response, the oldest first
        Link.__init__(self, transport, options)
        # For both reasons of Link's.
        self.handler = self.handler
        self.on_response = self.on_response
        self.window = self.window
        if self.rx_size < _LEAST:
            from umotemq.mistakes import throw

            throw("rx_size", self, _LEAST)
        self.client_id = client_id
        self._ping = -1  # none yet
        # The opcodes of SEND and PING, that of the answer is one more; and CONNACK's good news.
        dialects = {"spec": (5, 3, 0), "gbaranski": (3, 5, 1)}
        self._opcode, self._ping_opcode, self._accepted = dialects[self.dialect]
        self._id = getrandbits(16)
        self._greet()  # it must fit, or the link could never come up
        self._greeted = self._last = 0

    def send(self, data, timeout_ms=5000):
        """Send ``data`` and return the response. Raises LinkError, as ``ping`` does."""
        number = self._post(data)
        sends = self._sends
        try:
            while sends[number] is None:
                timeout_ms = self._await(timeout_ms, True)
            return sends[number]
        finally:
            sends.pop(number, None)

    def post(self, data, timeout_ms=5000, *, confirm=False):
        """Send ``data`` without awaiting its response.

        Waits up to ``timeout_ms`` while ``window`` posts are open. If no response came, the oldest
        is given up, the data is sent all the same, and no later post waits before one has come.
        ``confirm``: the ``outage`` keeps the data until the response.
        """
        while self._has_to_wait(timeout_ms):
            timeout_ms = self._await(timeout_ms, True)
        self._post(data, confirm)

    def flush(self, timeout_ms=5000):
        """Return when every post since the last ``flush`` was answered.

        Raises LinkError: "unanswered" if some were not, within ``timeout_ms`` or before the link
        was lost that they went by.
        """
        while self._posts and timeout_ms > 0:
            timeout_ms = self._await(timeout_ms, True)
        self._tell_unanswered()

    def _tell_unanswered(self):
        # Await no response any more; raise LinkError if posts had none since this was last called.
        while self._posts:
            self._give_up()
        count = self.unanswered - self._flushed
        self._flushed = self.unanswered
        if count:
            raise LinkError("unanswered", "%d posts" % count)

    def _has_to_wait(self, timeout_ms):
        # Whether a post has to wait for the response to an earlier one, which may take that long.
        if self._answers and 0 < self.window <= len(self._posts):
            if timeout_ms > 0:
                return True
            self._give_up()
        return False

    def _give_up(self):
        # Do not await the response to the oldest post any more, nor, for now, to the next ones.
        self._answers = False
        self._posts.pop(0)
        self.unanswered += 1

    def _next_id(self):
        # Never one that still awaits its response, nor the last ping's.
        while True:
            number = self._id = (self._id + 1) & 0xFFFF
            if number not in self._posts and number not in self._sends and number != self._ping:
                return number

    def _post(self, data, confirm=None):
        # Send it; with ``confirm`` None it is a send(), whose response somebody waits for.
        number = self._next_id()
        self._send(self._opcode, number, encoded(data), confirm)
        if not self.up:
            pass  # the ``outage`` has it
        elif confirm is None:
            self._sends[number] = None
        elif self.window:
            if len(self._posts) >= self.window:
                self._give_up()
            self._posts.append(number)
        return number

    def _pack(self, operation, number, data=b""):
        # Put a frame behind what waits to be written.
        flags = operation == self._opcode  # how many bytes of them
        size = len(data)
        if size > _MAX_DATA:
            from umotemq.mistakes import throw

            throw("data", size)
        length = 2 + flags + size
        last = self._last
        end = self._fitting(last, last + _HEADER + length)
        lengths = size << 1 | flags
        known, format = self._format
        if known != lengths:
            # pack_into with a format made before copies the data without allocating.
            format = ">BHH%dx%ds" % (flags, size)
            self._format = lengths, format
        struct.pack_into(format, self._out, last, operation, length, number, data)
        self._last = end

    def _drop(self, error, ms):
        self.unanswered += len(self._posts)
        self._posts = []
        self._sends = {}  # id: the response to a send(), None before it came
        self._answers = True  # whether the peer answers posts at all
        Link._drop(self, error, ms)

    def _greet(self):
        if self._greeted:
            self.up = self._greeted == 2  # CONNACK came
            return False
        self._greeted = 1
        name = self.client_id
        # Its size, one byte, and its first byte are where other messages have their number.
        self._pack(_CONNECT, len(name) << 8 | name[0], name[1:])
        return True

    def _ask(self, next):
        if next:
            self._ping = self._next_id()
        self._pack(self._ping_opcode, self._ping)

    def _take(self):
        buf = self._buf
        send = self._opcode
        ping = self._ping_opcode
        handled = 0
        while True:
            start = self._start
            have = self._end - start
            if have <= 0 or (self._greeted == 2 and not self.up):
                return handled
            operation = buf[start]
            length = buf[start + 1] << 8 | buf[start + 2] if have >= _HEADER else 0
            if not self.up:
                known = operation == _CONNACK
                least = most = 1
            elif operation == send or operation == send + 1:
                known = True
                least = 3 if operation == send else 2
                most = 65535
            else:
                known = operation == ping or operation == ping + 1
                # PONG's description says "no payload", its table two bytes: both are accepted.
                least = most = 0 if operation != ping and not length else 2
            if not known or (have >= _HEADER and not least <= length <= most):
                self._fail("wire", "opcode %d" % operation)
            # What has to be answered, odd, waits until there is room for the answer.
            if have < _HEADER or (operation & 1 and not self._flush()):
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
                self.code = code = buf[start]
                if code != self._accepted:
                    self._fail("refused", code)
                self._greeted = 2  # what came behind it waits until we are up
            elif operation == ping:
                self._pack(ping + 1, number)
            elif operation == ping + 1:
                self._pong = number
            elif operation == send:
                self._answer(number, bytes(self._view[start + 3 : end]))
            elif not self._respond(number, bytes(self._view[start + 2 : end])):
                self.discarded += 1  # too late, never asked, or answered before
                continue
            handled += 1

    def _answer(self, number, data):
        # Send the response to the peer's SEND ``number``.
        stream = self.stream
        answer = encoded((self.handler and self.handler(data)) or b"")
        if self.stream is not stream:
            return  # the handler closed it
        if not self._flush():
            self._push()  # the handler sent something
        room = self.tx_size - (_HEADER + 2)
        if len(answer) > room:
            self.oversized += 1
            answer = (b"error: %d bytes, room for %d" % (len(answer), room))[:room]
        self._pack(self._opcode + 1, number, answer)

    def _respond(self, number, data):
        # Give the response to our SEND ``number`` to whoever waits for it, if anybody does.
        is_kept = self.outage is not None and self.outage.answered(number)
        if number in self._posts:
            self._answers = True
            self._posts.remove(number)
            if self.on_response:
                self.on_response(data)
        elif self._sends.get(number, b"") is None:
            self._sends[number] = data
        else:
            return is_kept
        return True

    def _renumber(self, buf, start):
        # A SEND that is kept in ``buf`` is sent again: by a number of this connection.
        struct.pack_into(">H", buf, start + 3, self._next_id())
