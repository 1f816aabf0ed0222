"""A connection whose peer counts flags from the other end of the byte (A1, ``lsb``)."""

from collections.abc import Sequence

from host_broker.bus.commands import Command, Send
from host_broker.bus.publication import HEADER
from host_broker.protocols.fmqp.dialect import REVERSED
from host_broker.protocols.fmqp.session import FmqpSession
from host_broker.protocols.session import Translator


class LsbSession(FmqpSession, Translator):
    """Takes stored publications translated, because theirs is the other order.

    Only flags differ, and the flags of plain publications are 0 in any order.
    """

    def deliver(self, run: bytes, now: float) -> Sequence[Command]:
        """Say a run of stored publications with their flags turned round."""
        turned = bytearray(run)
        position = 0
        while position < len(run):
            flags, topic_length, body_length = HEADER.unpack_from(run, position)
            turned[position] = REVERSED[flags]
            position += HEADER.size + topic_length + body_length
        return [Send(turned)]
