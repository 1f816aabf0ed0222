"""What survives a reset, and a power cut at any byte: the store of an outage ring."""

import gc
import os
import struct
import time
from binascii import crc32

from checks import IS_EMULATED, Memory, check, equal, raises, run
from clients_in_memory import broker
from store_media import Flash, Flashed, PowerCut, Rtc, kept

import umotemq.store
from umotemq.fmqp import FmqpClient
from umotemq.outage import Ring
from umotemq.store import FileStore, RtcStore

_PATH = "store-check"


def work(store, done):
    """Add, and confirm now and then; ``done``: what is promised."""
    for sequence in range(store.last + 1, store.last + 40):
        message = b"%d" % sequence + bytes(sequence % 7)
        store.append(sequence, 800000000, 1, message)
        done[0] = sequence
        if sequence % 5 == 0:
            done[2] = sequence - 2
            store.confirm(sequence - 2)
            done[1] = sequence - 2


def cut_everywhere(make, media, total):
    """Cut the power at every byte; nothing that was promised is lost, nothing broken is read."""
    step = 37 if IS_EMULATED else 1
    gc.collect()
    for cut in range(0, total, step):
        flash = media()
        store = make(flash)
        done = [0, 0, 0]  # added, confirmed, and being confirmed
        flash.left = cut
        try:
            work(store, done)
            raise AssertionError("%d bytes were enough" % cut)
        except PowerCut:
            pass
        flash.left = None
        store = make(flash)
        found = kept(store)
        # All that was added and not confirmed, in order; perhaps the one on the way.
        first = done[1] + 1
        if found and found[0] > first and done[2] > done[1]:
            first = done[2] + 1
        want = list(range(first, done[0] + 1))
        equal(found in (want, want + [done[0] + 1]), True, "cut at %d: %r, %r" % (cut, found, done))
        equal(store.count, len(found))
        # It goes on.
        again = store.last + 1
        store.append(again, 0, 1, b"%d" % again + bytes(again % 7))
        equal(kept(make(flash)), found + [again])


@check
def power_may_fail_at_any_byte():
    cut_everywhere(Flashed, Flash, 900)


@check
def a_reset_may_come_at_any_byte_of_rtc_memory():
    cut_everywhere(lambda rtc: RtcStore(rtc, 1200), Rtc, 700)


@check
def a_store_is_bounded_and_the_oldest_give_way():
    for store in (Flashed(Flash()), RtcStore(Rtc(), 600)):
        for sequence in range(1, 100):
            store.append(sequence, 0, 1, b"%d" % sequence + bytes(sequence % 7))
        found = kept(store)
        equal(found, list(range(100 - len(found), 100)))
        equal((store.count, store.dropped), (len(found), 99 - len(found)))
        equal(8 < len(found) < 40, True)
        store.confirm(99)
        equal((store.count, kept(store)), (0, []))


@check
def numbers_go_on_when_all_is_confirmed():
    flash = Flash()
    store = Flashed(flash)
    for sequence in range(1, 4):
        store.append(sequence, 0, 1, b"x")
    store.confirm(3)
    equal((Flashed(flash).last, Flashed(flash).count, len(flash.files)), (3, 0, 1))


def _forget():
    for name in os.listdir():
        if name.startswith(_PATH):
            os.remove(name)


@check
def files_are_what_they_were():
    try:
        _forget()
    except OSError:
        return  # no file system
    try:
        for turn in range(3):
            store = FileStore(_PATH, 1000)
            equal((store.count, store.last), (turn * 2, turn * 3))
            for n in range(1, 4):
                sequence = turn * 3 + n
                store.append(sequence, 0, 1, b"%d" % sequence + bytes(sequence % 7))
            equal(kept(store)[-3:], [turn * 3 + 1, turn * 3 + 2, turn * 3 + 3])
            store.confirm(turn + 1)
        raises(OSError, FileStore, "/nowhere/at/all")
    finally:
        _forget()


@check
def a_ring_goes_on_after_a_reset():
    for always in (False, True):
        flash = Flash()
        published = got = 0
        order = []
        for life in range(6):
            stream = Memory()
            stream.answer = broker
            ring = Ring(150, store=Flashed(flash, 3000), always=always)
            client = FmqpClient(stream, name=b"n", outage=ring, retry_ms=20)
            if life % 2:
                client.connect(timeout_ms=1000)
                client.run(20)
            for _ in range(20):
                published += 1
                client.publish(b"m", b"%04d" % published, confirm=True)
            if life % 2:
                left = 1000
                while ring.count and left:
                    client.poll(1)
                    left -= 1
                equal(ring.count, 0)
            elif always:
                equal(ring.count, 20)
            sent = stream.sent
            at = sent.find(b"\x01\0\0\0\x04m")
            while at >= 0:
                order.append(int(sent[at + 6 : at + 10]))
                at = sent.find(b"\x01\0\0\0\x04m", at + 1)
            # No farewell: the board is reset.
            sent = ring = client = stream = None
            gc.collect()
        got = sorted(set(order))
        equal(got, list(range(1, published + 1)), "always %s" % always)
        equal(order == got or len(order) > len(got), True)


@check
def what_a_lost_link_left_unconfirmed_is_in_the_store():
    flash = Flash()
    stream = Memory()
    stream.answer = broker
    ring = Ring(300, store=Flashed(flash, 2000))
    client = FmqpClient(stream, name=b"n", outage=ring, retry_ms=10000)
    client.connect(timeout_ms=1000)
    client.publish(b"m", b"confirmed", confirm=True)
    client.ping()
    client.poll(0)
    equal((ring.count, len(flash.files)), (0, 0))  # flash is not worn while the link is up
    stream.answer = None
    start = time.time()
    for n in range(3):
        client.publish(b"m", b"%d" % n, confirm=True)
    stream.ended = True
    client.poll(100)
    equal((client.up, ring.count), (False, 3))
    found = Ring(300, store=Flashed(flash, 2000))
    equal((found.count, found.sequence), (3, 5))
    store = Flashed(flash, 2000)
    head = flash.read(1, 0, 12)
    equal(0 <= int.from_bytes(head[8:12], "big") - int(start) <= 5, True, "the time")
    equal(store.read(0)[2][-1:], b"0")


class Long:
    """One segment of ``count`` messages of the same size, made when they are read."""

    can_overwrite = False
    span = 17

    def __init__(self, count):
        self.count = count

    def numbers(self):
        return [1]

    def length(self, number):
        return self.count * self.span

    def read(self, number, at, size):
        sequence = at // self.span + 1
        if sequence > self.count:
            return b""
        record = struct.pack(">BBHII", 0xA5, 1, 1, sequence, 0) + b"x"
        record += struct.pack(">I", crc32(record))
        return record[at % self.span : at % self.span + size]


@check
def a_long_outage_is_found_whatever_the_heap():
    """20,000 numbers are 80 KB."""
    count = 400 if IS_EMULATED else 20000
    store = umotemq.store._Log(Long(count), 1 << 20, 4)
    equal((store.count, store.last, store.read(0)[0]), (count, count, 1))


run()
