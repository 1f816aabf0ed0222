"""Readings that the broker has to confirm: by MicroMsg2, whatever else the board speaks."""

from time import sleep_ms, ticks_diff, ticks_ms

from umotemq.micromsg2 import MicroMsg2Client
from umotemq.outage import Ring

_RING = 4096  # bytes
_LOOK_MS = 10  # how often the link is served
_CONNECT_MS = 10000


def send(way, config, name, topic, count, period_ms, timeout_ms, connects=1):
    """Publish the numbers from 0 on with ``confirm``, whatever becomes of the link meanwhile.

    At least ``count`` of them, for which the ring has room; and more whenever the link is up, until
    it has come up ``connects`` times; each time that it has is said. Returns when the broker has
    confirmed all of them, or after ``timeout_ms``. Raises OSError if there is no link at first.
    """
    downs = []
    client = MicroMsg2Client(
        way,
        name=name,
        outage=Ring(_RING),
        keepalive_ms=config.get("keepalive_ms", 500),
        timeout_ms=config.get("answer_ms", 5000),
        retry_ms=config.get("retry_ms", 500),
        retry_max_ms=config.get("retry_max_ms", 1000),
        on_down=lambda: downs.append(str(client.error)),
    )
    client.connect(timeout_ms=_CONNECT_MS)
    ring = client.outage
    start = ticks_ms()
    number = elapsed = told = 0
    while elapsed < timeout_ms and (number < count or client.connects < connects or ring.count):
        if client.up and client.connects != told:
            told = client.connects
            print("AGENT-READY")
        more = number < count or (client.up and client.connects < connects)
        if more and elapsed >= number * period_ms:
            client.publish(topic, b"#%d" % number, confirm=True)
            number += 1
        client.poll(0)
        # Not in poll(left), for the reason that line.py has.
        sleep_ms(_LOOK_MS)
        elapsed = ticks_diff(ticks_ms(), start)
    result = {
        "sent": number,
        "kept": ring.count,
        "dropped": ring.dropped,
        "connects": client.connects,
        "downs": downs[:8],
        "ms": elapsed,
    }
    client.on_down = None
    client.close()
    return result
