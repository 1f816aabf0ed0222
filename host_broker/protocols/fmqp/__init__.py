"""FMQP: publish and subscribe with feedback. No handshake, no acknowledgement, no error packet.

``events`` what is said; ``topics`` which topics are topics; ``dialect`` how flags and topics are
understood; ``codec`` bytes to events; ``spelling`` events to bytes; ``session`` events to bus
commands, and last wills, for both orders of flags; ``statistics`` ``$/info/messages/second``;
``server`` feedback and ``$/info/clients``; ``settings`` the section [fmqp].
R and A numbers are those of the requirements and ambiguities in ``NOTES.md``.
"""

from host_broker.protocol import (
    BrokerContext,
    EveryByte,
    FirstBytes,
    ProtocolServer,
    ProtocolSpec,
    byte_range,
)
from host_broker.protocols.fmqp.settings import FmqpSettings


def _server(settings: FmqpSettings, context: BrokerContext) -> ProtocolServer:
    # Only now: the command line reads addresses, and needs no server for that.
    from host_broker.protocols.fmqp.server import FmqpServer

    return FmqpServer(settings, context)


FMQP = ProtocolSpec(
    name="fmqp",
    title="FMQP",
    journal_code=1,
    server=_server,
    settings=FmqpSettings,
    # Nearly anything: a body of less than 64 MiB.
    first_bytes=(FirstBytes((EveryByte, EveryByte, byte_range(0, 3)), rank=90),),
    client="host_broker.protocols.fmqp.client:FmqpClientSession",
)
