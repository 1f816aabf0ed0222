"""What is kept while the link is down; over a stream in memory."""

from checks import Blocked, check, equal, publication, raises, run, some, within
from clients_in_memory import SUBSCRIBED, named, ping

from umotemq.fmqp import FmqpClient
from umotemq.link import LinkError
from umotemq.outage import Ring


@check
def an_outage_is_bridged_by_a_ring():
    ring = Ring(200)
    client, stream = named(outage=ring)
    for n in range(3):
        client.publish(b"a", b"%d" % n)
    equal((len(ring), ring.dropped, stream.opened), (3, 0, 0))
    client.connect(1000)
    client.poll(0)
    kept = b"".join([publication(b"a", b"%d" % n) for n in range(3)])
    equal((stream.take(), len(ring)), (SUBSCRIBED + ping(1) + kept, 0))
    client.publish(b"a", b"now")
    equal((stream.take(), len(ring)), (publication(b"a", b"now"), 0))
    stream.ended = True
    client.poll(100)
    client.publish(b"a", b"later")
    equal(len(ring), 1)
    client.connect(1000)
    client.publish(b"a", b"last")  # never before what was kept
    want = publication(b"a", b"later") + publication(b"a", b"last")
    equal(stream.take()[-len(want) :], want)


@check
def what_was_half_sent_is_sent_whole_again():
    for kept in (0, 2):
        stream = Blocked()
        ring = Ring(200)
        client = FmqpClient(stream, name=b"", outage=ring, retry_ms=20, timeout_ms=100)
        for n in range(kept):
            client.publish(b"k", b"%d" % n)
        stream.room = 10 + 8 + 4 if kept else 1 << 20
        client.poll(0)
        if not kept:
            client.connect(1000)
            stream.room = 12
            within(90, 500, client.publish, b"topic", b"payload")  # the ring has it
        else:
            client.poll(400)
        equal((client.up, len(ring)), (False, 1))
        stream.take()
        stream.room = 1 << 20
        client.connect(1000)
        client.poll(0)
        if kept:
            # The first had gone before, after the sign of life.
            want = publication(b"k", b"1")
            equal(stream.take()[-len(want) :], want)
        else:
            want = publication(b"ping", b"") + publication(b"topic", b"payload")
            equal(stream.take(), want)
        equal((len(ring), ring.dropped), (0, 0))


@check
def messages_that_nothing_keeps_are_refused_while_down():
    client, stream = named()
    client.connect(1000)
    stream.ended = True
    client.poll(100)
    error = raises(LinkError, client.publish, b"a", b"b")
    equal(error is client.error, True)
    within(0, 300, raises, LinkError, client.ping, 5000)
    client.connect(1000)
    client.publish(b"a", b"b")
    equal(stream.take()[-8:], publication(b"a", b"b"))


@check
def a_full_ring_drops_the_oldest_or_the_newest():
    for newest in (False, True):
        ring = Ring(30, newest)
        for n in range(9):
            ring.put(bytes([n]) * (n % 3 + 4))
        into = bytearray(30)
        got = []
        while ring:
            got.append(bytes(into[: ring.get(into)]))
            ring.sent()
        want = [0, 1, 2, 3] if newest else [5, 6, 7, 8]
        equal(got, [bytes([n]) * (n % 3 + 4) for n in want])
        equal((ring.dropped, len(ring)), (5, 0))
    ring.put(bytes(29))
    equal((ring.dropped, len(ring)), (6, 0), "longer than the ring")


@check
def a_ring_keeps_what_is_under_way():
    ring = Ring(12)
    into = bytearray(12)
    ring.put(b"one")
    ring.put(b"two")
    equal(ring.get(into), 3)
    ring.lost()  # the link was lost: it is still here
    equal((ring.get(into), bytes(into[:3]), len(ring)), (3, b"one", 2))
    ring.put(b"3")  # takes the place of the one under way
    ring.sent()
    equal((ring.dropped, len(ring), bytes(into[: ring.get(into)])), (1, 2, b"two"))


@check
def a_ring_wraps_anywhere():
    into = bytearray(40)
    for size in some(range(8, 40), 5):
        ring = Ring(size)
        number = 0
        kept = []
        for turn in range(200):
            message = bytes([number & 0xFF]) * (turn % 5 + 1)
            number += 1
            ring.put(message)
            kept.append(message)
            kept = kept[-len(ring) :]
            if turn % 3 == 0:
                equal(bytes(into[: ring.get(into)]), kept.pop(0))
                ring.sent()
        equal(len(ring), len(kept))


run()
