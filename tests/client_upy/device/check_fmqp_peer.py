"""What an FMQP peer may do, or not do, to the client; over a stream in memory."""

from checks import Blocked, Memory, check, equal, publication, raises, run, within
from clients_in_memory import SIGN, broker, fmqp

from umotemq.fmqp import FmqpClient
from umotemq.link import LinkError, ticks_diff, ticks_ms


@check
def absurd_lengths_are_noticed_at_once():
    for head in (b"\0\x01\x0b\xeb\xc2\0", b"\0\x01\xff\xff\xff\xff"):
        client, stream = fmqp()
        stream.feed(head)
        raises("wire", client.poll, 0)
        equal(stream.closed, True)
        raises("wire", client.publish, b"a", b"x")
        raises("wire", client.poll, 0)


@check
def a_message_without_topic_may_end_the_buffer():
    client, stream = fmqp(rx_size=64)
    stream.feed(publication(b"", bytes(52)) + publication(b"", b"") + publication(b"/", b""))
    equal((client.poll(0), client.poll(0), client.discarded), (0, 0, 3))


@check
def what_a_peer_subscribes_to_is_none_of_ours():
    heard = []
    client, stream = fmqp()
    client.publish(b"a", b"gone", will=True)  # told on each link, and no subscription
    client.subscribe(b"a", lambda topic, payload: heard.append(payload))
    for flags in (0x80, 0xA0, 0xC0, 0x88):
        stream.feed(publication(b"a", b"x", flags))
    stream.feed(publication(b"a", b"y"))
    while client.poll(0) or not heard:
        pass
    equal((heard, client.discarded), ([b"y"], 4))


@check
def half_a_message_is_noticed_in_time():
    client, stream = fmqp(timeout_ms=200)
    stream.feed(b"\0\x05\0\0\0\x05hal")
    within(190, 500, raises, "timeout", client.poll, 5000)


@check
def half_of_a_too_long_message_is_noticed_in_time():
    client, stream = fmqp(timeout_ms=200)
    stream.feed(b"\0\x05\0\x0f\0\0hal")
    within(190, 500, raises, "timeout", client.poll, 5000)


@check
def poll_returns_in_time_and_keeps_alive():
    start = ticks_ms()
    client, stream = fmqp(keepalive_ms=100, timeout_ms=50)
    equal(within(340, 600, client.poll, 350), 0)
    sent = stream.take()
    count = len(sent) // len(SIGN)
    equal(sent, SIGN * count)
    # On a busy machine it all takes longer, so there may be more of them.
    equal(2 <= count <= ticks_diff(ticks_ms(), start) // 100, True, "keepalives: %d" % count)


@check
def keepalive_set_but_never_pinged():
    # anchors 3: the client itself asks, also one that keeps publishing and hears nothing.
    stream = Memory()
    stream.answer = broker
    client = FmqpClient(stream, name=b"n", keepalive_ms=100, timeout_ms=200, retry_ms=0)
    client.connect(timeout_ms=1000)
    equal(stream.take()[:24], b"\x90\x12\0\0\0\0ping/-/-/-/-/-/-/n")
    for _ in range(4):
        client.poll(100)
    equal(client.up, True)
    stream.answer = None

    def talk():
        while True:
            client.publish(b"a", b"b")
            client.poll(10)

    within(190, 700, raises, "timeout", talk)


@check
def ping_is_answered_by_its_echo_only():
    stream = Memory()
    stream.answer = broker
    client = FmqpClient(stream, name=b"n", retry_ms=0)
    client.connect(timeout_ms=1000)
    stream.answer = None
    within(90, 400, raises, "timeout", client.ping, 100)
    equal(client.up, True)
    stream.feed(publication(b"ping/-/-/-/-/-/-/n", b"\x02"))  # the first one's, late
    stream.feed(publication(b"ping/-/-/-/-/-/-/n", b"junk!"))
    within(90, 400, raises, "timeout", client.ping, 100)
    stream.feed(publication(b"ping/-/-/-/-/-/-/n", b"\x04"))
    equal(client.ping(100) >= 0, True)
    raises(LinkError, FmqpClient(Memory(), retry_ms=0).ping, 100)


@check
def a_peer_that_stops_reading_is_noticed_in_time():
    client, stream = fmqp(Blocked(), timeout_ms=200)
    stream.room = 12
    within(190, 500, raises, "timeout", client.publish, b"topic", b"payload")
    equal(stream.take(), publication(b"topic", b"payload")[:12])


@check
def a_slow_peer_gets_whole_messages():
    class Slow(Blocked):
        def write(self, data):
            count = Blocked.write(self, data)
            if count is None:
                self.room = 5  # for the next one
            return count

    client, stream = fmqp(Slow(), timeout_ms=5000)
    stream.room = 0
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

    client, stream = fmqp(Broken())
    stream.broken = True
    error = raises("lost", client.poll, 0)
    equal((error.args[1].args[0], stream.closed), (104, True))
    client, stream = fmqp(Broken())
    stream.broken = True
    equal(raises("lost", client.publish, b"a", b"b").args[1].args[0], 32)
    client, stream = fmqp()
    stream.ended = True
    raises("closed", client.poll, 1000)


@check
def errors_say_where():
    stream = Memory()
    stream.ended = False
    client = FmqpClient(stream, retry_ms=0, timeout_ms=100)
    error = within(90, 400, raises, "timeout", client.connect, timeout_ms=2000)
    equal(error.args, ("timeout", "memory"))


run()
