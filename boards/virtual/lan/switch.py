"""An Ethernet switch whose links lose, delay or carry nothing: frames and the time in, frames out.

It knows no devices and no clock. Ports are named; a frame for an address that no port has shown yet
goes to all others, as do broadcasts.
"""

import heapq
import itertools
import random
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

_MAX_HELD = 4096  # frames under way to one port; more are lost, as in a queue that is full
_MAX_ENDINGS = 1000  # kept of one port
_ADDRESS = 6  # bytes
_IPV4 = b"\x08\x00"
_TCP = 6
_FIN, _RST = 1, 4

EndingKind = Literal["fin", "rst"]


@dataclass(frozen=True, slots=True)
class Link:
    """What the way between one port and the switch is like, in both directions."""

    up: bool = True
    loss: float = 0.0  # of the frames, 0 to 1
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Ending:
    """A TCP segment that ends a connection, seen as it came from a port."""

    at: float  # on the clock of the caller
    kind: EndingKind
    source_port: int
    passed: bool  # False: it was lost on the way


@dataclass(slots=True)
class Traffic:
    """What one port has sent and got since it was added."""

    frames_in: int = 0  # from the port, carried by its link
    frames_out: int = 0  # to the port
    lost: int = 0  # both ways: by loss, a link that is down, a queue that is full
    last_in: float | None = None  # when the last frame came from the port
    endings: deque[Ending] = field(default_factory=lambda: deque(maxlen=_MAX_ENDINGS))


class _Port:
    def __init__(self, link: Link) -> None:
        self.link = link
        self.traffic = Traffic()
        self.held = 0


class Switch:
    """Ports by name. All times are seconds on one clock."""

    def __init__(self, chance: random.Random) -> None:
        """``chance`` decides which frames are lost."""
        self._chance = chance
        self._ports: dict[str, _Port] = {}
        self._places: dict[bytes, str] = {}  # of addresses: the port that last sent from there
        self._under_way: list[tuple[float, int, str, bytes]] = []
        self._numbers = itertools.count()

    def add(self, name: str, link: Link) -> None:
        """Add a port; one of that name must not be there."""
        if name in self._ports:
            raise ValueError(f"there is a port {name!r} already")
        self._ports[name] = _Port(link)

    def remove(self, name: str) -> None:
        """Forget a port and what is under way to it."""
        del self._ports[name]
        self._places = {place: port for place, port in self._places.items() if port != name}
        self._under_way = [entry for entry in self._under_way if entry[2] != name]
        heapq.heapify(self._under_way)

    def set_link(self, name: str, link: Link) -> None:
        """Change a port's link; what is under way already arrives if it is up then."""
        self._ports[name].link = link

    def link(self, name: str) -> Link:
        """Return what a port's link is like."""
        return self._ports[name].link

    def traffic(self, name: str) -> Traffic:
        """Return what a port has sent and got."""
        return self._ports[name].traffic

    def receive(self, name: str, frame: bytes, now: float) -> None:
        """Take a frame that a port sent."""
        port = self._ports[name]
        passed = port.link.up and not self._is_lost(port)
        if (ending := _ending(frame)) is not None:
            kind, source_port = ending
            port.traffic.endings.append(Ending(now, kind, source_port, passed))
        if not passed:
            port.traffic.lost += 1
            return
        port.traffic.frames_in += 1
        port.traffic.last_in = now
        self._places[frame[_ADDRESS : 2 * _ADDRESS]] = name
        for target in self._targets(name, frame):
            self._send(target, frame, now + port.link.delay_s)

    def due(self, now: float) -> Iterator[tuple[str, bytes]]:
        """Yield the frames that arrive by ``now``, each with its port, in the order of arrival."""
        while self._under_way and self._under_way[0][0] <= now:
            _, _, name, frame = heapq.heappop(self._under_way)
            port = self._ports[name]
            port.held -= 1
            if port.link.up:
                port.traffic.frames_out += 1
                yield name, frame
            else:
                port.traffic.lost += 1

    def next_deadline(self) -> float | None:
        """Return when the next frame arrives, None if none is under way."""
        return self._under_way[0][0] if self._under_way else None

    def _targets(self, source: str, frame: bytes) -> list[str]:
        place = self._places.get(frame[:_ADDRESS])
        if place is None or frame[0] & 1:
            return [name for name in self._ports if name != source]
        return [place] if place != source else []

    def _send(self, name: str, frame: bytes, at: float) -> None:
        port = self._ports[name]
        if not port.link.up or port.held >= _MAX_HELD or self._is_lost(port):
            port.traffic.lost += 1
            return
        port.held += 1
        entry = (at + port.link.delay_s, next(self._numbers), name, frame)
        heapq.heappush(self._under_way, entry)

    def _is_lost(self, port: _Port) -> bool:
        return port.link.loss > 0 and self._chance.random() < port.link.loss


def _ending(frame: bytes) -> tuple[EndingKind, int] | None:
    """Return how a TCP segment over IPv4 ends its connection, and its source port."""
    if frame[12:14] != _IPV4 or len(frame) < 54 or frame[23] != _TCP:
        return None
    start = 14 + (frame[14] & 15) * 4
    if len(frame) < start + 20:
        return None
    (source_port,) = struct.unpack_from(">H", frame, start)
    flags = frame[start + 13]
    if flags & _RST:
        return "rst", source_port
    return ("fin", source_port) if flags & _FIN else None
