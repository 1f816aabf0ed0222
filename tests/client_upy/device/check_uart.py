"""The UART stream over a UART that behaves like the RP2040's driver."""

from checks import check, equal, raises, run, within

from umotemq.fmqp import FmqpClient
from umotemq.link import LinkTimeout
from umotemq.uart import UartStream


class Uart:
    """Greedy reads would block for ever here; writes take ``room`` bytes at a time."""

    def __init__(self, room=1 << 20):
        self.incoming = b""
        self.outgoing = b""
        self.room = room
        self.stuck = False

    def any(self):
        return len(self.incoming)

    def readinto(self, buffer, count):
        if not 0 < count <= len(self.incoming):
            raise AssertionError("asked for %d of %d bytes" % (count, len(self.incoming)))
        buffer[:count] = self.incoming[:count]
        self.incoming = self.incoming[count:]
        return count

    def write(self, data):
        if self.stuck:
            return None
        self.outgoing += bytes(data[: self.room])
        return min(len(data), self.room)


class Unpollable(UartStream):
    def __init__(self, uart):
        UartStream.__init__(self, uart)
        self.pollable = None


@check
def reads_are_bounded_by_what_has_arrived():
    uart = Uart()
    stream = UartStream(uart)
    buffer = bytearray(4)
    equal(stream.readinto(buffer), None)
    uart.incoming = b"abcdef"
    equal((stream.readinto(buffer), bytes(buffer)), (4, b"abcd"))
    equal((stream.readinto(buffer), bytes(buffer[:2])), (2, b"ef"))


@check
def stale_bytes_are_discarded():
    uart = Uart()
    uart.incoming = b"x" * 200
    stream = UartStream(uart)
    equal(within(10, 300, stream.discard, 20, 500), 200)

    class Babbling(Uart):
        def any(self):
            self.incoming = b"y"
            return 1

    within(90, 300, UartStream(Babbling()).discard, 20, 100)


@check
def a_client_works_over_it():
    uart = Uart(room=5)
    client = FmqpClient(Unpollable(uart))
    got = []
    client.subscribe(b"a/b", lambda topic, payload: got.append(payload))
    client.publish(b"c", b"0123456789")
    equal(uart.outgoing, b"\x80\x03\0\0\0\0a/b\0\x01\0\0\0\x0ac0123456789")
    uart.incoming = b"\0\x03\0\0\0\x02a/bhi"
    equal(client.poll(100), 1)
    equal(got, [b"hi"])
    equal(within(40, 300, client.poll, 50), 0)
    client.close()


@check
def a_line_that_takes_nothing_is_noticed():
    uart = Uart()
    uart.stuck = True
    client = FmqpClient(Unpollable(uart), timeout_ms=100)
    within(90, 400, raises, LinkTimeout, client.publish, b"a", b"b")


run()
