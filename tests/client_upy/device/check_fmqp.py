"""The FMQP client, over a stream in memory."""

from checks import Blocked, Memory, check, equal, publication, raises, run, some
from clients_in_memory import SIGN, fmqp

from umotemq.fmqp import FmqpClient
from umotemq.link import LinkError
from umotemq.outage import Ring


@check
def options_are_checked():
    equal(FmqpClient(Memory(), rx_size=64).rx_size, 64)
    for wrong in ("rxsize", "_due", "poll", "connect", "up"):
        raises(TypeError, FmqpClient, Memory(), **{wrong: 1})

    class Mine(FmqpClient):
        tx_size = 99
        outage = Ring(300)

    client = Mine(Memory())
    equal((client.tx_size, client.outage is Mine.outage), (99, True))
    error = raises(TypeError, client.subscribe, b"a", 1)
    equal(error.args[0], "1 is no handler")


@check
def handlers_get_topic_and_payload():
    client, stream = fmqp()
    got = []
    client.subscribe(b"/a/*/", lambda topic, payload: got.append((topic, payload)))
    equal(stream.take(), b"\x80\x03\0\0\0\0a/*")
    stream.feed(publication(b"a/b", b"hi") + publication(b"x/y", b"no") + publication(b"a/c", b""))
    equal(client.poll(0), 2)
    equal(got, [(b"a/b", b"hi"), (b"a/c", b"")])
    equal(client.discarded, 1)


@check
def raw_handlers_get_places_in_the_buffer():
    client, stream = fmqp()
    got = []

    def handler(view, topic_start, topic_end, start, end):
        got.append((bytes(view[topic_start:topic_end]), bytes(view[start:end])))

    client.subscribe(b"a/b", handler, raw=True)
    stream.feed(publication(b"//a/b/", b"hi"))
    client.poll(0)
    equal(got, [(b"a/b", b"hi")])


@check
def feedback_is_another_topic_system():
    client, stream = fmqp()
    regular = []
    wanted = []
    client.subscribe(b"a", lambda topic, payload: regular.append(payload))
    client.subscribe(b"a", lambda topic, payload: wanted.append(payload), feedback=True)
    equal(stream.take(), b"\x80\x01\0\0\0\0a\xa0\x01\0\0\0\0a")
    stream.feed(publication(b"a", b"1") + publication(b"a", b"2", 0x24))
    equal(client.poll(0), 2)
    equal((regular, wanted), ([b"1"], [b"2"]))
    client.unsubscribe(b"a")
    equal(stream.take(), b"\xc0\x01\0\0\0\0a")
    stream.feed(publication(b"a", b"3") + publication(b"a", b"4", 0x20))
    client.poll(0)
    equal((regular, wanted), ([b"1"], [b"2", b"4"]))


@check
def a_second_subscription_replaces_the_handler():
    client, stream = fmqp()
    got = []
    client.subscribe(b"a", lambda topic, payload: got.append(1))
    client.subscribe(b"a", lambda topic, payload: got.append(2))
    stream.feed(publication(b"a", b"x"))
    client.poll(0)
    equal(got, [2])


@check
def several_handlers_hear_one_message():
    client, stream = fmqp()
    got = []
    client.subscribe(b"a/*", lambda topic, payload: got.append(1))
    client.subscribe(b"*/b", lambda topic, payload: got.append(2))
    client.subscribe(b"a/b", lambda *places: got.append(3), raw=True)
    stream.feed(publication(b"a/b", b"x"))
    equal(client.poll(0), 1)
    equal(got, [3, 1, 2])  # those that copy nothing come first


@check
def a_handler_may_subscribe_publish_and_raise():
    client, stream = fmqp()
    got = []

    def first(topic, payload):
        client.subscribe(b"b", lambda topic, payload: got.append(payload))
        client.publish(b"c", payload)
        raise RuntimeError("in the handler")

    client.subscribe(b"a", first)
    stream.feed(publication(b"a", b"x") + publication(b"b", b"y"))
    raises(RuntimeError, client.poll, 0)
    equal(client.poll(0), 1)
    equal(got, [b"y"])
    equal(stream.take()[-8:], publication(b"c", b"x"))


@check
def a_handler_may_close():
    for retry_ms in (0, 100):
        client, stream = fmqp(retry_ms=retry_ms)
        got = []

        def handler(topic, payload, got=got, client=client):
            got.append(payload)
            client.close()

        client.subscribe(b"a", handler)
        client.subscribe(b"*", lambda topic, payload, got=got: got.append(topic))
        stream.feed(publication(b"a", b"x") + publication(b"a", b"y"))
        equal(client.poll(100), 1)
        equal((got[0], stream.closed, client.up), (b"x", True, False))
        raises(LinkError, client.poll, 0)
        equal((len(got), stream.opened), (2, 1))


@check
def a_handlers_link_error_is_not_swallowed():
    other = FmqpClient(Memory())
    client, stream = fmqp(retry_ms=100)
    client.subscribe(b"a", lambda topic, payload: other.publish(topic, payload))
    stream.feed(publication(b"a", b"x"))
    error = raises(LinkError, client.poll, 100)
    equal(error.args[0], "down")
    equal(client.up, True)


@check
def publish_says_what_is_wrong():
    client, stream = fmqp(tx_size=22)
    raises(ValueError, client.publish, b"", b"x")
    raises(ValueError, client.publish, b"t" * 256, b"x")
    error = raises(ValueError, client.publish, b"topic", b"0123456789ab")
    equal(error.args[0], "23 bytes, tx_size 22")
    equal(stream.take(), b"")
    client.publish(b"topic", b"0123456789a", retain=True, will=True)
    equal(stream.take(), publication(b"topic", b"0123456789a", 0x0C))
    raises(LinkError, FmqpClient(Memory()).publish, b"a", b"b")


@check
def what_is_too_long_is_skipped_without_a_buffer():
    for step in some((1, 64, 7, 1 << 20), 2):
        client, stream = fmqp(rx_size=262)
        stream.step = step
        got = []
        client.subscribe(b"a", lambda topic, payload, got=got: got.append(payload))
        stream.feed(b"\0\x01\0\0\x80\0a")
        stream.feed(b"x" * 128, 256)
        stream.feed(publication(b"a", b"y" * 255))
        while not stream.empty:
            client.poll(0)
        client.poll(0)
        equal([len(p) for p in got], [255])
        equal(client.discarded, 1)


@check
def any_cut_gives_the_same_messages():
    wire = b"".join([publication(b"a/b", bytes([n]) * n) for n in range(60)])
    for step in some(range(1, 130), 10):
        client, stream = fmqp(rx_size=262)
        stream.step = step
        got = []
        client.subscribe(b"a/b", lambda topic, payload, got=got: got.append(payload))
        stream.feed(wire)
        while not stream.empty:
            client.poll(0)
        client.poll(0)
        equal(got, [bytes([n]) * n for n in range(60)], "in steps of %d" % step)


@check
def close_is_final_and_never_raises():
    client, stream = fmqp()
    client.close()
    client.close()
    equal(stream.closed, True)
    raises(LinkError, client.publish, b"a", b"b")
    raises("closed", client.poll, 100)
    equal(stream.opened, 1)


@check
def who_subscribes_while_the_broker_is_told_is_heard():
    for raw in (False, True):
        client = FmqpClient(Blocked(), name=b"", retry_ms=20)
        stream = client.transport
        topics = [b"a/1", b"a/2", b"a/3"]
        for topic in topics:
            client.subscribe(topic, print)
        stream.room = len(SIGN + publication(b"a/1", b"")) + 2
        client.poll(0)
        equal(client.up, False)
        client.subscribe(b"b/1", print, raw=raw)
        stream.room = 1 << 20
        client.connect(timeout_ms=1000)
        topics.append(b"b/1")
        for topic in topics:
            equal(publication(topic, b"", 0x80) in stream.sent, True, topic)
        client.close()


@check
def publications_in_turn_are_what_they_say():
    """More kinds of them, by topic and length, than are remembered; and a topic that changes."""
    client, stream = fmqp(retry_ms=20)
    topics = [b"sensor/%d" % n for n in range(9)]
    given = [topic if n & 1 else topic.decode() for n, topic in enumerate(topics)]
    for turn in range(3):
        for n, topic in enumerate(topics):
            for size in (1, 2 + n):
                retain = n & 1 == turn & 1
                client.publish(given[n], b"x" * size, retain=retain)
                equal(stream.take(), publication(topic, b"x" * size, 4 * retain))
    equal(len(client._recent), 16)
    for turn, n in enumerate((8, 8, 0, 8, 0, 0, 3, 8)):  # the last one's kind, and an earlier one's
        client.publish(given[n], b"%d" % turn)
        equal(stream.take(), publication(topics[n], b"%d" % turn))
    sloppy = b"/a/b/"
    changing = bytearray(b"c/0")
    for n in range(3):
        client.publish(sloppy, b"x")
        changing[2] = 48 + n
        client.publish(changing, b"x")
        equal(stream.take(), publication(b"a/b", b"x") + publication(b"c/%d" % n, b"x"))
    stream.ended = True
    client.poll(0)
    raises(LinkError, client.publish, sloppy, b"x")
    client.connect(timeout_ms=1000)
    client.publish(sloppy, b"x")
    equal(stream.take(), SIGN + publication(b"a/b", b"x"))


@check
def one_like_before_goes_in_parts_and_is_its_own():
    """The stream takes some of it, and what comes behind is not written over it."""
    client = FmqpClient(Blocked(), name=b"", retry_ms=20)
    stream = client.transport
    client.connect(timeout_ms=1000)
    for _ in range(2):
        client.publish(b"a/b", b"first")
    client._blocking = False  # as under umotemq.aio
    for part in range(14):
        stream.take()
        stream.room = part
        client.publish(b"a/b", b"%05d" % part, retain=part & 1 == 1)
        equal(len(stream.sent), part)
        stream.room = 1 << 20
        client.publish(b"a/b", b"other")
        client.publish(b"c", b"another")
        expected = publication(b"a/b", b"%05d" % part, 4 * (part & 1))
        expected += publication(b"a/b", b"other") + publication(b"c", b"another")
        equal(stream.take(), expected)
    client.close()


run()
