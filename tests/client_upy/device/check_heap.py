"""Bytes allocated per message, counted by MicroPython.

Argument: a file, JSON, {fault: port}; or ``memory``, where there are no sockets.
"""

import gc
import json
import sys

import micropython
from checks import Memory, check, equal, publication, run
from clients_in_memory import broker

from umotemq.fmqp import FmqpClient
from umotemq.lightmq import LightmqClient

_COUNT = 100 if sys.platform == "rp2" else 400
# What one call of the counter and one for-loop cost, once and not per message.
_ONCE = 64


def way(peer):
    """Return the transport to a peer of the fault server, or to one like it."""
    if sys.argv[1] == "memory":
        from loop_stream import Loop

        if peer == "micromsg2_echo":
            from loop_stream import Acknowledging

            return Acknowledging()
        return Loop(b"\x02\0\x01\0" if peer == "lightmq_echo" else b"", peer == "silent")
    from umotemq.tcp import Tcp

    with open(sys.argv[1]) as file:
        return Tcp("127.0.0.1", json.load(file)[peer])


def connected(client):
    client.connect(timeout_ms=2000)
    return client


def fmqp(peer, **options):
    return connected(FmqpClient(way(peer), **options))


def allocated(function):
    """Return the bytes of heap that ``function`` took, with the collector off."""
    function(4)  # caches are filled now
    gc.collect()
    gc.disable()
    try:
        before = gc.mem_alloc()
        function(_COUNT)
        return gc.mem_alloc() - before
    finally:
        gc.enable()


def none(function, what):
    took = allocated(function)
    print("heap: %s: %d bytes for %d messages" % (what, took, _COUNT))
    equal(took <= _ONCE, True, "%s took %d bytes" % (what, took))


@check
def fmqp_publishes_without_allocating():
    client = fmqp("silent", name=b"")  # without a ping it is up at once
    payload = bytearray(64)

    def publish(count):
        for n in range(count):
            client.publish(topics[n % len(topics)], payload)
            client.poll(0)

    several = [b"telemetry/temperature", "telemetry/humidity", b"telemetry/air/pressure"]
    for topics in ([b"telemetry/one"], ["telemetry/one"], several):
        none(publish, "FMQP publish to %s" % topics)
    client.close()


@check
def waiting_takes_no_heap():
    client = fmqp("silent", name=b"")

    def wait(count):
        for _ in range(count):
            client.poll(1)

    none(wait, "FMQP wait")
    client.close()


class Counter:
    def __init__(self):
        self.count = 0
        self.sum = 0

    def raw(self, view, topic_start, topic_end, start, end):
        self.count += 1
        self.sum += view[start]

    def whole(self, topic, payload):
        self.count += 1


def round_trips(client, counter):
    topic = b"a/b/c"
    payload = b"x" * 64

    def work(count):
        for _ in range(count):
            want = counter.count + 1
            client.publish(topic, payload)
            while counter.count < want:
                client.poll(2000)

    return work


@check
def fmqp_receives_without_allocating():
    client = fmqp("echo")
    counter = Counter()
    client.subscribe(b"x/y/zz", counter.raw, raw=True)
    client.subscribe(b"a/b/c", counter.raw, raw=True)
    none(round_trips(client, counter), "FMQP round trip")
    client.close()


@check
def fmqp_hears_patterns_without_allocating():
    client = fmqp("echo")
    counter = Counter()
    client.subscribe(b"*/b/c", counter.raw, raw=True)
    payload = b"x" * 64
    topics = b"a/b/c", b"d/b/c"  # in turn: none begins as the last one did

    def work(count):
        for n in range(count):
            want = counter.count + 1
            client.publish(topics[n & 1], payload)
            while counter.count < want:
                client.poll(2000)

    none(work, "FMQP round trip by a pattern")
    client.close()


@check
def lightmq_pings_without_allocating():
    client = LightmqClient(way("lightmq_echo"), b"me")
    connected(client)

    def ping(count):
        for _ in range(count):
            client.ping(2000)

    none(ping, "LightMQ ping")
    client.close()


@check
def what_is_carried_needs_no_fresh_buffer():
    # Objects that name a part of one are small; 600 bytes in one piece a full heap may not have.
    from umotemq.carried import Carried

    session = LightmqClient(way("lightmq_echo"), b"me")
    carried = Carried(session)
    carried.open()
    room, part = bytearray(1024), bytes(300)

    def read(_):
        for _ in range(20):
            session.handler(part)
            session.handler(part)  # as two SENDs in one read do
            equal(carried.readinto(room), 600)
            equal(carried.readinto(room), None)

    took = allocated(read) // 20
    print("heap: carried: %d bytes for 600" % took)
    equal(took < 300, True, "%d bytes" % took)
    carried.close()


@check
def micromsg2_publishes_and_receives_without_allocating():
    from umotemq.micromsg2 import MicroMsg2Client

    client = MicroMsg2Client(way("micromsg2_echo"), window=10)
    counter = Counter()
    client.subscribe(b"x/y/zz", counter.raw, raw=True)
    connected(client)
    client.subscribe(b"a/b/c", counter.raw, raw=True)
    none(round_trips(client, counter), "MicroMsg2 round trip")
    client.unsubscribe(b"a/b/c")
    client.subscribe(b"*/b/c", counter.raw, raw=True)
    equal("umotemq.topic" in sys.modules, True, "what it imports, it imports now")
    none(round_trips(client, counter), "MicroMsg2 round trip by a pattern")
    payload = bytearray(64)

    def publish(count):
        for n in range(count):
            client.publish(topics[n % len(topics)], payload)
            client.poll(0)

    for topics in ([b"telemetry/one"], ["telemetry/one"], [b"telemetry/one", b"telemetry/two"]):
        none(publish, "MicroMsg2 publish to %s" % topics)
    client.close()


@check
def confirmed_messages_take_no_heap():
    from umotemq.micromsg2 import MicroMsg2Client
    from umotemq.outage import Ring

    client = MicroMsg2Client(way("micromsg2_echo"), window=10, outage=Ring(2000))
    connected(client)
    payload = bytearray(64)

    def publish(count):
        for _ in range(count):
            client.publish(b"telemetry/one", payload, confirm=True)
            # What has to wait for its window is sliced, which takes heap.
            while client.outage.count > 5:
                client.poll(10)

    none(publish, "MicroMsg2 confirmed")
    client.ping(2000)
    client.poll(0)
    equal((client.outage.count, client.outage.dropped), (0, 0))
    client.close()


class Swallowing(Memory):
    """A broker; while it ``swallows``, it takes what is written, without heap, and says nothing."""

    swallows = False
    answer = staticmethod(broker)

    def write(self, data):
        return len(data) if self.swallows else Memory.write(self, data)


@check
def fmqp_keeps_what_is_to_be_confirmed_without_allocating():
    from umotemq.outage import Ring

    ring = Ring(_COUNT * 32)
    client = connected(FmqpClient(Swallowing(), name="n", outage=ring, keepalive_ms=60000))
    stream = client.stream
    payload = bytearray(4)

    def publish(count):
        for n in range(count):
            client.publish(topics[n % len(topics)], payload, confirm=True)
            client.publish(topics[n % len(topics)], payload)

    for topics in ([b"t/one"], ["t/one", b"t/two"]):
        stream.swallows = True
        none(publish, "FMQP confirmed to %s" % topics)
        equal(ring.count >= _COUNT, True)
        stream.swallows = False
        while ring.count:
            client.poll(10)
        equal(ring.dropped, 0)
    client.close()


def fails_without_heap(function):
    # Without arguments here, as to hand them on would already take some.
    micropython.heap_lock()
    try:
        function()
    except MemoryError:
        return
    finally:
        micropython.heap_unlock()
    raise AssertionError("there was heap enough")


@check
def a_message_that_found_no_heap_spoils_none_like_it():
    """It needs some when it is longer or shorter than the one before."""
    from micromsg2_peer import answers

    from umotemq.micromsg2 import MicroMsg2Client
    from umotemq.outage import Ring

    client = FmqpClient(Memory(), name=b"")
    connected(client)
    stream = client.stream
    for payload in (b"a", b"ab", b"abcde"):
        fails_without_heap(lambda payload=payload: client.publish(b"t/t", payload))
        stream.take()
        for _ in range(2):
            client.publish(b"t/t", payload)
            equal(stream.take(), publication(b"t/t", payload))
    client = LightmqClient(Memory(), b"me")
    client.transport.feed(b"\x02\0\x01\0")
    connected(client)
    stream = client.stream
    fails_without_heap(lambda: client.post(b"abc"))
    stream.take()
    client.post(b"abc")
    equal(stream.take()[6:], b"abc")
    # Queues have no prefix, so that the format is the first that takes heap.
    client = MicroMsg2Client(Memory())
    client.transport.answer = answers(client.transport)
    connected(client)
    stream = client.stream
    fails_without_heap(lambda: client.publish(b"jobs", b"abc", queued=True))
    stream.take()
    client.publish(b"jobs", b"abc", queued=True)
    equal(stream.take()[3:], b"\x04jobs\0\0\x03abc")
    # The ring's own.
    client = FmqpClient(Memory(), name=b"", outage=Ring(200), retry_ms=20)
    connected(client)
    stream = client.stream
    client.publish(b"t/t", b"up!")
    stream.ended = True
    client.poll(0)
    fails_without_heap(lambda: client.publish(b"t/t", b"one"))
    client.publish(b"t/t", b"two")
    stream.take()
    connected(client)
    client.poll(0)
    equal(stream.take()[-12:], publication(b"t/t", b"two"))


class Counted(Memory):
    """Counts what is written, which takes no heap."""

    written = 0

    def write(self, data):
        self.written += len(data)
        return len(data)


@check
def what_found_no_heap_was_not_sent():
    """To remember a topic takes some, though nothing else does as this is as long as the last."""
    from umotemq.outage import Ring

    for ring in (None, Ring(200)):
        client = FmqpClient(Counted(), name=b"", outage=ring)
        connected(client)
        stream = client.stream
        client.publish(b"t/t", b"abc")
        for topic in (b"t/u", "t/v"):
            stream.written = 0
            fails_without_heap(lambda client=client, topic=topic: client.publish(topic, b"abc"))
            equal(stream.written, 0)
            client.publish(topic, b"abc")
            equal(stream.written, 12)


class Narrow(Memory):
    """Takes ``room`` bytes, then nothing, which takes no heap."""

    def __init__(self):
        super().__init__()
        self.kept = bytearray(64)
        self.written = 0
        self.room = 64

    def write(self, data):
        size = min(len(data), self.room)
        for at in range(size):
            self.kept[self.written + at] = data[at]
        self.written += size
        self.room -= size
        return size or None


@check
def what_was_written_in_part_is_gone_on_with():
    """Though there is no heap when the stream has taken a part of a message."""
    from umotemq.outage import Ring

    for ring in (None, Ring(200)):
        for room in (0, 1, 11):
            client = FmqpClient(Narrow(), name=b"", outage=ring)
            connected(client)
            stream = client.stream
            client.publish(b"t/t", b"abc")
            stream.written = 0
            stream.room = room
            fails_without_heap(lambda client=client: client.publish(b"t/t", b"def"))
            stream.room = 64
            client.poll(0)
            client.publish(b"t/t", b"ghi")
            sent = bytes(stream.kept[: stream.written])
            equal(sent, publication(b"t/t", b"def") + publication(b"t/t", b"ghi"))


@check
def a_long_run_leaves_nothing_behind():
    client = fmqp("echo")
    counter = Counter()
    client.subscribe(b"a/*/c", counter.whole)
    work = round_trips(client, counter)
    work(100)
    # What is left behind is left in each round; what the collector takes for a pointer is not.
    for _ in range(3):
        gc.collect()
        before = gc.mem_alloc()
        work(200 if sys.platform == "rp2" else 5000)
        gc.collect()
        grown = gc.mem_alloc() - before
        if grown <= 128:
            break
    equal(grown <= 128, True, "grown by %d bytes" % grown)
    client.close()


run()
