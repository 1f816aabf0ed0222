"""Publications that leave together; over streams in memory."""

from checks import Blocked, Memory, check, equal, publication, raises, run
from clients_in_memory import fmqp, named

from umotemq.batch import Batch
from umotemq.fmqp import FmqpClient
from umotemq.link import LinkError
from umotemq.outage import Ring


class Counting(Memory):
    """Counts its writes."""

    writes = 0

    def write(self, data):
        self.writes += 1
        return Memory.write(self, data)


@check
def many_go_in_few_writes_and_in_order():
    client, stream = fmqp(Counting())
    stream.writes = 0
    want = b""
    with Batch(client) as batch:
        for n in range(100):
            topic = ("home/one", b"home/two", "küche")[n % 3]
            batch.publish(topic, "%d °" % n, retain=n % 2 == 0)
            name = topic.encode() if isinstance(topic, str) else topic
            want += publication(name, ("%d °" % n).encode(), 4 * (n % 2 == 0))
        equal(stream.sent != want, True, "the last ones wait")
    equal(stream.take(), want)
    equal(stream.writes <= len(want) // 200, True, "%d writes" % stream.writes)


@check
def what_waits_comes_before_what_the_client_sends():
    client, stream = fmqp()
    batch = Batch(client)
    for way in (
        lambda: client.publish(b"a", b"last"),
        lambda: client.subscribe(b"a", print),
        lambda: client.poll(0),
        batch.flush,
    ):
        for _ in range(2):
            batch.publish(b"a", b"bat")
        equal(stream.take(), b"")
        way()
        want = publication(b"a", b"bat") * 2
        equal(stream.take()[: len(want)], want)
    client.publish(b"a", b"one")
    batch.publish(b"a", b"two")
    client.publish(b"a", b"tri")
    equal(stream.take(), b"".join([publication(b"a", each) for each in (b"one", b"two", b"tri")]))


@check
def what_cannot_be_published_is_told_and_spoils_nothing():
    client, stream = fmqp(tx_size=60)
    changing = bytearray(b"c/1")
    with Batch(client) as batch:
        batch.publish(b"a", b"x")
        for topic, payload in ((b"a", bytes(100)), (b"", b"x"), ("a" * 300, b"x")):
            raises(ValueError, batch.publish, topic, payload)
        raises(TypeError, batch.publish, b"a", None)
        raises(TypeError, lambda: batch.publish(b"a", b"x", True))
        batch.publish(changing, b"x")
        changing[2] += 1
        batch.publish(changing, b"x")
    want = publication(b"a", b"x") + publication(b"c/1", b"x") + publication(b"c/2", b"x")
    equal(stream.take(), want)


@check
def without_a_link_it_raises_or_the_outage_has_it():
    raises("down", Batch(FmqpClient(Memory())).publish, b"a", b"b")
    ring = Ring(200)
    client, stream = named(outage=ring)
    with Batch(client) as batch:
        batch.publish(b"a", b"1")
        batch.publish(b"a", b"2")
        equal(ring.count, 2)
        client.connect(timeout_ms=1000)
        client.poll(0)
        batch.publish(b"a", b"3")
    want = b"".join([publication(b"a", each) for each in (b"1", b"2", b"3")])
    equal((stream.take()[-len(want) :], ring.count), (want, 0))


@check
def a_stream_that_takes_nothing_is_noticed():
    client, stream = fmqp(Blocked(), timeout_ms=100)
    stream.room = 0
    batch = Batch(client)

    def fill():
        for _ in range(100):
            batch.publish(b"a", bytes(20))

    raises("timeout", fill)
    equal(client.up, False)

    def block():
        with batch:
            raise KeyError("mine")

    raises(KeyError, block)
    raises(LinkError, batch.flush)


run()
