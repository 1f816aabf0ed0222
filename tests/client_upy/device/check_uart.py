"""The UART transport over a driver that behaves like the RP2's, or waits like the ESP32's."""

import asyncio
import select
import sys
import time

from checks import check, equal, now, raises, run, since, within
from scripted_uart import ScriptedMachine

from umotemq.aio import Aio
from umotemq.fmqp import FmqpClient
from umotemq.link import LinkError
from umotemq.uart import Uart

ScriptedMachine().install()


def opened(quiet_ms=0, **options):
    """Return a stream and its driver."""
    transport = Uart(1, 115200, quiet_ms=quiet_ms, **options)
    stream = transport.open()
    if not quiet_ms:
        stream.write(b"")
    return stream, transport.uart


def until(condition, ms=2000):
    start = time.ticks_ms()
    while not condition():
        if time.ticks_diff(time.ticks_ms(), start) > ms:
            raise AssertionError("not within %d ms" % ms)


@check
def what_the_driver_is_told():
    transport = Uart(1, 921600, 4, 5, size=1000, rts="x")
    pins = {"tx": "pin 4", "rx": "pin 5", "rts": "x"}
    equal(transport.uart.settings, (1, 921600, 1000, 1000, 0, pins))
    equal(Uart(0, 9600).uart.settings, (0, 9600, 4096, 4096, 0, {}))


@check
def reads_are_bounded_by_what_has_arrived():
    stream, uart = opened()
    buffer = bytearray(4)
    equal(stream.readinto(buffer), None)
    uart.incoming = b"abcdef"
    equal((stream.readinto(buffer), bytes(buffer)), (4, b"abcd"))
    equal((stream.readinto(buffer), bytes(buffer[:2])), (2, b"ef"))


@check
def no_bytes_are_no_end():
    # ESP32: noise on an RS485 line is seen as a byte that then cannot be read.
    stream, uart = opened()
    uart.any = lambda: 1
    uart.readinto = lambda buffer, count: 0
    equal(stream.readinto(bytearray(4)), None)


@check
def an_opened_line_is_silent_and_forgets():
    transport = Uart(1, 115200, quiet_ms=100)
    uart = transport.uart
    uart.incoming = b"x" * 200
    stream = transport.open()
    buffer = bytearray(64)
    equal((stream.write(b"a"), stream.readinto(buffer)), (None, None))
    uart.incoming = b"x" * 136
    within(80, 1000, until, lambda: stream.write(b"begin"))
    equal((uart.incoming, uart.outgoing), (b"", b"begin"))
    uart.incoming = b"new"
    equal(stream.readinto(buffer), 3)
    # And so whenever it is opened again; a peer that never stops is heard in the end.
    uart.any = lambda: 9
    uart.read = bytes
    uart.readinto = lambda buffer, count: count
    stream = transport.open()
    within(80, 1000, until, lambda: stream.readinto(buffer) == 9)


@check
def a_client_works_over_it():
    transport = Uart(1, 115200, quiet_ms=30)
    uart = transport.uart
    uart.room = 5
    uart.incoming = b"\x80 stale"
    client = FmqpClient(transport, name=b"")
    got = []
    client.subscribe(b"a/b", lambda topic, payload: got.append(payload))
    client.connect(timeout_ms=2000)
    client.publish(b"c", b"0123456789")
    said = b"\x80\x03\0\0\0\0a/b\0\x01\0\0\0\x0ac0123456789"
    equal(uart.outgoing.endswith(said), True, uart.outgoing)
    uart.incoming = b"\0\x03\0\0\0\x02a/bhi"
    equal(client.poll(100), 1)
    equal(got, [b"hi"])
    equal(within(40, 300, client.poll, 50), 0)
    client.close()


@check
def asyncio_works_over_it():
    async def main():
        transport = Uart(1, 115200, quiet_ms=30)
        uart = transport.uart
        uart.room = 5
        uart.echoes = True
        got = []
        client = FmqpClient(transport)
        client.subscribe(b"c", lambda topic, payload: got.append(payload))
        async with Aio(client) as link:
            await link.connect(timeout_ms=2000)
            await link.publish(b"c", b"0123456789")
            await link.ping(2000)
        equal(got, [b"0123456789"])

    within(20, 1000, asyncio.run, main())


@check
def a_line_that_takes_nothing_is_noticed():
    transport = Uart(1, 115200, quiet_ms=0)
    client = FmqpClient(transport, name=b"", timeout_ms=100)
    client.connect(timeout_ms=1000)
    transport.uart.stuck = True
    within(90, 1100, raises, "timeout", client.publish, b"a", b"b")
    client.close()


@check
def a_silence_that_is_longer_than_the_timeout():
    transport = Uart(1, 115200, quiet_ms=1000)
    client = FmqpClient(transport, timeout_ms=100, retry_ms=0)
    error = within(90, 1100, raises, LinkError, client.connect, timeout_ms=2000)
    equal("uart 1" in str(error), True, str(error))


@check
def a_driver_that_waits_is_given_what_fits():
    # Much more than its buffer of 512, at the rate of the line. In pieces of a kilobyte, as a heap
    # that is not new may have none for all of it.
    stream, uart = opened(size=512)
    uart.waits = True
    data = memoryview(bytes(range(256)) * 4)
    size = 3 * len(data)
    sent = 0
    start = now()
    while sent < size:
        given = data[sent % len(data) :]
        taken = stream.write(given) or 0
        equal(uart.outgoing == given[:taken], True)
        uart.outgoing = b""
        sent += taken
    took, working = time.ticks_diff(time.ticks_ms(), start[0]), since(start)
    ideal = (size - 512) * 10000 // 115200
    in_time = ideal - 20 <= took and working <= 3 * ideal
    equal(in_time, True, "%d ms, at best %d" % (took, ideal))


@check
def a_write_that_comes_late_is_counted_from_then():
    stream, uart = opened(size=512)
    uart.waits = True
    uart.late_ms = 20  # 230 bytes
    data = bytes(600)
    sent = stream.write(data)
    for _ in range(100):
        sent += stream.write(data) or 0  # the driver fails if that is too much
        if sent > 1500:
            return
        time.sleep_ms(2)
    equal(sent, "more than 1500")


@check
def waiting_for_it_sleeps():
    if sys.implementation.name != "micropython":
        return  # CPython has nothing to wait for: the client looks every millisecond
    transport = Uart(1, 115200, size=256, quiet_ms=100)
    stream = transport.open()
    poller = select.poll()
    poller.register(stream.pollable, select.POLLIN)
    transport.uart.incoming = b"stale"
    equal(stream.write(b"a"), None)  # what came before the silence is over wakes nobody
    equal(within(40, 300, poller.poll, 50), [])
    transport.uart.incoming = b"new"
    equal(within(0, 30, poller.poll, 5000)[0][1], select.POLLIN)


@check
def messages_allocate_nothing():
    if sys.implementation.name != "micropython":
        return
    import gc

    stream, uart = opened()
    buffer = bytearray(64)
    data = memoryview(bytes(16))
    uart.write = len
    uart.any = lambda: 0
    stream._sent = 0
    stream.write(data)
    gc.collect()
    before = gc.mem_alloc()
    for _ in range(100):
        stream.write(data)
        stream.readinto(buffer)
    equal(gc.mem_alloc() - before, 0)


run()
