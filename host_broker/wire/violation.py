"""A peer's mistake is a value in the event stream: codecs never raise on a peer's bytes."""

from dataclasses import dataclass


@dataclass(slots=True)  # not frozen: one read can hold 40 000
class Violation:
    """A rule of the protocol that the peer broke.

    ``rule`` is the requirement's number (``R9``) or the name of one of our limits
    (``bus.max_body``); ``offset`` counts bytes from the start of the connection to the start of
    the packet; ``fatal`` says that the byte stream cannot be read any further, or that the
    protocol demands the end of the connection.

    ``count`` packets in a row break it; the rest is about the first. ``distinct`` of them had to be
    looked at: one that is byte for byte the one before it had not.
    """

    rule: str
    reason: str
    offset: int
    fatal: bool
    count: int = 1
    distinct: int = 1
