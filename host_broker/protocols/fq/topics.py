"""Exchange and route as a topic of the bus, and back: one reversible rule.

The topic is ``EXCHANGE/ROUTE``; with an empty route it is ``EXCHANGE``. The route is there
verbatim, slashes included, but for what would be no normal topic or mean something else, which is
``%`` and two upper-case hexadecimal digits for each byte:

- NUL, and bytes that are not UTF-8;
- a slash at the end of the route; in the exchange every slash;
- ``*`` where it is a whole level, since it would be a wildcard; ``$`` where it is the exchange;
- ``%`` where one of these escapes would be read otherwise.

An empty exchange is ``%-``. What is longer than fits (255 bytes; the exchange at most 127) is cut
and ends in ``%~`` and 40 hexadecimal digits of its SHA-256. Those are remembered: as properties of
the message, and by the broker for those who answer.

Bytes have an end, topics of other protocols too: whoever binds to a prefix of bytes gets the index
prefix under which all such topics are, and has to look at the route where that is shorter
(``index_of``).
"""

import re
from dataclasses import dataclass
from hashlib import sha256

from host_broker.bus.publication import MAX_TOPIC
from host_broker.protocols.fq.codec import MAX_NAME, read_head, spell_head
from host_broker.protocols.fq.remembered import Remembered

MAX_LEVEL = 127  # bytes of the exchange as a level
EXCHANGE, ROUTE = "fq.exchange", "fq.route"  # properties of messages whose topic is cut

# What a "%" must not be followed by, unless it begins an escape.
_READ_AS_ESCAPE = re.compile(rb"%(?=00|2[45AF]|[89A-F][0-9A-F]|[-~])")
_ESCAPE = re.compile(rb"%(00|2[45AF]|[89A-F][0-9A-F])")
_WILDCARD_LEVEL = re.compile(rb"(?:(?<=/)|^)\*(?=/|$)", re.DOTALL)
_MAYBE_ESCAPE = re.compile(rb"%(?:0|2|[89A-F])?\Z")  # what follows decides
_EMPTY = b"%-"
_CUT = b"%~"
_DIGITS = 40
_MARK_BYTES = len(_CUT) + _DIGITS
_WHOLE_BYTES = 4  # of an escape, or of a character, of which none is cut
MAX_REMEMBERED = 16_384  # addresses by what messages begin with, and as many by their topics


@dataclass(frozen=True, slots=True)
class Address:
    """Where a message goes. ``topic`` is that of the bus; ``is_cut``: it does not say all."""

    exchange: bytes
    route: bytes
    topic: bytes
    is_cut: bool = False

    @property
    def properties(self) -> dict[str, bytes]:
        """What a message needs beside its topic, for whoever reads it."""
        return {EXCHANGE: self.exchange, ROUTE: self.route} if self.is_cut else {}


@dataclass(frozen=True, slots=True)
class Index:
    """Where to find what a program's prefix wants.

    ``topic``, if it is not None, is one to subscribe to as it is; ``prefix`` begins all other
    topics. ``is_exact``: all that it begins are wanted; otherwise one has to look at the routes.
    """

    prefix: bytes
    topic: bytes | None
    is_exact: bool


def address_of(exchange: bytes, route: bytes) -> Address:
    """Return the address of an exchange and a route of any bytes."""
    level, level_is_cut = _level(exchange)
    if not route:
        return Address(exchange, route, level, level_is_cut)
    spelled = _spell_route(route)
    room = MAX_TOPIC - len(level) - 1
    route_is_cut = len(spelled) > room
    if route_is_cut:
        spelled = _cut(spelled, route, room)
    return Address(exchange, route, level + b"/" + spelled, level_is_cut or route_is_cut)


def read_topic(topic: bytes) -> Address:
    """Return exchange and route of a topic, whoever has published it.

    What no exchange and route are spelled as stays as it is. Of a topic that is cut, which only
    its properties or ``Topics`` can read, the cut form is returned.
    """
    level, slash, rest = topic.partition(b"/")
    exchange = b"" if level == _EMPTY else _unescape(level)
    return Address(exchange, _unescape(rest) if slash else b"", topic)


def index_of(exchange: bytes, prefix: bytes) -> Index:
    """Return where to find all routes of an exchange that begin with a prefix of any bytes."""
    level, _ = _level(exchange)
    topic = None if prefix else level
    room = MAX_TOPIC - len(level) - 1 - _MARK_BYTES - _WHOLE_BYTES
    stable = _stable(prefix)
    spelled = _WILDCARD_LEVEL.sub(b"%2A", _spell(stable))
    is_exact = stable == prefix and len(spelled) <= room
    return Index(level + b"/" + spelled[:room], topic, is_exact)


class Topics:
    """Addresses lately used, for the hot path, and those of topics that are cut.

    ``by_head[head]`` is the address of a message that begins so (``codec.spell_head``).
    ``heads[topic]`` is what a message of a topic begins with; None: that is too long for fq (R25),
    or the topic is cut, and its properties say it.
    """

    def __init__(self) -> None:
        self.by_head: Remembered[bytes, Address] = Remembered(self._address, MAX_REMEMBERED)
        self.heads: Remembered[bytes, bytes | None] = Remembered(self._head, MAX_REMEMBERED)
        self._by_topic: dict[bytes, Address] = {}

    def of(self, exchange: bytes, route: bytes) -> Address:
        """Return the address of an exchange and a route, which may be too long for a message."""
        if len(exchange) > MAX_NAME or len(route) > MAX_NAME:
            return self._noted(address_of(exchange, route))
        return self.by_head[spell_head(exchange, route)]

    def read(self, topic: bytes) -> Address:
        """Return what a topic stands for."""
        known = self._by_topic.get(topic)
        if known is None:
            known = read_topic(topic)
            self._remember(known)
        return known

    def _address(self, head: bytes) -> Address:
        address = self._noted(address_of(*read_head(head)))
        if not address.is_cut:
            self.heads.put(address.topic, head)  # soon it is asked for
        return address

    def _noted(self, address: Address) -> Address:
        if address.is_cut:
            self._remember(address)
        return address

    def _head(self, topic: bytes) -> bytes | None:
        return None if _CUT in topic else head_of(self.read(topic))

    def _remember(self, address: Address) -> None:
        if len(self._by_topic) >= MAX_REMEMBERED:
            cut = [each for each in self._by_topic.values() if each.is_cut]
            self._by_topic.clear()
            if len(cut) < MAX_REMEMBERED // 2:
                self._by_topic.update((each.topic, each) for each in cut)
        self._by_topic[address.topic] = address


def head_of(address: Address) -> bytes | None:
    """Return what a message of an address begins with; None: exchange or route are too long for fq
    (R25)."""
    if len(address.exchange) > MAX_NAME or len(address.route) > MAX_NAME:
        return None
    return spell_head(address.exchange, address.route)


def queue_level(name: bytes) -> bytes:
    """Return a queue's name as one level of a topic, different for different names."""
    return _level(name)[0]


def _level(exchange: bytes) -> tuple[bytes, bool]:
    """Return an exchange as the first level, and whether that is cut."""
    if not exchange:
        return _EMPTY, False
    spelled = _spell(exchange).replace(b"/", b"%2F")
    if spelled == b"$":
        spelled = b"%24"
    elif spelled == b"*":
        spelled = b"%2A"
    if len(spelled) <= MAX_LEVEL:
        return spelled, False
    return _cut(spelled, exchange, MAX_LEVEL), True


def _spell_route(route: bytes) -> bytes:
    spelled = _spell(route)
    if b"*" in spelled:
        spelled = _WILDCARD_LEVEL.sub(b"%2A", spelled)
    return spelled[:-1] + b"%2F" if spelled.endswith(b"/") else spelled


def _spell(raw: bytes) -> bytes:
    """Escape what no topic has, and what would be read as an escape."""
    spelled = _READ_AS_ESCAPE.sub(b"%25", raw) if b"%" in raw else raw
    if b"\0" in spelled:
        spelled = spelled.replace(b"\0", b"%00")
    if not spelled.isascii():
        # Bytes that are no UTF-8 become lone surrogates, U+DC80 to U+DCFF.
        text = spelled.decode("utf-8", "surrogateescape")
        spelled = _SURROGATE.sub(_escape_surrogate, text).encode()
    return spelled


_SURROGATE = re.compile("[\udc80-\udcff]")


def _escape_surrogate(found: re.Match[str]) -> str:
    return f"%{ord(found[0]) & 0xFF:02X}"


def _unescape(spelled: bytes) -> bytes:
    if b"%" not in spelled:
        return spelled
    return _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), spelled)


def _cut(spelled: bytes, raw: bytes, room: int) -> bytes:
    """Shorten to ``room`` bytes, which end in a mark of what was there."""
    mark = _CUT + sha256(raw).hexdigest()[:_DIGITS].upper().encode()
    kept = spelled[: room - len(mark)]
    last = kept.rfind(b"%", -2)
    if last >= 0 and _ESCAPE.match(spelled, last):
        kept = kept[:last]
    return kept.decode(errors="ignore").encode() + mark


def _stable(prefix: bytes) -> bytes:
    """Return as much of a prefix as is spelled the same whatever follows it."""
    while True:
        shorter = _without_half_character(prefix)
        shorter = _MAYBE_ESCAPE.sub(b"", shorter)
        if shorter.endswith(b"/") or shorter == b"*" or shorter.endswith(b"/*"):
            shorter = shorter[:-1]
        if shorter == prefix:
            return prefix
        prefix = shorter


def _without_half_character(prefix: bytes) -> bytes:
    """Return it without the beginning of a character of UTF-8 at its end."""
    for back in range(1, min(3, len(prefix)) + 1):
        byte = prefix[-back]
        if byte < 0x80:
            return prefix
        if byte >= 0xC0:
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return prefix[:-back] if size > back else prefix
    return prefix
