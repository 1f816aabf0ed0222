"""What subscribers cost that ask for all that is retained and read nothing of it."""

import contextlib
import socket
import time
from dataclasses import dataclass

from benchmarks.broker.clients import publisher, say, subscriber
from benchmarks.broker.metering import resident_bytes
from benchmarks.broker.mixture import Mixture
from benchmarks.broker.peers import Peer, PeerFailed, Running

SUBSCRIBERS = 20
RETAINED_BYTES = 12_000_000  # of payload, all together
MUST_MB = 40.0
_MEDIAN_BYTES = 1024
_WATCH_S = 4.0
_LOOK_S = 0.02
_PATTERN = "r/*"


@dataclass(frozen=True, slots=True)
class Retained:
    """Memory in MB (1e6 bytes)."""

    retained_mb: float  # what the retained messages cost
    subscribers_mb: float  # what the subscribers that never read cost, at most


def measure(peer: Peer, broker: Running, seed: int) -> Retained:
    """Retain 12 MB under ``r/*``, subscribe 20 times, read nothing, and watch the broker's memory.

    The broker has to be one that nothing was retained in before. Raises ``PeerFailed``.
    """
    retain = peer.wire.retained
    if retain is None:
        raise PeerFailed(f"{peer.name} retains nothing")
    mixture = Mixture(seed, "retained")
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(publisher(peer, broker))
        before = resident_bytes(broker.pid)
        number = total = 0
        while total < RETAINED_BYTES:
            body = mixture.payload(_MEDIAN_BYTES)
            client.sendall(retain(f"r/{number}", body))
            number += 1
            total += len(body)
        # What a client asks for later is answered when all before it was done.
        words, answer = peer.wire.subscribe(("bench/ready",), 0)
        say(peer, client, words, answer)
        held = most = resident_bytes(broker.pid)
        for _ in range(SUBSCRIBERS):
            stack.enter_context(_silent(peer, broker))
        end = time.monotonic() + _WATCH_S
        while time.monotonic() < end:  # the measurement itself: nothing is waited for
            most = max(most, resident_bytes(broker.pid))
            time.sleep(_LOOK_S)
    return Retained((held - before) / 1e6, (most - held) / 1e6)


def _silent(peer: Peer, broker: Running) -> socket.socket:
    """Return a client that has subscribed to all that is retained and does not read the answer."""
    client = subscriber(peer, broker, ("bench/none",))
    client.sendall(peer.wire.subscribe((_PATTERN,), 0)[0])
    return client
