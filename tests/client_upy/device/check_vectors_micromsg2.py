"""tests/vectors/micromsg2.json through the client. Argument: the vectors, a JSON object a line."""

from checks import Memory, check, equal, raises, run
from micromsg2_peer import ack, drained
from vector_lines import pieces, size_of, steps, vectors, whole

from umotemq.link import LinkError
from umotemq.micromsg2 import MicroMsg2Client, _framed

_RX = 1024


class Noting(MicroMsg2Client):
    """Notes what messages it is sent, and takes frames of all extensions."""

    def __init__(self, transport, **options):
        self.got = []
        MicroMsg2Client.__init__(self, transport, **options)
        self._indexes = 255

    def _message(self, more, fits, first, stop, body, end):
        view = self._view
        payload = bytes(view[body:end]) if fits else None
        said = (self._heard, bytes(view[first:stop]), self.properties, bool(more), payload)
        self.got.append(said)
        return 1


def connected(step=1 << 20):
    stream = Memory()
    client = Noting(stream, rx_size=_RX, tx_size=700, retry_ms=0)
    stream.feed(b"\x01\0\0\0\0\0\0\0")
    while client._greeted < 4:
        client.poll(0)
    stream.feed(ack(1))
    client.connect(timeout_ms=1000)
    stream.take()
    stream.step = step
    return client, stream


def feed(stream, vector):
    for data, times in pieces(vector, "hex"):
        stream.feed(data, times)


def refused(client, stream):
    """Have the client take what there is; return the error that it ends with."""
    return raises(LinkError, drained, client, stream)


def handshake(vector, step):
    stream = Memory(step)
    client = Noting(stream, rx_size=_RX, retry_ms=0)
    client._others = b"pubsub;dotnet"
    feed(stream, vector)
    stream.feed(b"\x04\x03end")  # follows at once, and is found where the handshake ends
    equal(refused(client, stream).args, ("refused", "end"))


def message(vector, step):
    client, stream = connected(step)
    event = vector["event"]
    client._heard = client._acked = event["sequence"] - 1
    feed(stream, vector)
    drained(client, stream)
    data = pieces(event, "payload_hex")
    head = event["sequence"], event["destination"].encode(), event["properties"].encode()
    fits = size_of(pieces(vector, "hex")) <= _RX
    equal(client.got, [head + (event["continued"], whole(data) if fits else None)])
    equal(stream.take(), ack(event["sequence"]))


def skipped(vector, step):
    client, stream = connected(step)
    feed(stream, vector)
    stream.feed(b"\0\0\x01\x01q\0\0\x01!")
    drained(client, stream)
    equal(client.got, [(1, b"q", b"", False, b"!")])


def error(vector, step):
    first = vector["phase"] == "handshake"
    if first:
        stream = Memory(step)
        client = MicroMsg2Client(stream, retry_ms=0)
    else:
        client, stream = connected(step)
    feed(stream, vector)
    said = refused(client, stream)
    equal(said.args[0], "refused")
    want = vector["event"]["reason"]
    if "\ufffd" not in want:
        equal(said.args[1], want or "memory")  # without a word: where it was


def violation(vector, step):
    client, stream = connected(step)
    feed(stream, vector)
    equal(refused(client, stream).args[0], "wire")


def received(vector):
    """Return how the client is shown a vector, None if it is nothing for it."""
    if vector["direction"] == "C>S" or vector.get("extension_flag_4"):
        return None
    event = vector["event"] and vector["event"]["type"]
    if event == "error":
        return error
    if vector["phase"] == "handshake":
        return handshake if event else None
    if vector["violation"]:
        # What a server commands is skipped, whatever it is; so is what is too long for brokers.
        if vector["name"][:4] == "cmd_" and vector["name"] != "cmd_too_long":
            return skipped
        return None if vector["name"] == "msg_too_long" else violation
    if event == "extension" and vector["event"]["index"] == 1 and vector["name"] != "ext_batch_ack":
        return violation  # it is an ack, and no number
    return message if event == "message" else skipped


@check
def what_a_server_may_send_is_understood():
    count = 0
    for vector in vectors():
        receive = received(vector)
        if receive is None:
            continue
        size = size_of(pieces(vector, "hex"))
        for step in steps(size):
            try:
                receive(vector, step)
            except Exception as wrong:
                text = "%s, steps of %d: %s %s"
                what = (vector["name"], step, type(wrong).__name__, wrong)
                raise AssertionError(text % what)
        count += 1
    equal(count >= 50, True, "%d vectors" % count)


def sent(vector):
    """Have the client send the vector's frame; return the bytes, None if it says no such thing."""
    event = vector["event"]
    client, stream = connected()
    if event["type"] == "message":
        destination = event["destination"].encode()
        client._ping = client._pong = (event["sequence"] - 2) % 65535 + 1
        kind = b""
        if destination[:6] == b"topic/":
            destination = destination[6:]
            kind = b"topic/"
        payload = whole(pieces(event, "payload_hex"))
        kind += event["properties"].encode()
        client._pack(kind, destination, payload, 16 if event["continued"] else 0)
        client._flush()
    elif event["type"] == "command" and event["name"] == "subscribe":
        first, *rest = [value for _, value in event["arguments"]]
        queued = first[:6] != "topic/"
        client.subscribe(first if queued else first[6:], print, queued=queued, filter=tuple(rest))
    elif event["type"] == "error":
        return _framed(4, event["reason"].encode())
    elif vector["name"] == "ext_batch_ack":
        stream.feed(b"\0\0\x04\x01q\0\0\0")
        drained(client, stream)
        return stream.take().replace(b"\x02\x01", b"\x02\x03")  # our index is 1, this one's 3
    return stream.take() or None


@check
def what_the_client_sends_is_as_the_vectors_say():
    count = 0
    for vector in vectors():
        if not vector["encodes"] or vector["phase"] != "frames":
            continue
        parts = pieces(vector, "hex")
        if size_of(parts) > 600:
            continue
        said = sent(vector)
        if said is not None:
            equal(said, whole(parts), vector["name"])
            count += 1
    equal(count >= 18, True, "%d vectors" % count)


run()
