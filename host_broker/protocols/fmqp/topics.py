"""Which bytes are topics (R5 to R9), remembered for those that need no change."""

from host_broker.bus.publication import is_service

# 255 bytes each at most: about 4 MiB per broker in the worst case.
_MAX_KNOWN = 8192


class TopicFault(ValueError):
    """Bytes that are no topic; ``rule`` is the requirement they break."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule


def normal(raw: bytes) -> bytes:
    """Return a topic without the slashes at its ends (R8); TopicFault if it is none."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        raise TopicFault("R5", f"the topic {raw!r} is not UTF-8") from error
    if b"\0" in raw:
        raise TopicFault("R7", f"the topic {raw!r} contains NUL")
    topic = raw.strip(b"/")
    if not topic:
        raise TopicFault("R9", f"the topic {raw!r} has no level")
    return topic


class PlainTopics:
    """Topics seen that are normal as sent and not the broker's: most of all traffic."""

    def __init__(self) -> None:
        self.known: set[bytes] = set()

    def learn(self, raw: bytes) -> bool:
        """Remember a raw topic if it is plain; returns whether it is."""
        try:
            plain = normal(raw) == raw and not is_service(raw)
        except TopicFault:
            return False
        if plain:
            if len(self.known) >= _MAX_KNOWN:
                self.known.clear()
            self.known.add(raw)
        return plain
