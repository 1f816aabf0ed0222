"""The LightMQ client, over a stream in memory."""

from checks import Memory, check, equal, raises, run, within
from clients_in_memory import lightmq

from umotemq.lightmq import LightmqClient
from umotemq.link import LinkError


def answered(client, stream, number, frame):
    # The next id is set, so that the frame prepared for it fits.
    client._id = number - 1
    stream.feed(frame)


@check
def refusals_say_what_to_do():
    for dialect, codes in (("spec", (1, 2, 3, 4, 5, 255)), ("gbaranski", (0, 2, 3, 4, 5, 6))):
        for code in codes:
            stream = Memory()
            stream.feed(bytes([2, 0, 1, code]))
            client = LightmqClient(stream, b"me", dialect=dialect, retry_ms=0)
            error = raises("refused", client.connect, timeout_ms=1000)
            equal((client.code, error.args[0], stream.closed), (code, "refused", True))


@check
def a_refusal_is_tried_again():
    # A board that was reset comes back before the broker knows that it was gone.
    stream = Memory()
    stream.feed(b"\x02\0\x01\x04\x02\0\x01\0")
    stream.step = 4
    client = LightmqClient(stream, b"me", retry_ms=50)
    within(20, 500, client.connect, timeout_ms=1000)
    equal((stream.opened, client.connects, client.error), (2, 1, None))


@check
def arguments_are_checked():
    raises(ValueError, LightmqClient, Memory(), b"")
    raises(ValueError, LightmqClient, Memory(), b"x" * 256)
    error = raises(KeyError, LightmqClient, Memory(), b"me", dialect="spce")
    equal(error.args, ("spce",))
    raises(LinkError, LightmqClient(Memory(), b"me").send, b"x")
    raises(LinkError, LightmqClient(Memory(), b"me").post, b"x")


@check
def pings_are_answered():
    for dialect, ping, pong in (("spec", b"\x03", b"\x04"), ("gbaranski", b"\x05", b"\x06")):
        client, stream = lightmq(dialect=dialect)
        stream.feed(ping + b"\0\x02\x12\x34" + ping + b"\0\x02\xff\xff")
        client.poll(0)
        equal(stream.take(), pong + b"\0\x02\x12\x34" + pong + b"\0\x02\xff\xff")


@check
def a_header_may_be_cut_at_the_end_of_the_buffer():
    ping, pong = b"\x03\0\x02\x12\x34", b"\x04\0\x02\x12\x34"
    for before in range(5):
        client, stream = lightmq(rx_size=30 + before)
        send = b"\x05\0" + bytes([3 + before]) + b"\0\x07\0" + b"x" * before
        stream.feed(send + ping * 8)  # the buffer ends after each byte of a frame once
        for _ in range(4):
            client.poll(0)
        equal(stream.take(), b"\x06\0\x02\0\x07" + pong * 8)
    for rest in range(1, 5):
        client, stream = lightmq(rx_size=25 + rest)
        stream.feed(ping * 8)
        for _ in range(4):
            client.poll(0)
        equal(stream.take(), pong * 8)


@check
def ping_measures_a_round_trip():
    client, stream = lightmq()
    answered(client, stream, 0x1234, b"\x04\0\x02\x99\x99\x04\0\x02\x12\x34")
    equal(client.ping(200) >= 0, True)
    equal(stream.take(), b"\x03\0\x02\x12\x34")
    answered(client, stream, 7, b"\x04\0\0")  # without an id: the oldest outstanding one
    equal(client.ping(200) >= 0, True)
    answered(client, stream, 8, b"\x04\0\x02\0\x07")  # another one's
    within(90, 400, raises, "timeout", client.ping, 100)
    equal(client.up, True)


@check
def no_ping_is_answered_by_an_earlier_one():
    client, stream = lightmq(window=0)
    stream.answer = lambda data: b"\x04\0\x02" + data[3:5] if data[0] == 3 else b""
    for posts in (254, 255, 256, 511):
        client._id = 0xFF00  # the numbers also begin anew
        equal(client.ping(500) >= 0, True)
        for _ in range(posts):
            client.post(b"")
            stream.take()
        stream.answer = None
        raises("timeout", client.ping, 20)
        stream.answer = lambda data: b"\x04\0\x02" + data[3:5] if data[0] == 3 else b""
        equal(client.ping(500) >= 0, True)


@check
def send_returns_the_response():
    client, stream = lightmq()
    answered(client, stream, 0x0102, b"\x06\0\x04\x99\x99no\x06\0\x04\x01\x02ok")
    equal(client.send(b"Hi", 200), b"ok")
    equal(stream.take(), b"\x05\0\x05\x01\x02\0Hi")
    equal(client.discarded, 1)
    # A broker that answers twice, before the first answer is looked at; also with nothing.
    for number, answer in ((3, b"ok"), (4, b"")):
        said = bytes([6, 0, 2 + len(answer), 0, number]) + answer
        answered(client, stream, number, said + bytes([6, 0, 5, 0, number]) + b"two")
        equal(client.send(b"Hi", 200), answer)
    equal(client.discarded, 3)
    within(90, 400, raises, "timeout", client.send, b"Hi", 100)
    answered(client, stream, 0x0200, b"\x06\0\x04\x01\x03no\x06\0\x02\x02\0")
    equal(client.send(b"again", 200), b"")


@check
def requests_are_handled_and_answered():
    got = []

    def handler(data):
        got.append(data)
        return b"yes" if data == b"Hi" else None

    for step in (1, 2, 3, 100):
        got.clear()
        client, stream = lightmq(Memory(step), handler=handler)
        stream.feed(b"\x05\0\x05\x12\x34\0Hi\x05\0\x03\0\x01\x80")
        while not stream.empty:
            client.poll(0)
        client.poll(0)
        equal(got, [b"Hi", b""])
        equal(stream.take(), b"\x06\0\x05\x12\x34yes\x06\0\x02\0\x01")


@check
def requests_are_handled_while_waiting():
    got = []
    client, stream = lightmq(handler=got.append)
    answered(client, stream, 9, b"\x05\0\x05\x12\x34\0Hi\x03\0\x02\0\x07\x06\0\x03\0\x09!")
    equal(client.send(b"?", 200), b"!")
    equal(got, [b"Hi"])
    equal(stream.take(), b"\x05\0\x04\0\x09\0?\x06\0\x02\x12\x34\x04\0\x02\0\x07")


@check
def a_handler_may_ask_and_close():
    answers = []

    def handler(data):
        client._id = 6
        stream.feed(b"\x06\0\x03\0\x07!")
        answers.append(client.send(b"?", 200))
        client.close()
        return b"too late"

    client, stream = lightmq(handler=handler)
    stream.feed(b"\x05\0\x05\x12\x34\0Hi")
    equal(client.poll(100), 1)
    equal(answers, [b"!"])
    equal((stream.take(), stream.closed), (b"\x05\0\x04\0\x07\0?", True))


@check
def an_answer_must_fit():
    # The peer hears of it, and the program goes on.
    client, stream = lightmq(handler=lambda data: data * 9, tx_size=40)
    stream.feed(b"\x05\0\x0d\0\x01\0datadatada" + b"\x05\0\x04\0\x02\0x")
    equal(client.poll(0), 2)
    told = b"error: 90 bytes, room for 35"
    want = b"\x06\0" + bytes([len(told) + 2]) + b"\0\x01" + told
    equal(stream.take(), want + b"\x06\0\x0b\0\x02xxxxxxxxx")
    equal((client.oversized, client.up), (1, True))


@check
def posts_keep_within_their_window():
    responses = []
    client, stream = lightmq(on_response=responses.append, window=2)
    client._id = 0xFFFE
    client.post(b"a")
    client.post(b"b")
    equal(stream.take(), b"\x05\0\x04\xff\xff\0a\x05\0\x04\0\0\0b")
    # A peer that does not answer costs one wait, and no message.
    within(90, 400, client.post, b"c", 100)
    for n in range(20):
        within(0, 80, client.post, b"%d" % n, 1000)
    sent = stream.take()
    equal((sent[:7], len(sent)), (b"\x05\0\x04\0\x01\0c", 11 * 7 + 10 * 8))
    error = within(90, 400, raises, "unanswered", client.flush, 100)
    equal((error.args[1], client.unanswered), ("23 posts", 23))
    client.flush(100)  # it has told of them
    client._id = 4
    client.post(b"a")
    client.post(b"b")
    stream.feed(b"\x06\0\x03\0\x06B\x06\0\x03\0\x05A")
    client.flush(200)
    equal(responses, [b"B", b"A"])
    # One that answers is waited for again.
    client.post(b"a")
    client.post(b"b")
    within(90, 400, client.post, b"c", 100)


@check
def posts_without_a_window_are_not_awaited():
    client, stream = lightmq(window=0)
    for n in range(30):
        within(0, 80, client.post, b"%d" % n)
    equal(len(stream.take()), 10 * 7 + 20 * 8)
    client.flush(100)
    equal(client.unanswered, 0)


@check
def data_must_fit():
    client, stream = lightmq(tx_size=16)
    error = raises(ValueError, client.send, b"12345678901")
    equal(error.args[0], "17 bytes, tx_size 16")
    equal(stream.take(), b"")


run()
