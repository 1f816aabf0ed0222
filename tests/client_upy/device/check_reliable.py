"""The board's side of the reliable link, over lines in memory; its bytes of heap."""

import sys

from checks import Blocked, Memory, check, equal, raises, run
from played_bridge import ACCEPT, ACK, CLOSE, DATA, OPEN, SESSION, framed, transport, up

from umotemq.fmqp import FmqpClient


@check
def a_line_that_takes_little_gets_whole_frames():
    line = Blocked()
    stream = up(line)
    data = bytes(range(200))
    line.room = 0
    equal(stream.write(data), 200)
    sent = b""
    for _ in range(300):
        line.room = 1
        stream.write(b"")
        sent += line.take()
    equal(sent, framed(DATA, SESSION, data, by=0))


@check
def eight_frames_wait_and_no_more():
    line = Memory()
    stream = up(line)
    equal(stream.write(bytes(5000)), 8 * 243)
    equal(stream.write(b"x"), None)
    line.feed(framed(ACK, SESSION, b"", b"\0\x03\x08\0"))
    equal(stream.write(bytes(5000)), 3 * 243)


@check
def no_more_is_sent_than_the_bridge_has_room_for():
    line = Memory()
    stream = up(line)
    line.feed(framed(ACK, SESSION, b"", b"\0\0\x02\0"))
    stream.write(b"")
    stream.write(bytes(5 * 243))
    equal(len(line.take()), 2 * 257)
    line.feed(framed(ACK, SESSION, b"", b"\0\x02\x01\0"))
    stream.write(b"")
    equal(len(line.take()), 257)


@check
def a_line_that_fails_is_told_and_opened_again():
    line = Memory()
    stream = up(line)

    def broken(_):
        raise OSError("pulled")

    line.write = broken
    stream.write(b"x")
    equal(str(raises(OSError, stream.write, b"x")), "line: pulled")
    equal(str(raises(OSError, stream.readinto, bytearray(1))), "line: pulled")
    stream.close()
    del line.write
    equal(stream.open(), stream)
    equal(line.take(), framed(OPEN, SESSION + 1, b"\xf3\x88\x13", by=0))


@check
def a_closed_one_says_so():
    line = Memory()
    raises(OSError, transport(line).write, b"x")
    stream = up(line)
    stream.close()
    stream.close()
    raises(OSError, stream.write, b"x")
    raises(OSError, stream.readinto, bytearray(1))


@check
def a_client_is_up_over_it():
    line = Memory()
    client = FmqpClient(transport(line), name=b"")
    got = []
    client.subscribe(b"a/b", lambda topic, payload: got.append(payload))
    client.poll(0)
    equal(client.up, False)
    line.feed(framed(ACCEPT, SESSION, b"\xf3"))
    client.poll(20)
    client.poll(20)
    equal(client.up, True)
    equal(b"a/b" in line.take(), True)
    line.feed(framed(DATA, SESSION, b"\0\x03\0\0\0\x02a/bhi"))
    client.poll(20)
    equal(got, [b"hi"])
    line.feed(framed(CLOSE, SESSION, b"\x02", b"\0\0\0\0"))
    client.poll(20)
    equal((client.up, "bridge: " in str(client.error)), (False, True), str(client.error))
    client.close()


if sys.implementation.name == "micropython":
    import gc

    _COUNT = 32

    class Echo:
        """The bridge, prepared and without allocation: each ``next`` has its next frame come."""

        where = "echo"

        def __init__(self):
            self.come = None
            self.sent = 0
            self.at = -1

        def prepare(self, kind, payload, acknowledges):
            # Later than the link's buffers: these are in long pieces, and this is not.
            self.frames = [
                framed(kind, SESSION, payload, bytes([n, n + acknowledges, 8, 0]))
                for n in range(2 * _COUNT)
            ]
            self.come = framed(ACCEPT, SESSION, b"\xf3")

        def open(self):
            return self

        def next(self):
            self.at += 1
            self.come = self.frames[self.at]

        def write(self, data):
            self.sent += 1
            return len(data)

        def readinto(self, buffer):
            come = self.come
            if not come:
                return None
            self.come = None
            for i in range(len(come)):
                buffer[i] = come[i]
            return len(come)

    def measured(function, what):
        function()  # caches are filled now
        gc.collect()
        gc.disable()
        before = gc.mem_alloc()
        function()
        took = gc.mem_alloc() - before
        gc.enable()
        print("heap: %s: %d bytes for %d frames" % (what, took, _COUNT))
        # What the counter itself costs; on 32 bits a CRC of 30 bits and more is 32 bytes.
        limit = 64 if sys.maxsize >> 32 else 64 + 32 * _COUNT
        equal(took <= limit, True, "%d bytes" % took)

    @check
    def receiving_costs_the_crc_of_the_acknowledgement():
        line = Echo()
        stream = transport(line).open()
        line.prepare(DATA, b"telemetry" * 5, 0)
        stream.write(b"")
        buffer = bytearray(64)

        def work():
            for _ in range(_COUNT):
                line.next()
                if stream.readinto(buffer) != 45:
                    raise AssertionError

        measured(work, "received")
        equal(line.sent >= 2 * _COUNT, True, "%d acknowledgements" % line.sent)

    @check
    def checking_costs_nothing():
        line = Echo()
        stream = transport(line).open()
        line.prepare(ACK, b"", 0)
        stream.write(b"")

        def work():
            for _ in range(_COUNT):
                line.next()
                stream.write(b"")

        work()
        gc.collect()
        before = gc.mem_alloc()
        line.at = -1
        work()
        equal(gc.mem_alloc() - before <= 64, True)
        equal(line.sent, 1)

    @check
    def sending_costs_the_crc():
        line = Echo()
        stream = transport(line).open()
        line.prepare(ACK, b"", 1)
        stream.write(b"")
        payload = bytes(100)

        def work():
            for _ in range(_COUNT):
                stream.write(payload)
                line.next()
                stream.write(b"")

        measured(work, "sent")
        equal(line.sent, 1 + 2 * _COUNT)

    @check
    def frames_of_every_length_take_little_heap():
        line = Echo()
        stream = transport(line).open()
        line.come = framed(ACCEPT, SESSION, b"\xf3")
        stream.write(b"")
        buffer = bytearray(300)
        gc.collect()
        before = gc.mem_alloc()
        for size in range(1, 240):
            number = size - 1
            line.come = framed(DATA, SESSION, bytes(size), bytes([number, number, 8, 0]))
            equal(stream.readinto(buffer), size)
            equal(stream.write(bytes(size)), size)
        line.come = None
        gc.collect()
        took = gc.mem_alloc() - before
        if sys.platform != "webassembly":  # there garbage is collected between two calls of it
            equal(took <= 4096, True, "%d bytes" % took)


class _Pressed(Memory):
    """A line during whose reading somebody may press Ctrl-C."""

    pressed = False

    def readinto(self, data):
        if self.pressed:
            raise KeyboardInterrupt
        return Memory.readinto(self, data)


@check
def a_link_that_ctrl_c_ended_is_lost_and_begins_anew():
    line = _Pressed()
    stream = up(line)
    line.pressed = True
    try:
        stream.write(b"")
        raise AssertionError("it went on")
    except KeyboardInterrupt:
        pass
    line.pressed = False
    raises(OSError, lambda: stream.write(b""))
    stream.close()
    line.take()
    stream = stream.open()
    line.feed(framed(ACCEPT, SESSION, b"\xf3"))
    equal(stream.write(b"x"), 1)


run()
