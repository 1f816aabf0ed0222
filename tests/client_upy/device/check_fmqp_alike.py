"""Messages and publications like the last one take a shorter way, of which nothing may be seen."""

from checks import check, equal, publication, raises, run
from clients_in_memory import fmqp

from umotemq.link import LinkError


@check
def messages_like_the_last_one_are_heard_all_the_same():
    client, stream = fmqp()
    got = []

    def raw(view, topic_start, topic_end, start, end):
        got.append(bytes(view[topic_start:topic_end]) + b"=" + bytes(view[start:end]))

    def feed(*messages):
        del got[:]
        stream.feed(b"".join([publication(*message) for message in messages]))
        equal(client.poll(0), len(messages))
        return got

    client.subscribe(b"a/b", raw, raw=True)
    client.subscribe(b"c/d", raw, raw=True)
    same = [(b"a/b", b"%d" % n) for n in range(10)]
    equal(feed(*same), [b"a/b=%d" % n for n in range(10)])
    # Other lengths, topics, flags and slashes between them; and nothing at all.
    mixed = (b"a/b", b"10"), (b"a/b", b"1"), (b"c/d", b"1"), (b"/a/b", b"2"), (b"a/b", b"3", 4)
    equal(
        feed(*mixed, (b"a/b", b""), (b"a/b", b"4")),
        [b"a/b=10", b"a/b=1", b"c/d=1", b"a/b=2"] + [b"a/b=3", b"a/b=", b"a/b=4"],
    )
    stream.feed(publication(b"a/b", b"5", 0x20) + publication(b"a/b", b"6", 0x80))
    equal((client.poll(0), client.discarded), (0, 2))
    # A second handler for them, and the first one again.
    client.subscribe(b"a/*", lambda topic, payload: got.append(payload))
    equal(feed(*same[:2]), [b"a/b=0", b"0", b"a/b=1", b"1"])
    equal(feed(*same[:2]), [b"a/b=0", b"0", b"a/b=1", b"1"])
    client.unsubscribe(b"a/*")
    equal(feed(*same[:3]), [b"a/b=0", b"a/b=1", b"a/b=2"])
    # A message that is not whole yet.
    whole = publication(b"a/b", b"7")
    stream.feed(whole + whole + whole[:-1])
    equal((client.poll(0), len(got)), (2, 5))
    stream.feed(b"8")
    equal((client.poll(0), got[-1]), (1, b"a/b=8"))


@check
def slashes_around_a_topic_are_not_the_topic():
    for slashed in (b"/abc", b"abc/", b"//abc//", b"///abc", b"////abc", b"/////abc"):
        client, stream = fmqp()
        got = []

        def raw(view, topic_start, topic_end, start, end, got=got):
            got.append((bytes(view[topic_start:topic_end]), bytes(view[start:end])))

        client.subscribe(b"abc", raw, raw=True)
        for topic in (slashed, slashed, b"abc", b"abc", slashed, b"abc"):
            for _ in range(3):
                stream.feed(publication(topic, b"xyz") * 3)
                equal(client.poll(0), 3)
        equal((len(got), set(got), client.discarded), (54, {(b"abc", b"xyz")}, 0))


@check
def a_handler_that_goes_hears_no_more():
    for count in (1, 2, 3, 5):
        client, stream = fmqp()
        got = []

        def once(*places, got=got, client=client, count=count):
            got.append(places)
            if len(got) == count:
                client.unsubscribe(b"a")

        client.subscribe(b"a", once, raw=True)
        stream.feed(publication(b"a", b"x"), 6)
        while not stream.empty:
            client.poll(0)
        client.poll(0)
        equal((len(got), client.discarded), (count, 6 - count))
    for count in (1, 2, 3, 5):
        client, stream = fmqp()
        got = []

        def last(*places, got=got, client=client, count=count):
            got.append(places)
            if len(got) == count:
                client.close()

        client.subscribe(b"a", last, raw=True)
        stream.feed(publication(b"a", b"x") * 6)
        equal(client.poll(0), count)
        raises(LinkError, client.poll, 0)
        equal(len(got), count)


@check
def publications_like_the_last_one_are_as_told():
    client, stream = fmqp()
    a, b = b"a/a", b"b/b"
    reused = bytearray(b"c/c")
    for topic, payload, cache in (
        (a, b"1", False),
        (a, b"2", False),
        (b, b"3", False),
        (a, b"4", False),
        (a, b"5", True),
        (a, b"6", False),
        (a, bytearray(b"7"), False),
        (reused, b"8", False),
        (reused, b"9", False),
        (a, b"10", False),
        (a, b"11", False),
    ):
        if topic is reused:
            reused[0] += 1  # d/c, e/c
        client.publish(topic, payload, retain=cache)
        equal(stream.take(), publication(bytes(topic), bytes(payload), 4 * cache))
    client.subscribe(a, print)
    client.publish(a, b"12")
    equal(stream.take(), b"\x80\x03\0\0\0\0a/a" + publication(a, b"12"))
    client.publish(a, b"13", will=True)
    client.publish(a, b"14")
    equal(stream.take(), publication(a, b"13", 8) + publication(a, b"14"))


run()
