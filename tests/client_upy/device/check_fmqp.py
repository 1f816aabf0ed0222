"""The FMQP client, over a stream in memory."""

from checks import Memory, check, equal, raises, run, within

from umotemq.fmqp import FmqpClient
from umotemq.link import LinkError, LinkTimeout, NoAnswer, WireError


def publication(topic, body, flags=0):
    return bytes([flags, len(topic)]) + len(body).to_bytes(4, "big") + topic + body


def client_and_stream(stream=None, **options):
    """Return a client that is up, does not ping and does not come back."""
    stream = stream or Memory()
    if "retry_ms" not in options:
        options["retry_ms"] = 0
    client = FmqpClient(stream, name=b"", **options)
    client.connect(1000)
    equal(stream.take(), b"\0\x05\0\0\0\0ping/", "the sign of life that proves the stream")
    return client, stream


def broker(data):
    """Answer pings as a broker does; nothing else."""
    ping = b"\0\x06\0\0\0\x04ping/n"
    at = data.find(ping)
    return data[at : at + len(ping) + 4] if at >= 0 else b""


@check
def options_are_checked():
    equal(FmqpClient(Memory(), rx_size=64).rx_size, 64)
    for wrong in ("rxsize", "_due", "poll", "connect", "up"):
        raises(TypeError, FmqpClient, Memory(), **{wrong: 1})


@check
def handlers_get_topic_and_payload():
    client, stream = client_and_stream()
    got = []
    client.subscribe(b"/a/*/", lambda topic, payload: got.append((topic, payload)))
    equal(stream.take(), b"\x80\x03\0\0\0\0a/*")
    stream.feed(publication(b"a/b", b"hi") + publication(b"x/y", b"no") + publication(b"a/c", b""))
    equal(client.poll(0), 2)
    equal(got, [(b"a/b", b"hi"), (b"a/c", b"")])
    equal(client.discarded, 1)


@check
def raw_handlers_get_places_in_the_buffer():
    client, stream = client_and_stream()
    got = []

    def handler(view, topic_start, topic_end, start, end):
        got.append((bytes(view[topic_start:topic_end]), bytes(view[start:end])))

    client.subscribe(b"a/b", handler, raw=True)
    stream.feed(publication(b"//a/b/", b"hi"))
    client.poll(0)
    equal(got, [(b"a/b", b"hi")])


@check
def feedback_is_another_topic_system():
    client, stream = client_and_stream()
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
    client, stream = client_and_stream()
    got = []
    client.subscribe(b"a", lambda topic, payload: got.append(1))
    client.subscribe(b"a", lambda topic, payload: got.append(2))
    stream.feed(publication(b"a", b"x"))
    client.poll(0)
    equal(got, [2])


@check
def several_handlers_hear_one_message():
    client, stream = client_and_stream()
    got = []
    client.subscribe(b"a/*", lambda topic, payload: got.append(1))
    client.subscribe(b"*/b", lambda topic, payload: got.append(2))
    client.subscribe(b"a/b", lambda *places: got.append(3), raw=True)
    stream.feed(publication(b"a/b", b"x"))
    equal(client.poll(0), 1)
    equal(got, [1, 2, 3])


@check
def a_handler_may_subscribe_publish_and_raise():
    client, stream = client_and_stream()
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
        client, stream = client_and_stream(retry_ms=retry_ms)
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
    client, stream = client_and_stream(retry_ms=100)
    client.subscribe(b"a", lambda topic, payload: other.publish(topic, payload))
    stream.feed(publication(b"a", b"x"))
    error = raises(LinkError, client.poll, 100)
    equal("no link" in str(error), True, str(error))
    equal(client.up, True)


@check
def publish_says_what_is_wrong():
    client, stream = client_and_stream(tx_size=20)
    raises(ValueError, client.publish, b"", b"x")
    raises(ValueError, client.publish, b"t" * 256, b"x")
    error = raises(ValueError, client.publish, b"topic", b"0123456789")
    equal("tx_size" in str(error), True, str(error))
    equal(stream.take(), b"")
    client.publish(b"topic", b"012345678", cache=True, will=True)
    equal(stream.take(), publication(b"topic", b"012345678", 0x0C))
    raises(LinkError, FmqpClient(Memory()).publish, b"a", b"b")


@check
def what_is_too_long_is_skipped_without_a_buffer():
    for step in (1, 7, 64, 1 << 20):
        client, stream = client_and_stream(rx_size=262)
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
    for step in range(1, 130):
        client, stream = client_and_stream(rx_size=262)
        stream.step = step
        got = []
        client.subscribe(b"a/b", lambda topic, payload, got=got: got.append(payload))
        stream.feed(wire)
        while not stream.empty:
            client.poll(0)
        client.poll(0)
        equal(got, [bytes([n]) * n for n in range(60)], "in steps of %d" % step)


@check
def absurd_lengths_are_noticed_at_once():
    for head in (b"\0\x01\x0b\xeb\xc2\0", b"\0\x01\xff\xff\xff\xff", b"\0\x01\0\x10\0\x01"):
        client, stream = client_and_stream()
        stream.feed(head)
        error = raises(WireError, client.poll, 0)
        equal(error.phase, "receive")
        equal(stream.closed, True)
        raises(WireError, client.publish, b"a", b"x")
        raises(WireError, client.poll, 0)


@check
def half_a_message_is_noticed_in_time():
    client, stream = client_and_stream(timeout_ms=200)
    stream.feed(b"\0\x05\0\0\0\x05hal")
    error = within(190, 500, raises, LinkTimeout, client.poll, 5000)
    equal("200 ms" in str(error), True, str(error))


@check
def half_of_a_too_long_message_is_noticed_in_time():
    client, stream = client_and_stream(timeout_ms=200)
    stream.feed(b"\0\x05\0\x0f\0\0hal")
    within(190, 500, raises, LinkTimeout, client.poll, 5000)


@check
def poll_returns_in_time_and_keeps_alive():
    client, stream = client_and_stream(keepalive_ms=100, timeout_ms=50)
    equal(within(340, 600, client.poll, 350), 0)
    sent = stream.take()
    equal(sent, b"\0\x05\0\0\0\0ping/" * (len(sent) // 11))
    equal(len(sent) // 11 in (2, 3), True, "keepalives: %d" % (len(sent) // 11))


@check
def keepalive_set_but_never_pinged():
    # anchors 3: the client itself asks, also one that keeps publishing and hears nothing.
    stream = Memory()
    stream.answer = broker
    client = FmqpClient(stream, name=b"n", keepalive_ms=100, timeout_ms=200, retry_ms=0)
    client.connect(1000)
    equal(stream.take()[:24], b"\x90\x06\0\0\0\0ping/n\0\x06\0\0\0\x04ping/n")
    for _ in range(4):
        client.poll(100)
    equal(client.up, True)
    stream.answer = None

    def talk():
        while True:
            client.publish(b"a", b"b")
            client.poll(10)

    within(190, 700, raises, LinkTimeout, talk)


@check
def ping_is_answered_by_its_echo_only():
    stream = Memory()
    stream.answer = broker
    client = FmqpClient(stream, name=b"n", retry_ms=0)
    client.connect(1000)
    stream.answer = None
    within(90, 400, raises, NoAnswer, client.ping, 100)
    equal(client.up, True)
    stream.feed(publication(b"ping/n", b"\0\0\0\x02"))  # the first one's, late
    stream.feed(publication(b"ping/n", b"junk!"))
    within(90, 400, raises, NoAnswer, client.ping, 100)
    stream.feed(publication(b"ping/n", b"\0\0\0\x04"))
    equal(client.ping(100) >= 0, True)
    raises(LinkError, FmqpClient(Memory(), retry_ms=0).ping, 100)


class Blocked(Memory):
    """Takes ``room`` bytes, then nothing."""

    room = 11  # a sign of life

    def write(self, data):
        size = min(len(data), self.room)
        self.room -= size
        if not size:
            return None
        return Memory.write(self, data[:size])


@check
def a_peer_that_stops_reading_is_noticed_in_time():
    client, stream = client_and_stream(Blocked(), timeout_ms=200)
    stream.room = 12
    error = within(190, 500, raises, LinkTimeout, client.publish, b"topic", b"payload")
    equal("stopped reading" in str(error), True, str(error))
    equal(error.phase, "send")
    equal(stream.take(), publication(b"topic", b"payload")[:12])


@check
def a_slow_peer_gets_whole_messages():
    client, stream = client_and_stream(Blocked(), timeout_ms=200)
    real_wait = client._wait

    def wait(ms):
        stream.room = 5
        real_wait(1)

    client._wait = wait
    for body in (b"payload", b"again 7", b"x"):
        client.publish(b"topic", body)
    equal(
        stream.take(),
        publication(b"topic", b"payload")
        + publication(b"topic", b"again 7")
        + publication(b"topic", b"x"),
    )


@check
def a_stream_that_fails_is_a_lost_link():
    class Broken(Memory):
        broken = False

        def readinto(self, buffer):
            if self.broken:
                raise OSError(104)

        def write(self, data):
            if self.broken:
                raise OSError(32)
            return Memory.write(self, data)

    client, stream = client_and_stream(Broken())
    stream.broken = True
    error = raises(LinkError, client.poll, 0)
    equal((error.phase, stream.closed), ("receive", True))
    client, stream = client_and_stream(Broken())
    stream.broken = True
    equal(raises(LinkError, client.publish, b"a", b"b").phase, "send")
    client, stream = client_and_stream()
    stream.ended = True
    error = raises(LinkError, client.poll, 1000)
    equal("closed by the peer" in str(error), True, str(error))


@check
def errors_say_where():
    stream = Memory()
    stream.ended = False
    client = FmqpClient(stream, retry_ms=0, timeout_ms=100)
    error = within(90, 400, raises, LinkTimeout, client.connect, 2000)
    equal(str(error), "connect: memory: nothing for 100 ms")
    equal(error.phase, "connect")


@check
def close_is_final_and_never_raises():
    client, stream = client_and_stream()
    client.close()
    client.close()
    equal(stream.closed, True)
    raises(LinkError, client.publish, b"a", b"b")
    raises(LinkError, client.connect, 100)
    equal(stream.opened, 1)


run()
