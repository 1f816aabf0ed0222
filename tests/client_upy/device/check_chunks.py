"""Payloads in pieces, and the real broker. Argument: a file, JSON, ports by name."""

from checks import check, equal, raises, run
from live_clients import PORTS, SOON_MS, fmqp, lightmq, until, up
from long_payload import Source, is_part

from umotemq.carried import Carried
from umotemq.chunks import ChunkClient
from umotemq.link import LinkError
from umotemq.outage import Ring


@check
def large_messages_come_and_go_in_pieces():
    # anchors 3: MemoryError kills the task. Here 60 000 bytes pass through 512.
    seen = [0, 0, 0]

    def piece(total, offset, view):
        if offset == 0:
            seen[0] = seen[1] = 0
        equal(offset, seen[0], "no gap")
        seen[1] += not is_part(view, offset)
        seen[0] += len(view)
        if seen[0] == total:
            seen[2] = total

    small = []
    # On a serial line what comes while nobody reads has to fit the driver's buffer.
    longest = 1200 if isinstance(PORTS["fmqp"], list) else 60000
    for port in ("fmqp", "carried", "pieces"):
        if port not in PORTS:
            continue
        if port == "fmqp":
            client = up(fmqp(port, ChunkClient))
        else:
            client = up(ChunkClient(Carried(lightmq(b"ch", port, tx_size=262))))
        client.receive(b"f/1", piece)
        client.subscribe(b"f/2", lambda topic, payload: small.append(payload))
        for length in (longest, 1, 500, 505, 506, 507, 508, 509, 515):
            client.publish_from(b"f/1", length, Source(length))
            client.publish(b"f/2", b"after")
            until(lambda length=length: seen[2] == length, client)
            equal(seen, [length, 0, length])
            seen[2] = 0
        client.ping(SOON_MS)
        equal((len(small), client.discarded), (9, 0))
        small.clear()
        client.close()


@check
def a_source_that_ends_early_closes_the_link():
    client = up(fmqp(kind=ChunkClient, retry_ms=20, outage=Ring(300)))
    error = raises(LinkError, client.publish_from, b"f/3", 1000, Source(500))
    equal(error.args[:2], ("source", 500))
    equal((client.up, len(client.outage)), (False, 0))

    class Broken:
        def readinto(self, buffer):
            raise ValueError("no card")

    client.connect(timeout_ms=SOON_MS)
    error = raises(LinkError, client.publish_from, b"f/3", 1000, Broken())
    equal((error.args[0], str(error.args[1])), ("source", "no card"))
    client.connect(timeout_ms=SOON_MS)
    client.ping(SOON_MS)
    client.close()


run()
