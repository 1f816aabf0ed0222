"""What is kept while the link is down; over a stream in memory."""

from checks import Blocked, check, equal, publication, raises, run, some, within
from clients_in_memory import SIGN, SUBSCRIBED, broker, fmqp, named, ping

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
    client.connect(timeout_ms=1000)
    client.poll(0)
    kept = b"".join([publication(b"a", b"%d" % n) for n in range(3)])
    equal((stream.take(), len(ring)), (SUBSCRIBED + ping(1) + kept, 0))
    client.publish(b"a", b"now")
    equal((stream.take(), len(ring)), (publication(b"a", b"now"), 0))
    stream.ended = True
    client.poll(100)
    client.publish(b"a", b"later")
    equal(len(ring), 1)
    client.connect(timeout_ms=1000)
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
        stream.room = len(SIGN) + 8 + 4 if kept else 1 << 20
        client.poll(0)
        if not kept:
            client.connect(timeout_ms=1000)
            stream.room = 12
            within(90, 500, client.publish, b"topic", b"payload")  # the ring has it
        else:
            client.poll(400)
        equal((client.up, len(ring)), (False, 1))
        stream.take()
        stream.room = 1 << 20
        client.connect(timeout_ms=1000)
        client.poll(0)
        if kept:
            # The first had gone before, after the sign of life.
            want = publication(b"k", b"1")
            equal(stream.take()[-len(want) :], want)
        else:
            want = SIGN + publication(b"topic", b"payload")
            equal(stream.take(), want)
        equal((len(ring), ring.dropped), (0, 0))


class Breaking(Blocked):
    """A broker's stream; while ``broken`` it takes nothing more, and says why."""

    broken = False

    def __init__(self):
        Blocked.__init__(self)
        self.answer = broker

    def write(self, data):
        if self.broken:
            raise OSError(104)
        return Blocked.write(self, data)


@check
def one_like_the_last_is_not_lost_with_the_stream():
    for confirm in (False, True):
        stream = Breaking()
        ring = Ring(200)
        client = FmqpClient(stream, name=b"n", outage=ring, retry_ms=20)
        client.connect(timeout_ms=1000)
        for n in range(3):
            stream.broken = n == 2
            client.publish("a", b"%d" % n, confirm=confirm)
        equal((client.up, ring.count), (False, 3 if confirm else 1))
        stream.broken = False
        stream.take()
        client.connect(timeout_ms=1000)
        while ring.count:
            client.poll(10)
        sent = stream.take()
        kept = b"".join([publication(b"a", b"%d" % n) for n in range(0 if confirm else 2, 3)])
        equal((kept in sent, sent.count(b"\0\0\1a"), ring.dropped), (True, len(kept) // 8, 0))


@check
def what_is_published_when_the_link_is_lost_takes_no_place():
    # None like it before, or some: then it is written where it is packed.
    for before, confirm in ((0, False), (2, False), (0, True), (2, True)):
        stream = Breaking()
        ring = Ring(200)
        client = FmqpClient(stream, name=b"n", outage=ring, retry_ms=20)
        client.connect(timeout_ms=1000)
        for n in range(before):
            client.publish("a", b"%d" % n, confirm=confirm)
        while ring.count:
            client.poll(10)
        client.on_down = lambda client=client: client.publish("state", b"down")
        stream.broken = True
        client.publish("a", b"9", confirm=confirm)
        equal((client.up, ring.count), (False, 2))
        stream.broken = False
        stream.take()
        client.connect(timeout_ms=1000)
        while ring.count:
            client.poll(10)
        want = publication(b"a", b"9") + publication(b"state", b"down")
        if confirm:
            want += ping(client._ping)  # whose echo confirms it
        equal(stream.take()[-len(want) :], want)


@check
def why_the_stream_failed_is_told_of_one_like_the_last():
    stream = Breaking()
    client = FmqpClient(stream, name=b"n")
    client.connect(timeout_ms=1000)
    client.publish("a", b"0")
    client.publish("a", b"1")
    stream.broken = True
    error = raises("lost", client.publish, "a", b"2")
    equal((error is client.error, error.args[1].args[0]), (True, 104))


@check
def one_like_the_last_goes_in_pieces():
    for ring in (None, Ring(200)):
        stream = Breaking()
        client = FmqpClient(stream, name=b"n", outage=ring, timeout_ms=50)
        client.connect(timeout_ms=1000)
        client._blocking = False  # as under asyncio: what does not go at once waits
        client.publish("a", b"0")
        client.publish("a", b"1")
        stream.take()
        stream.room = 3
        client.publish("a", b"2")
        stream.room = 1 << 20
        client.publish("a", b"3")
        client.poll(0)
        equal(stream.take(), publication(b"a", b"2") + publication(b"a", b"3"))


class Looking(FmqpClient):
    """Counts how often a topic is looked into."""

    looks = 0

    def _normalised(self, topic):
        self.looks += 1
        return FmqpClient._normalised(self, topic)


@check
def a_topic_is_looked_into_once_whatever_becomes_of_the_publication():
    for ring in (None, Ring(400), Ring(400, stamp=lambda payload, *_: payload)):
        stream = Breaking()
        client = Looking(stream, name=b"n", outage=ring, retry_ms=20)
        client.connect(timeout_ms=1000)
        topics = (b"a", "b", b"/c/")
        client.looks = 0
        for topic in topics:
            client.publish(topic, b"0")
        stream.take()
        client._blocking = False  # as under umotemq.aio
        stream.room = 3
        for n in range(1, 3):  # the first is written in part, the others wait
            for topic in topics:
                client.publish(topic, b"%d" % n)
        stream.room = 1 << 20
        for _ in range(9):
            client.poll(0)
        want = [publication(b"abc"[at : at + 1], b"%d" % n) for n in (1, 2) for at in range(3)]
        equal(stream.take(), b"".join(want))
        if ring is not None:
            for confirm in (True, False):
                client.publish(topics[0], b"8", confirm=confirm)
            equal(stream.take().count(publication(b"a", b"8")), 2)
            stream.ended = True
            client.poll(0)
            equal(client.up, False)
            for topic in topics:
                client.publish(topic, b"9")
            equal(ring.count > 2, True)
        equal(client.looks, 3)


@check
def messages_that_nothing_keeps_are_refused_while_down():
    client, stream = named()
    client.connect(timeout_ms=1000)
    stream.ended = True
    client.poll(100)
    error = raises(LinkError, client.publish, b"a", b"b")
    equal(error is client.error, True)
    within(0, 300, raises, LinkError, client.ping, 5000)
    client.connect(timeout_ms=1000)
    client.publish(b"a", b"b")
    equal(stream.take()[-8:], publication(b"a", b"b"))


@check
def a_full_ring_drops_the_oldest_or_the_newest():
    for newest in (False, True):
        ring = Ring(100, newest)  # room for four
        client, stream = named(outage=ring)
        for n in range(9):
            client.publish(b"a", b"%05d" % n)
        equal((ring.dropped, len(ring)), (5, 4))
        client.publish(b"a", bytes(90))
        equal((ring.dropped, len(ring)), ((6, 4) if newest else (10, 0)), "longer than the ring")
        if newest:
            client.connect(timeout_ms=1000)
            client.poll(0)
            kept = b"".join([publication(b"a", b"%05d" % n) for n in range(4)])
            equal(stream.take(), SUBSCRIBED + ping(1) + kept)


def _looked_at(sent, got):
    while len(sent) > 6 and len(sent) >= 7 + sent[5]:
        end = 7 + sent[5]
        got.append(int(sent[7:10]))
        equal(sent[:end], publication(b"a", b"%03d" % got[-1] + bytes(got[-1] % 5)))
        sent = sent[end:]
    return sent


@check
def a_ring_wraps_anywhere():
    for size in some(range(40, 100), 9):
        ring = Ring(size)
        client, stream = fmqp(Blocked(), outage=ring)
        client._blocking = False  # as under asyncio: what does not go at once is kept
        got = []
        rest = b""  # all that is written would be much of the heap
        for turn in range(200):
            stream.room = (turn * 7) % 23
            client.publish(b"a", b"%03d" % turn + bytes(turn % 5))
            if turn % 3 == 0:
                client.poll(0)
            rest = _looked_at(rest + stream.take(), got)
        while ring.count or client._last:
            stream.room = 1 << 20
            client.poll(0)
            rest = _looked_at(rest + stream.take(), got)
        equal(rest, b"")
        equal(got, sorted(set(got)))
        equal(len(got), 200 - ring.dropped)


run()
