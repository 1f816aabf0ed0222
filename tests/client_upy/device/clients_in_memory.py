"""Clients over a stream in memory, and the least that a broker answers them."""

from checks import Memory, equal, publication

from umotemq.fmqp import FmqpClient
from umotemq.lightmq import LightmqClient

# The sign of life of a client without a name.
SIGN = publication(b"ping/-/-/-/-/-/-", b"")
# Of a client with the name n, to its own pings.
SUBSCRIBED = b"\x90\x12\0\0\0\0ping/-/-/-/-/-/-/n"


def ping(number):
    """Return the FMQP packet of the client n that asks for a sign of life."""
    return publication(b"ping/-/-/-/-/-/-/n", bytes([number]))


def broker(data):
    """Answer pings as an FMQP broker does; nothing else."""
    at = data.find(b"ping/") - 6
    while at >= 0:
        if not data[at]:
            return data[at : at + 6 + data[at + 1] + data[at + 5]]
        at = data.find(b"ping/", at + 7) - 6
    return b""


def named(**options):
    """Return an FMQP client that is not connected yet, and a stream whose far end is ``broker``."""
    stream = Memory()
    stream.answer = broker
    options["name"] = b"n"
    if "retry_ms" not in options:
        options["retry_ms"] = 20
    return FmqpClient(stream, **options), stream


def fmqp(stream=None, **options):
    """Return an FMQP client that is up, does not ping and does not come back; and its stream."""
    stream = stream or Memory()
    if "retry_ms" not in options:
        options["retry_ms"] = 0
    client = FmqpClient(stream, name=b"", **options)
    client.connect(timeout_ms=1000)
    equal(stream.take(), SIGN, "the sign of life that proves the stream")
    return client, stream


def lightmq(stream=None, **options):
    """Return a LightMQ client that is up and does not come back; and its stream."""
    stream = stream or Memory()
    stream.feed(b"\x02\0\x01" + (b"\x01" if options.get("dialect") == "gbaranski" else b"\0"))
    client = LightmqClient(stream, b"me", retry_ms=0, **options)
    client.connect(timeout_ms=1000)
    equal(stream.take(), b"\x01\0\x03\x02me")
    return client, stream
