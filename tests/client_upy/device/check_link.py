"""A link that is lost and opened again, over a stream in memory."""

import time

from checks import Memory, check, equal, publication, raises, run, within
from clients_in_memory import SUBSCRIBED, broker, fmqp, lightmq, named, ping

from umotemq.chunks import ChunkClient
from umotemq.fmqp import FmqpClient
from umotemq.lightmq import LightmqClient
from umotemq.link import LinkError


@check
def the_broker_is_proven_before_it_is_told_anything():
    client, stream = named()
    got = []
    client.publish(b"me", b"gone", retain=True, will=True)
    client.publish(b"me", b"here", retain=True, again=True)
    client.subscribe(b"a", lambda topic, payload: got.append(payload))
    equal((stream.opened, stream.sent), (0, b""))
    stream.answer = None
    client.poll(20)
    equal((client.up, stream.take()), (False, SUBSCRIBED + ping(1)))
    stream.feed(ping(1))
    client.poll(1000)
    told = publication(b"me", b"gone", 0x0C) + publication(b"me", b"here", 4)
    client.poll(0)
    equal((client.up, client.connects), (True, 1))
    equal(stream.take(), told + b"\x80\x01\0\0\0\0a")


@check
def subscriptions_not_restored_after_reconnect():
    # anchors 3: they, the last will and what is published `again` come before anything else.
    client, stream = named()
    got = []
    client.subscribe(b"a", lambda topic, payload: got.append(payload))
    client.publish(b"me", b"gone", will=True)
    client.publish(b"me", b"old", retain=True, again=True)
    client.connect(timeout_ms=1000)
    client.publish(b"me", b"here", retain=True, again=True)
    client.unsubscribe(b"never")
    for count in range(1, 4):
        stream.take()
        stream.ended = True
        equal((within(0, 300, client.poll, 5000), client.up), (0, False))
        equal(client.error.args[0], "closed")
        equal((within(0, 500, client.poll, 5000), client.up), (1, True))
        told = SUBSCRIBED + ping(client._ping) + b"\x80\x01\0\0\0\0a"
        told += publication(b"me", b"gone", 8) + publication(b"me", b"here", 4)
        client.poll(0)
        equal(stream.take(), told)
        stream.feed(publication(b"a", b"x"))
        client.poll(100)
        equal((len(got), client.connects, client.error), (count, count + 1, None))


@check
def changes_while_the_link_comes_up_are_told():
    client, stream = named()
    client.subscribe(b"a", print)
    client.subscribe(b"b", print)
    stream.answer = None
    client.poll(0)
    equal(stream.take(), SUBSCRIBED + ping(1))
    client.subscribe(b"c", print)
    stream.feed(ping(1))
    client.connect(timeout_ms=1000)
    told = b"".join([b"\x80\x01\0\0\0\0" + topic for topic in (b"a", b"b", b"c")])
    client.poll(0)
    equal((stream.opened, stream.take()), (1, told))
    # A peer that takes nothing keeps the link from coming up whole.
    client, stream = named(timeout_ms=300)
    stream.write = lambda data: None
    client.subscribe(b"a", print)
    client.poll(0)
    del stream.write
    client.unsubscribe(b"a")
    client.connect(timeout_ms=1000)
    client.poll(0)
    equal(b"\x80\x01" in stream.take(), False)


class Refusing(Memory):
    def __init__(self):
        Memory.__init__(self)
        self.times = []

    def open(self):
        self.times.append((self.client._due, time.ticks_ms()))
        raise OSError(111)


@check
def tries_are_further_and_further_apart_and_by_chance():
    transport = Refusing()
    transport.client = client = FmqpClient(transport, retry_ms=20, retry_max_ms=160)
    planned = []  # the next try, and when that was known
    client._on_drop.append(lambda: planned.append((client._due, time.ticks_ms())))
    equal(within(1190, 1500, client.poll, 1200), 0)
    error = within(190, 500, raises, "connect", client.connect, timeout_ms=200)
    equal((error.args[1].args[0], error is client.error), (111, True))
    times = transport.times
    for due, when in times:
        equal(time.ticks_diff(when, due) >= 0, True, "not before its time")
    equal(len(planned), len(times))
    # The pause is planned between these two moments: however late the machine is, it is no shorter
    # than from the one, and no longer than from the other.
    gaps = [time.ticks_diff(planned[i][0], times[i][1]) for i in range(len(times))]
    for i, (due, known) in enumerate(planned):
        most = min(20 << i, 160)
        equal(most // 2 <= gaps[i], True, "%r" % gaps)
        equal(time.ticks_diff(due, known) <= most, True, "%r" % gaps)
    equal(len(gaps) >= 7, True, "%r" % gaps)
    equal(len(set(gaps[3:])) > 1, True, "all the same: %r" % gaps)


@check
def a_refused_connect_is_told_at_once_without_retries():
    transport = Refusing()
    transport.client = client = FmqpClient(transport, retry_ms=0)
    within(0, 200, raises, LinkError, client.connect, timeout_ms=5000)
    within(0, 200, raises, LinkError, client.poll, 5000)
    equal(len(client.transport.times), 1)


@check
def a_pause_below_nothing_is_not_dialled_through():
    # anchors 3: nobody's program dials without a rest.
    for tries, options in ((1, {"retry_ms": -500}), (2, {"retry_ms": 20, "retry_max_ms": -20})):
        transport = Refusing()
        transport.client = client = FmqpClient(transport, **options)
        within(0, 400, raises, "connect", client.connect, timeout_ms=5000)
        within(0, 200, raises, "connect", client.poll, 5000)
        equal(len(transport.times), tries)
        within(0, 400, raises, "connect", client.connect, timeout_ms=5000)
        equal(len(transport.times), tries + 1)


@check
def client_must_not_own_the_wifi():
    # anchors 3: no try, and no name looked up, before there is a network.
    network = []
    client, stream = named(link_up=lambda: len(network) > 0)
    within(90, 400, raises, "timeout", client.connect, timeout_ms=100)
    equal(stream.opened, 0)
    network.append(1)
    within(0, 400, client.connect, timeout_ms=1000)
    equal(stream.opened, 1)
    client = FmqpClient(Memory(), link_up=lambda: False, retry_ms=0)
    within(90, 400, raises, "timeout", client.connect, timeout_ms=100)


@check
def the_watchdog_is_fed_only_while_the_link_is_proven():
    fed = []
    client, stream = named(alive=lambda: fed.append(client.up), keepalive_ms=50, timeout_ms=100)
    client.poll(0)
    client.connect(timeout_ms=1000)
    for _ in range(20):
        client.poll(10)
    count = len(fed)
    equal((count >= 2, all(fed)), (True, True))
    stream.answer = None
    for _ in range(30):
        client.poll(10)
        if client.up:
            client.publish(b"a", b"b")
    equal((len(fed) - count <= 1, client.up), (True, False))


@check
def an_idle_link_wakes_once_per_keepalive():
    class Waiting:
        def ipoll(self, ms):
            waits.append(ms)
            start = time.ticks_ms()
            while stream.empty and time.ticks_diff(time.ticks_ms(), start) < ms:
                time.sleep_ms(1)
            return ()

    client, stream = named(keepalive_ms=200)
    client.connect(timeout_ms=1000)
    client.poll(0)
    waits = []
    client._fd = stream  # as if it could be waited for
    client._poll = Waiting()
    stream.take()
    until = time.ticks_ms()
    while time.ticks_diff(time.ticks_ms(), until) < 950:
        client.poll(1000 - time.ticks_diff(time.ticks_ms(), until))
    pings = len(stream.take()) // 25
    equal(pings in (4, 5), True, "%d pings" % pings)
    # One to ask, one to hear the answer.
    equal(len(waits) <= 2 * pings + 1, True, "%r" % waits)


@check
def a_ping_is_answered_though_later_ones_are_too():
    """A slow broker answers several signs of life at once: the one we wait for is among them."""
    client, stream = named(keepalive_ms=200)  # a machine may well stall for 20
    client.connect(timeout_ms=1000)
    asked = []

    def late(data):
        asked.append(bytes(data))
        return b"".join(asked) if len(asked) == 4 else b""

    stream.answer = late
    equal(client.ping(5000) > 0, True)
    equal(len(asked), 4)


@check
def half_messages_of_a_lost_link_are_forgotten():
    client, stream = named(rx_size=64)
    got = []
    client.subscribe(b"a", lambda topic, payload: got.append(payload))
    for half in (publication(b"a", b"half")[:9], publication(b"a", bytes(1000))[:90]):
        client.connect(timeout_ms=1000)
        stream.feed(half)
        client.poll(10)
        stream.ended = True
        while client.up:
            client.poll(100)
        client.connect(timeout_ms=1000)
        stream.feed(publication(b"a", b"whole"))
        client.poll(100)
    equal(got, [b"whole"] * 2)


@check
def client_goes_deaf_after_some_message():
    # anchors 3: whatever came before, the next good message is heard.
    client, stream = named(rx_size=64)
    got = []
    client.subscribe(b"a", lambda topic, payload: got.append(payload))
    client.connect(timeout_ms=1000)
    for odd in (
        b"\x80\x01\0\0\0\0a",
        publication(b"a", bytes(500)),
        publication(b"x" * 255, b""),
        publication(b"\xff/\0", b"x"),
        publication(b"", b""),
        publication(b"///", b"x"),
        publication(b"a", b"x", 0x20),
    ):
        stream.feed(odd + publication(b"a", b"good"))
        while not stream.empty:
            client.poll(0)
        client.poll(0)
    equal(got, [b"good"] * 7)
    equal(client.discarded, 7)


@check
def lightmq_is_introduced_again_too():
    stream = Memory()
    stream.answer = lambda data: b"\x02\0\x01\0" if data[0] == 1 else b""
    client = LightmqClient(stream, b"me", retry_ms=20)
    for count in range(1, 4):
        client.connect(timeout_ms=1000)
        equal((client.connects, stream.take()), (count, b"\x01\0\x03\x02me"))
        stream.ended = True
        client.poll(100)
        equal(client.up, False)


@check
def whoever_is_called_may_close():
    long = publication(b"a", bytes(200))
    for kind in ("alive", "piece"):
        stream = Memory()
        stream.answer = broker
        client = ChunkClient(stream, name=b"n", rx_size=64, retry_ms=20)
        client.receive(b"a", lambda total, offset, piece, client=client: offset and client.close())
        client.connect(timeout_ms=1000)
        if kind == "alive":
            client.alive = client.close
        stream.feed(long[:50])
        equal(client.poll(0), 0)
        equal(client.up, kind == "piece")
        if client.up:
            stream.feed(long[50:])
            equal(client.poll(1000), 0)
        equal((client.up, client.error.args[0]), (False, "closed"), kind)
        raises("closed", client.poll, 1000)


@check
def no_choice_of_options_fills_the_table_of_attributes():
    # In a full one MicroPython looks through all of it for each method, which costs a publication
    # a seventh. Its tables have room for so many:
    tables = 29, 37, 47, 59, 73
    options = {
        name: getattr(FmqpClient, name)
        for name in (
            "alive keepalive_ms link_up on_down on_up outage retry_max_ms retry_ms rx_size "
            "timeout_ms tx_size"
        ).split()
    }
    options["retry_ms"] = 0
    client, _ = fmqp()
    client.publish(b"a", b"b")
    least = len(client.__dict__)
    client, _ = fmqp(**options)
    client.publish(b"a", b"b")
    client.subscribe(b"a", print, raw=True)
    most = len(client.__dict__)
    equal([size for size in tables if least <= size <= most], [])
    client, _ = lightmq()
    client.post(b"a")
    least = len(client.__dict__)
    del options["retry_ms"]
    client, _ = lightmq(dialect="spec", handler=None, on_response=None, window=8, **options)
    client.post(b"a")
    most = len(client.__dict__)
    equal([size for size in tables if least <= size <= most], [])


run()
