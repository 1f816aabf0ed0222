"""Patterns of subscriptions: those of the bus, and ``**`` for all that follows."""

from dataclasses import dataclass

from host_broker.bus.delivery import Filter
from host_broker.bus.publication import Properties, is_service, topic_fault

REST = b"**"
_ANY = b"*"


class PatternFault(ValueError):
    """A text is no pattern; it says why."""


@dataclass(frozen=True, slots=True)
class Part:
    """One subscription of the bus: its topic, or the beginning of topics."""

    topic: bytes
    prefix: bool = False
    filter: Filter | None = None


@dataclass(frozen=True, slots=True)
class Beneath:
    """A filter: topics whose first levels are equivalent to these, whatever follows.

    ``apart``: ``$`` as a first level is no other.
    """

    levels: tuple[bytes, ...]
    apart: bool

    def __call__(self, topic: bytes, properties: Properties, body: bytes) -> bool:
        """Whether a publication is wanted."""
        if self.apart and is_service(topic):
            return False
        levels = topic.split(b"/")
        return len(levels) >= len(self.levels) and all(
            one == other or _ANY in (one, other)
            for one, other in zip(self.levels, levels, strict=False)
        )


def normal(text: str) -> bytes:
    """Return a topic or pattern as the bus has it, without slashes at its ends."""
    try:
        return text.strip("/").encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell
        raise PatternFault(f"{text!r} is no text") from None


def read_pattern(text: str, *, wildcard_matches_service: bool = True) -> list[Part]:
    """Return what a pattern means to the bus. Raises ``PatternFault``."""
    levels = normal(text).split(b"/")
    if REST in levels[:-1]:
        raise PatternFault("'**' must be the last level")
    if levels[-1] != REST:
        topic = b"/".join(levels)
        if fault := topic_fault(topic):
            raise PatternFault(fault)
        return [Part(topic)]
    base = levels[:-1]
    if base and (fault := topic_fault(b"/".join(base))):
        raise PatternFault(fault)
    apart = not wildcard_matches_service and (not base or base[0] == _ANY)
    if _ANY not in base and not apart:
        topic = b"/".join(base)
        return [Part(topic), Part(topic + b"/", prefix=True)] if base else [Part(b"", prefix=True)]
    literal = base[: base.index(_ANY)] if _ANY in base else base
    begin = b"".join(level + b"/" for level in literal)
    return [Part(begin, prefix=True, filter=Beneath(tuple(base), apart))]
