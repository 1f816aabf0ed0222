"""A peer's mistake is a value in the event stream: codecs never raise on a peer's bytes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule of the protocol that the peer broke.

    ``rule`` is the requirement's number (``R9``) or the name of one of our limits
    (``fmqp.max_body``); ``offset`` counts bytes from the start of the connection to the start of
    the packet; ``fatal`` says that the byte stream cannot be read any further, or that the
    protocol demands the end of the connection.
    """

    rule: str
    reason: str
    offset: int
    fatal: bool
