"""An hour of a busy board in seconds: 100 000 messages through 200 lost connections.

Arguments: a file, JSON, ports by name; other numbers of messages and connections.
"""

import gc
import sys
import time

from checks import check, equal, run
from live_clients import fmqp

from umotemq.outage import Ring

_MESSAGES, _CONNECTIONS = [int(number) for number in sys.argv[2:]] or (100_000, 200)
_PAYLOAD = b"12345"


class Soak:
    def __init__(self):
        self.received = self.published = 0
        self.client = fmqp("cut", retry_ms=2, retry_max_ms=2, outage=Ring(200))
        self.client.subscribe(b"soak/1", self.raw, raw=True)
        self.client.subscribe(b"soak/*", self.whole)
        self.client.publish(b"soak/will", b"gone", will=True)

    def raw(self, view, topic_start, topic_end, start, end):
        self.received += 1

    def whole(self, topic, payload):
        if payload != _PAYLOAD and payload != b"gone":
            raise ValueError("%r on %r" % (payload, topic))

    def run(self, messages, connections):
        """Publish and receive until there were so many of both."""
        client = self.client
        while self.received < messages or client.connects < connections:
            client.publish(b"soak/1", _PAYLOAD)
            self.published += 1
            client.poll(0)
            if not client.up:
                time.sleep_ms(1)
            elif self.published - self.received > 50:
                client.poll(1)

    def allocated(self):
        """Return the bytes of heap in use while the link is up and silent."""
        if not hasattr(gc, "mem_alloc"):
            return 0
        # The first wait of a connection makes what ipoll() then keeps (a tuple); where the broker
        # is faster than we are, there may have been none yet.
        client = self.client
        connects = 0
        while client.poll(20) or not client.up or connects != client.connects:
            connects = client.connects
        client.ping()
        gc.collect()
        return gc.mem_alloc()


@check
def nothing_grows():
    soak = Soak()
    soak.run(2000, 10)
    before = soak.allocated()
    soak.run(_MESSAGES, _CONNECTIONS)
    after = soak.allocated()
    client = soak.client
    print(
        "soak: %d messages, %d connections, %d bytes of heap before, %d after"
        % (soak.received, client.connects, before, after)
    )
    equal(after <= before, True, "grown by %d bytes" % (after - before))
    equal(client.discarded, 0)
    client.close()


run()
