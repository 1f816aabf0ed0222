"""The clients against a misbehaving server. Argument: a file, JSON, {fault: port}."""

import json
import sys

from checks import check, equal, raises, run, within

from umotemq import tcp
from umotemq.fmqp import FmqpClient
from umotemq.lightmq import LightmqClient, Refused
from umotemq.link import LinkClosed, LinkError, LinkTimeout, NoAnswer, WireError

with open(sys.argv[1]) as _file:
    _PORTS = json.load(_file)
_GRACE = 1000  # ms after the configured time


def fmqp(fault, **kwargs):
    return FmqpClient(tcp.connect("127.0.0.1", _PORTS[fault], 2000), **kwargs)


def lightmq(fault, **kwargs):
    stream = tcp.connect("127.0.0.1", _PORTS[fault], 2000)
    client = LightmqClient(stream, b"me", **kwargs)
    client.connect(2000)
    return client


def until_error(kind, client, low_ms, high_ms, step=None):
    """Poll (or do ``step``) until the error that must come within the time; return it."""

    def work():
        while True:
            if step:
                step()
            else:
                client.poll(10000)

    error = within(low_ms, high_ms + _GRACE, raises, kind, work)
    equal(client.down, str(error))
    return error


@check
def a_refused_connect():
    error = within(0, _GRACE, raises, LinkError, tcp.connect, "127.0.0.1", _PORTS["refused"], 2000)
    equal(error.phase, "connect")
    equal(isinstance(error, LinkTimeout), False)
    equal(str(_PORTS["refused"]) in str(error), True, str(error))


@check
def a_black_holed_connect():
    port = _PORTS["black_hole"]
    error = within(290, 300 + _GRACE, raises, LinkTimeout, tcp.connect, "127.0.0.1", port, 300)
    equal("300 ms" in str(error), True, str(error))


@check
def a_name_nobody_knows():
    error = raises(LinkError, tcp.connect, "256.0.0.1", 1, 300)
    equal("look up" in str(error), True, str(error))


@check
def a_name_with_several_addresses():
    # Here often ::1 first, where nobody listens.
    client = FmqpClient(tcp.connect("localhost", _PORTS["echo"], 2000))
    equal(client.ping(2000) >= 0, True)
    client.close()


@check
def a_peer_that_never_answers():
    client = fmqp("silent")
    within(190, 200 + _GRACE, raises, NoAnswer, client.ping, 200)
    equal(client.down, None)
    client.close()
    until_error(LinkTimeout, fmqp("silent", probe=True, keepalive_ms=100, timeout_ms=200), 290, 300)
    stream = tcp.connect("127.0.0.1", _PORTS["silent"], 2000)
    client = LightmqClient(stream, b"me")
    within(190, 200 + _GRACE, raises, LinkTimeout, client.connect, 200)


class Counting:
    """A socket that counts the looks at it."""

    def __init__(self, stream):
        self.pollable = self.stream = stream
        self.write = stream.write
        self.reads = 0

    def readinto(self, buffer):
        self.reads += 1
        return self.stream.readinto(buffer)


@check
def an_idle_link_sleeps():
    stream = Counting(tcp.connect("127.0.0.1", _PORTS["silent"], 2000))
    client = FmqpClient(stream, keepalive_ms=100)
    within(390, 400 + _GRACE, client.poll, 400)
    # Before and after each of four or five waits.
    equal(stream.reads <= 10, True, "%d reads" % stream.reads)
    stream.stream.close()


@check
def no_pong():
    client = lightmq("lightmq_no_pong", keepalive_ms=100, timeout_ms=200)
    until_error(LinkTimeout, client, 290, 300)
    client = lightmq("lightmq_no_pong")
    within(190, 200 + _GRACE, raises, NoAnswer, client.ping, 200)
    within(190, 200 + _GRACE, raises, NoAnswer, client.send, b"x", 200)
    client.close()


@check
def half_a_message_then_silence():
    until_error(LinkTimeout, fmqp("fmqp_half", timeout_ms=200), 190, 200)
    until_error(LinkTimeout, lightmq("lightmq_half", timeout_ms=200), 190, 200)


@check
def an_absurd_length():
    until_error(WireError, fmqp("fmqp_200_mb", timeout_ms=200), 0, 0)
    until_error(LinkTimeout, fmqp("fmqp_900_kb_half", timeout_ms=200), 190, 200)
    until_error(LinkTimeout, lightmq("lightmq_64_kb_half", timeout_ms=200), 190, 200)


@check
def a_peer_that_stops_reading():
    payload = bytes(1000)
    client = fmqp("fmqp_reads_nothing", timeout_ms=300, tx_size=1100)
    until_error(LinkTimeout, client, 290, 4000, lambda: client.publish(b"a/b", payload))
    other = lightmq("lightmq_reads_nothing", timeout_ms=300, tx_size=1100)

    def send():
        try:
            other.send(payload, 0)
        except NoAnswer:
            return  # nobody answers here; the next one is tried at once

    until_error(LinkTimeout, other, 290, 4000, send)


@check
def garbage():
    until_error(WireError, fmqp("fmqp_garbage", timeout_ms=200), 0, 200)
    client = lightmq("lightmq_garbage", timeout_ms=200)
    client.post(b"x")
    until_error(WireError, client, 0, 200)
    stream = tcp.connect("127.0.0.1", _PORTS["fmqp_garbage"], 2000)
    within(0, _GRACE, raises, WireError, LightmqClient(stream, b"me").connect, 2000)


@check
def one_byte_at_a_time():
    got = []
    client = fmqp("fmqp_bytewise")
    client.subscribe(b"a/*", lambda topic, payload: got.append(int(payload)))
    while len(got) < 50 and client.poll(2000):
        pass
    equal(got, list(range(50)))
    client.close()
    got.clear()
    client = lightmq("lightmq_bytewise", handler=lambda data: got.append(int(data)))
    while len(got) < 50 and client.poll(2000):
        pass
    equal(got, list(range(50)))
    client.close()


@check
def a_close_and_a_reset():
    for fault in ("fin", "reset"):
        client = fmqp(fault)
        client.publish(b"a", b"b")
        until_error(LinkClosed, client, 0, 500)
        stream = tcp.connect("127.0.0.1", _PORTS[fault], 2000)
        error = within(
            0, 500 + _GRACE, raises, LinkClosed, LightmqClient(stream, b"me").connect, 2000
        )
        equal("peer" in str(error), True, str(error))


@check
def a_refusal():
    equal(raises(Refused, lightmq, "lightmq_refused").code, 4)


@check
def an_echo_is_quick():
    client = fmqp("echo", name=b"echo")
    times = sorted([client.ping(2000) for _ in range(50)])
    equal(times[25] < 20000, True, "p50 %d us" % times[25])
    client.close()


run()
