"""What a LightMQ peer may do, or not do, to the client; over a stream in memory."""

from checks import Memory, check, equal, raises, run, some, within
from clients_in_memory import lightmq

from umotemq.lightmq import LightmqClient
from umotemq.link import LinkError
from umotemq.outage import Ring


@check
def connect_has_a_deadline():
    client = LightmqClient(Memory(), b"me", timeout_ms=200, retry_ms=0)
    error = within(190, 500, raises, "timeout", client.connect, timeout_ms=5000)
    equal(error.args, ("timeout", "memory"))
    raises("timeout", client.ping, 100)
    client = LightmqClient(Memory(), b"me")
    within(190, 500, raises, "timeout", client.connect, timeout_ms=200)


@check
def anything_but_a_connack_is_an_error():
    for wrong in (b"\0", b"\x03\0\x02\0\0", b"\x02\0\x02\0\0", b"\x02\0\0", b"HTTP"):
        stream = Memory()
        stream.feed(wrong)
        raises("wire", LightmqClient(stream, b"me", retry_ms=0).connect, timeout_ms=1000)


@check
def requests_wait_for_room_for_their_answers():
    class Slow(Memory):
        """Once ``slow``, takes a byte every other time."""

        slow = False
        turn = 0

        def write(self, data):
            self.turn += 1
            if self.slow and self.turn & 1:
                return None
            return Memory.write(self, data[:1] if self.slow else data)

    slow = Slow()
    client, stream = lightmq(slow, handler=lambda data: data, rx_size=64, tx_size=24)
    slow.slow = True
    sent = want = b""
    for n in range(40):
        stream.feed(b"\x05\0\x0d\0" + bytes([n]) + b"\0datadatada")
        want += b"\x06\0\x0c\0" + bytes([n]) + b"datadatada"
    for _ in range(2000):
        client.poll(0)
        sent += stream.take()
    equal(sent, want)


@check
def a_lost_link_ends_waiting():
    class Ending:
        def ipoll(self, ms):
            stream.ended = True
            return ()

    client, stream = lightmq()
    client.retry_ms = 20
    client._poll = Ending()
    within(0, 300, raises, "closed", client.send, b"x", 5000)


@check
def stale_responses_after_an_outage_are_nobodys():
    responses = []
    ring = Ring(100)
    client, stream = lightmq(outage=ring, on_response=responses.append)
    client.retry_ms = 20
    client._id = 8
    client.post(b"before")
    stream.ended = True
    client.poll(100)
    equal((client.up, client.unanswered, len(ring)), (False, 1, 0))
    client.post(b"kept")
    equal(len(ring), 1)
    raises(LinkError, client.send, b"x", 100)
    stream.take()
    stream.feed(b"\x02\0\x01\0\x06\0\x02\0\x09\x06\0\x02\0\x0a")
    client.connect(timeout_ms=1000)
    client.poll(100)
    equal(stream.take(), b"\x01\0\x03\x02me\x05\0\x07\0\x0c\0kept")
    equal((responses, client.discarded, len(ring)), ([], 2, 0))
    raises("unanswered", client.flush, 100)  # one is unanswered, though the link is up again
    client.flush(100)


@check
def malformed_frames_end_the_link():
    for wrong in (
        b"\0",
        b"\x01\0\x03\x02me",
        b"\x02\0\x01\0",
        b"\x07\0\0",
        b"\xff",
        b"\x03\0\0",
        b"\x03\0\x03",
        b"\x04\0\x01",
        b"\x05\0\x02",
        b"\x06\0\x01",
    ):
        for step in (1, 100):
            client, stream = lightmq(Memory(step))
            stream.feed(wrong)
            error = None
            while error is None:
                equal(stream.empty, False, "%r was accepted" % wrong)
                try:
                    client.poll(0)
                except LinkError as wire_error:
                    equal(wire_error.args[0], "wire")
                    error = wire_error
            equal(stream.closed, True)


@check
def what_is_too_long_is_skipped_without_a_buffer():
    got = []
    for step in some((7, 1 << 20), 2):
        got.clear()
        client, stream = lightmq(Memory(step), handler=got.append, rx_size=64)
        stream.feed(b"\x05\xff\xff\0\x01\0")
        stream.feed(b"x" * 83, 65532 // 83)
        stream.feed(b"x" * (65532 % 83))
        stream.feed(b"\x05\0\x04\0\x02\0y")
        while not stream.empty:
            client.poll(0)
        client.poll(0)
        equal(got, [b"y"])
        equal(client.discarded, 1)


@check
def a_silent_peer_is_noticed_by_pings():
    client, stream = lightmq(keepalive_ms=100, timeout_ms=200)
    within(290, 700, raises, "timeout", client.poll, 5000)
    equal(stream.take()[:3], b"\x03\0\x02")


@check
def half_a_frame_is_noticed_in_time():
    client, stream = lightmq(timeout_ms=200)
    stream.feed(b"\x05\xff\xff\0")
    within(190, 500, raises, "timeout", client.poll, 5000)


run()
