"""tests/vectors/fmqp.json through the client. Argument: the vectors, one JSON object a line."""

from checks import Memory, check, equal, raises, run
from vector_lines import pieces, size_of, steps, vectors, whole

from umotemq.fmqp import FmqpClient
from umotemq.link import LinkError

_RX = 2048
_SENTINEL = b"\0\x08\0\0\0\x01sentinel!"


def received(vector, step):
    """Feed one vector and a good packet; return (deliveries, their count must be, client)."""
    stream = Memory(step)
    client = FmqpClient(stream, name=b"", rx_size=_RX, tx_size=300, retry_ms=0)
    got = []
    after = []
    packet = vector["packet"]
    exact = packet["topic"].encode() if packet else b"a/b"
    feedback = bool(packet and packet["feedback"])
    for pattern in ("*", "*/*", "*/*/*", "*/*/*/*"):
        client.subscribe(pattern, lambda t, p: got.append(("*", t, p)), feedback=feedback)
    client.subscribe(exact, lambda t, p: got.append(("=", t, p)), feedback=feedback)
    client.subscribe(b"sentinel", lambda t, p: after.append(p))
    for data, times in pieces(vector, "hex"):
        stream.feed(data, times)
    stream.feed(_SENTINEL)
    while not stream.empty:
        client.poll(0)
    client.poll(0)
    equal(after, [b"!"], "the packet after it")
    return [g for g in got if g[1] != b"sentinel"], client


def expected(vector):
    packet = vector["packet"]
    parts = pieces(vector, "hex")
    if vector["violation"] or packet["kind"] == "subscription" or size_of(parts) > _RX:
        return []
    topic = packet["topic"].encode()
    body = whole(pieces(packet, "body_hex"))
    wild = [("*", topic, body)] if topic.count(b"/") < 4 else []
    exact = [] if topic in (b"*", b"*/*", b"*/*/*", b"*/*/*/*") else [("=", topic, body)]
    # A topic that is subscribed to as it is and matches wildcards too is delivered to each.
    return wild + exact


@check
def what_a_broker_may_send_is_understood():
    count = 0
    for vector in vectors():
        if vector["direction"] == "C>B":
            continue
        count += 1
        size = size_of(pieces(vector, "hex"))
        for step in steps(size):
            try:
                got, client = received(vector, step)
                equal(sorted(got), sorted(expected(vector)))
                equal(client.discarded, 0 if got else 1, "discarded")
            except Exception as error:
                fatal = vector["violation"] and vector["violation"]["fatal"]
                if not (fatal and isinstance(error, LinkError)):
                    raise AssertionError("%s, steps of %d: %s" % (vector["name"], step, error))
            else:
                if vector["violation"] and vector["violation"]["fatal"]:
                    raise AssertionError(vector["name"] + ": the link should have ended")
    equal(count >= 20, True, "%d vectors" % count)


@check
def what_the_client_sends_is_as_the_vectors_say():
    count = 0
    for vector in vectors():
        packet = vector["packet"]
        if vector["direction"] == "B>C" or not vector["encodes"]:
            continue
        parts = pieces(vector, "hex")
        body = pieces(packet, "body_hex")
        if size_of(parts) > 4000:
            continue
        stream = Memory()
        client = FmqpClient(stream, name=b"", tx_size=4000)
        client.connect(timeout_ms=1000)
        stream.take()
        topic = packet["topic"].encode()
        if packet["kind"] == "publication":
            if packet["unsubscribe"] or packet["debug"] or packet["feedback"]:
                continue  # bits a client never sets
            client.publish(topic, whole(body), retain=packet["cache"], will=packet["will"])
        else:
            if packet["will"] or packet["cache"] or size_of(body):
                continue
            client.subscribe(topic, print, feedback=packet["feedback"], debug=packet["debug"])
            if packet["unsubscribe"]:
                stream.take()
                client.unsubscribe(topic, feedback=packet["feedback"])
        equal(stream.take(), whole(parts), vector["name"])
        count += 1
    equal(count >= 15, True, "%d vectors" % count)


@check
def topics_that_no_broker_takes_are_refused_here():
    count = 0
    for vector in vectors():
        data = whole(pieces(vector, "hex")[:1])
        if not vector["violation"] or not vector["name"].startswith("bad_topic") or data[0] >> 7:
            continue
        topic = data[6 : 6 + data[1]]
        raises(ValueError, FmqpClient(Memory(), name=b"").subscribe, topic, print)
        count += 1
    equal(count >= 3, True, "%d vectors" % count)


run()
