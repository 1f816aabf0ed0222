"""tests/vectors/lightmq.json through the client. Argument: the vectors, one JSON object a line."""

from checks import Memory, check, equal, raises, run
from vector_lines import pieces, size_of, steps, vectors, whole

from umotemq.lightmq import LightmqClient
from umotemq.link import LinkError

_RX = 2048
_NUMBERS = {"spec": b"\x03\x04\x05\x06", "gbaranski": b"\x05\x06\x03\x04"}


def in_each_dialect():
    for vector in vectors():
        for dialect in ("spec", "gbaranski"):
            if vector["dialect"] in (dialect, "both"):
                yield vector, dialect


def connected(dialect, step=1 << 20, **kwargs):
    stream = Memory(step)
    stream.feed(b"\x02\0\x01" + (b"\x01" if dialect == "gbaranski" else b"\0"))
    client = LightmqClient(stream, b"me", dialect=dialect, rx_size=_RX, retry_ms=0, **kwargs)
    client.connect(timeout_ms=1000)
    stream.take()
    return client, stream


def feed(stream, vector):
    for data, times in pieces(vector, "hex"):
        stream.feed(data, times)


def drained(client, stream):
    client.poll(0)
    while not stream.empty:
        client.poll(0)


def connack(vector, dialect, step):
    stream = Memory(step)
    client = LightmqClient(stream, b"me", dialect=dialect, retry_ms=0)
    feed(stream, vector)
    if vector["frame"]["accepted"]:
        client.connect(timeout_ms=1000)
    else:
        raises("refused", client.connect, timeout_ms=1000)
    equal(client.code, vector["frame"]["code"])


def ping(vector, dialect, step):
    client, stream = connected(dialect, step)
    feed(stream, vector)
    drained(client, stream)
    pong = _NUMBERS[dialect][1]
    equal(stream.take(), bytes([pong, 0, 2]) + vector["frame"]["id"].to_bytes(2, "big"))


def pong(vector, dialect, step):
    client, stream = connected(dialect, step)
    number = vector["frame"]["id"]
    client._id = (7 if number is None else number) - 1
    feed(stream, vector)
    equal(client.ping(1000) >= 0, True)


def send(vector, dialect, step):
    got = []
    client, stream = connected(dialect, step, handler=got.append)
    feed(stream, vector)
    drained(client, stream)
    data = pieces(vector["frame"], "data_hex")
    if size_of(data) > _RX:
        equal((got, client.discarded), ([], 1))
        return
    equal(got, [whole(data)])
    response = bytes([_NUMBERS[dialect][3], 0, 2]) + vector["frame"]["id"].to_bytes(2, "big")
    equal(stream.take(), response)


def sendresp(vector, dialect, step):
    client, stream = connected(dialect, step)
    client._id = vector["frame"]["id"] - 1
    feed(stream, vector)
    data = pieces(vector["frame"], "data_hex")
    if size_of(data) > _RX:
        drained(client, stream)
        equal(client.discarded, 1)
    else:
        equal(client.send(b"?", 1000), whole(data))


def violation(vector, dialect, step):
    first = Memory(step)
    feed(first, vector)
    client = LightmqClient(first, b"me", dialect=dialect, retry_ms=0)
    raises(LinkError, client.connect, timeout_ms=1000)
    client, stream = connected(dialect, step)
    feed(stream, vector)
    raises("wire", drained, client, stream)


_RECEIVED = {"CONNACK": connack, "PING": ping, "PONG": pong, "SEND": send, "SENDRESP": sendresp}


@check
def what_a_broker_may_send_is_understood():
    count = 0
    for vector, dialect in in_each_dialect():
        if vector["direction"] == "C>S":
            continue
        receive = violation if vector["violation"] else _RECEIVED[vector["frame"]["opcode"]]
        size = size_of(pieces(vector, "hex"))
        for step in steps(size):
            try:
                receive(vector, dialect, step)
            except Exception as error:
                text = "%s, %s, steps of %d: %s %s"
                what = (vector["name"], dialect, step, type(error).__name__, error)
                raise AssertionError(text % what)
        count += 1
    equal(count >= 40, True, "%d vectors" % count)


def sent(vector, dialect):
    """Have the client send the vector's frame; return the bytes."""
    frame = vector["frame"]
    operation = frame["opcode"]
    ping_code, _, send_code, _ = _NUMBERS[dialect]
    if operation == "CONNECT":
        stream = Memory()
        stream.feed(b"\x02\0\x01" + (b"\x01" if dialect == "gbaranski" else b"\0"))
        client = LightmqClient(stream, frame["client_id"].encode(), dialect=dialect, tx_size=300)
        client.connect(timeout_ms=1000)
        return stream.take()
    number = frame["id"].to_bytes(2, "big")
    data = whole(pieces(frame, "data_hex")) if operation.startswith("SEND") else b""
    client, stream = connected(dialect, handler=lambda _: data, tx_size=4000)
    client._id = frame["id"] - 1
    if operation == "SEND":
        client.post(data)
    elif operation == "PING":
        client._ask(True)
        client._flush()
    elif operation == "PONG":
        stream.feed(bytes([ping_code, 0, 2]) + number)
    else:
        stream.feed(bytes([send_code, 0, 3]) + number + b"\0")
    drained(client, stream)
    return stream.take()


@check
def what_the_client_sends_is_as_the_vectors_say():
    count = 0
    for vector, dialect in in_each_dialect():
        if vector["direction"] == "S>C" or not vector["encodes"]:
            continue
        parts = pieces(vector, "hex")
        if size_of(parts) > 4000:
            continue
        equal(sent(vector, dialect), whole(parts), vector["name"] + ", " + dialect)
        count += 1
    equal(count >= 20, True, "%d vectors" % count)


run()
