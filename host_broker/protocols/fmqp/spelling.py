"""Events as FMQP bytes, for whoever is a client."""

from host_broker.bus.publication import MAX_TOPIC, pack
from host_broker.protocols.fmqp.events import (
    CACHE,
    DEBUG,
    FEEDBACK,
    SUBSCRIPTION,
    UNSUBSCRIBE,
    WILL,
)
from host_broker.protocols.fmqp.topics import TopicFault, normal


def _checked(topic: str) -> bytes:
    raw = normal(topic.encode())
    if len(raw) > MAX_TOPIC:
        raise TopicFault("R6", f"the topic is {len(raw)} bytes long, {MAX_TOPIC} is the most")
    return raw


def encode_publication(
    topic: str, body: bytes, *, will: bool = False, cache: bool = False
) -> bytes:
    """Spell a publication; TopicFault (a ValueError) if FMQP cannot carry the topic."""
    return pack(WILL * will | CACHE * cache, _checked(topic), body)


def encode_subscription(
    topic: str, *, unsubscribe: bool = False, feedback: bool = False, debug: bool = False
) -> bytes:
    """Spell a subscription or its end; TopicFault (a ValueError) if the topic is none."""
    flags = SUBSCRIPTION | UNSUBSCRIBE * unsubscribe | FEEDBACK * feedback | DEBUG * debug
    return pack(flags, _checked(topic), b"")
